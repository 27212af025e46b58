"""The picture of a ring's stages: when a tile is asked for and read, and what it refuses."""
import json
import unittest
import unittest.mock

from support import Case, contextlib, io
from warp_phases_test import matplotlib, named, warp
import ring_life
import warp_phases
from traces import Refused

# Three tiles of two copies and, in each of two warps, two products; a copy of Q comes first.
PRODUCER = (("wait", 10), ("bulk_copy", 1), ("wait", 9)) + (("bulk_copy", 1), ("bulk_copy", 9)) * 3 + \
    (("exit", 5),)


def reader(start):
    return (("long_scoreboard", start),) + (("tensor", 10), ("special", 5), ("tensor", 10),
                                            ("wait", 15)) * 3 + (("exit", 1),)


def timeline(late=100):
    return named(7, "a::ring_kernel<64>", {1: "block 0, warp 0", 2: "block 0, warp 1",
                                           3: "block 0, warp 2"}) + \
        warp(7, 1, reader(80)) + warp(7, 2, reader(late)) + warp(7, 3, PRODUCER)


class RingLife(Case):
    def tiles(self, count=3, events=None):
        return ring_life.tiles_of(warp_phases.warps_of(events or timeline(), "ring_kernel"), count)

    def test_a_tile_from_its_first_copy_to_the_last_warp_that_reads_it(self):
        self.assertEqual(self.tiles(), [(20, 80, 125), (30, 120, 165), (40, 160, 205)])

    def test_how_many_are_taken_in_the_mean(self):
        # 45 clocks of the first tile, 85 of the second, 125 of the third, of 125 in all.
        self.assertAlmostEqual(ring_life.ahead(self.tiles()), (45 + 85 + 125) / 125)
        # A ring that asks when it has read: one at any time.
        self.assertEqual(ring_life.ahead([(0, 10, 20), (20, 30, 40), (40, 50, 60)]), 1.0)

    def test_refused(self):
        with self.assertRaisesRegex(Refused, "7 copies, fewer than tiles .8."):
            self.tiles(8)
        with self.assertRaisesRegex(Refused, "warp 0 has 6 products, which is no multiple of the 4"):
            self.tiles(4)
        alone = named(7, "a::ring_kernel<64>", {3: "block 0, warp 2"}) + warp(7, 3, PRODUCER)
        with self.assertRaisesRegex(Refused, "no warp multiplies"):
            self.tiles(3, alone)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_drawn(self):
        path = self.path("t.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": timeline()}, file)
        for arguments, status in ((("2:3", path + ":ring_kernel:a_title"), 0),
                                  (("2:4", path + ":ring_kernel:a_title"), 2),
                                  (("2", path + ":ring_kernel:a_title"), 2),
                                  (("0:3", path + ":ring_kernel:a_title"), 2),
                                  (("2:3", path), 2)):
            said = io.StringIO()
            with unittest.mock.patch.object(ring_life.sys, "argv", ["ring_life", self.path("a.png"),
                                                                    *arguments]), \
                    contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                self.assertEqual(ring_life.main(), status, said.getvalue())
