"""The picture of the rows that a block touches: what it takes from a trace, and what it refuses."""
import json
import os
import sys
import unittest
import unittest.mock

from support import Case, contextlib, io

try:
    import matplotlib
except ImportError:  # palette alone needs no matplotlib before something is drawn
    matplotlib = None
import block_walks
from traces import Refused

ROWS = 8
WANTED = [block_walks.Kind(of) for of in ("Q+dO:load:4", "sums:atomic:8:dQ", "dK:store:4")]


def access(array, how, *offsets, space="global"):
    return {"space": space, "access": how, "allocation": array, "offsets": [*offsets, None]}


def trace(*accesses, executed=None):
    return {"kernel": "k", "accesses": list(accesses),
            "accesses_executed": len(accesses) if executed is None else executed}


# The second head: its rows begin at row 8. The last access belongs to another array behind the sums.
WALK = trace(access("Q", "load", 32, 36), access("Q", "load", 40, space="shared"),
             access("K", "load", 32), access("sums", "atomic", 64, 88), access("sums", "atomic", 72),
             access("sums", "load", 64), access("dK", "store", 60), access("sums", "atomic", 128))


class BlockWalks(Case):
    def test_rows_are_those_of_one_head(self):
        found = block_walks.spans(WALK, WANTED, ROWS)
        self.assertEqual([(n, kind.name, low, high) for n, kind, low, high in found],
                         [(0, "Q and dO", 0, 1), (1, "dQ", 0, 3), (2, "dQ", 1, 1), (3, "dK", 7, 7)])
        self.assertEqual(block_walks.summary(found), "2 additions to dQ, 1 store to dK")
        self.assertEqual([kind.words() for kind in WANTED],
                         ["Q and dO are loaded", "dQ is added to", "dK is stored"])

    def test_lanes_may_be_in_several_arrays(self):
        both = {"space": "global", "access": "load", "allocation": ["Q", "K"], "offsets": [0, 12]}
        [(_, kind, low, high)] = block_walks.spans(trace(both), WANTED, ROWS)
        self.assertEqual((kind, low, high), (WANTED[0], 0, 0))

    def test_refused(self):
        with self.assertRaisesRegex(Refused, "has 1 of 7 accesses: a smaller problem"):
            block_walks.spans(trace(access("Q", "load", 0), executed=7), WANTED, ROWS)
        with self.assertRaisesRegex(Refused, "none of these accesses"):
            block_walks.spans(trace(access("V", "load", 0)), WANTED, ROWS)
        for wrong in ("Q:load", "Q:read:4", "Q:load:0"):
            with self.assertRaisesRegex(Refused, f"'{wrong}': must be ARRAYS"):
                block_walks.Kind(wrong)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_drawn(self):
        with open(self.path("t.json"), "w", encoding="utf-8") as file:
            json.dump(WALK, file)
        kinds, panel = ["Q:load:4", "dK:store:4"], self.path("t.json") + ":a_block"
        for arguments, status in ((["8", *kinds, "--", panel, panel], 0),
                                  (["8", "V:load:4", "--", panel], 2), (["8", "--", panel], 2),
                                  (["0", *kinds, "--", panel], 2), (["8", *kinds, panel], 2),
                                  (["8", *kinds, "--", self.path("none.json") + ":a"], 2)):
            picture = self.path("p.png")
            with unittest.mock.patch.object(sys, "argv", ["block_walks.py", picture, *arguments]), \
                    contextlib.redirect_stdout(io.StringIO()), \
                    contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(block_walks.main(), status, arguments)
            self.assertEqual(os.path.exists(picture), status == 0)
            if status == 0:
                os.remove(picture)


if __name__ == "__main__":
    unittest.main()
