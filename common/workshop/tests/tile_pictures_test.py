"""The pictures of tiles in shared memory: what they take from a trace, and what they refuse."""
import json
import sys
import unittest
import unittest.mock

from support import Case, contextlib, io

try:
    import tile_layouts
    import tile_life
    import matplotlib
except ImportError:  # palette alone needs no matplotlib before something is drawn
    matplotlib = None
from traces import Refused

SLICES, ROWS, STAGE = 4, 4, 512  # rows of x are 512 bytes: four slices of 128; two stages


def copy(number, stage, swizzled=True):
    """A warp's copy of a slice: eight pieces of each of four rows."""
    places = [(lane // 8, lane % 8) for lane in range(32)]
    return {"warp": 0, "space": "global", "access": "load", "bytes": 16, "allocation": "x",
            "sector_count": 16, "offsets": [512 * row + 128 * number + 16 * p for row, p in places],
            "to_shared": [STAGE * stage + 128 * row + 16 * (p ^ row if swizzled else p)
                          for row, p in places]}


def load(stage, swizzled=True):
    rows = [(lane % 4) for lane in range(32)]
    return {"warp": 0, "space": "shared", "access": "load", "bytes": 16, "wavefronts": 4,
            "ideal_wavefronts": 4,
            "offsets": [STAGE * stage + 128 * row + (16 * row if swizzled else 0) for row in rows]}


STORE = {"warp": 0, "space": "global", "access": "store", "bytes": 16, "allocation": "y",
         "sector_count": 16, "offsets": [64 * (lane // 4) + 16 * (lane % 4) for lane in range(32)]}


def trace(swizzled=True):
    accesses = [copy(0, 0, swizzled)]
    for number in range(SLICES):
        accesses.append(load(number % 2, swizzled))
        if number + 1 < SLICES:
            accesses.append(copy(number + 1, (number + 1) % 2, swizzled))
    other = {**copy(0, 0), "warp": 1}
    return {"kernel": "k", "accesses": [*accesses, other, STORE]}


@unittest.skipUnless(matplotlib, "no matplotlib")
class TilePictures(Case):
    def test_pieces_lie_where_the_copies_put_them(self):
        places = tile_layouts.pieces_of(trace(), "x", 512)
        self.assertEqual(len(places), 32)
        self.assertEqual((places[0], places[128 + 16], places[128]), ((0, 0), (1, 0), (1, 1)))
        with self.assertRaisesRegex(Refused, "no asynchronous copy of 'w'"):
            tile_layouts.pieces_of(trace(), "w", 512)

    def test_titles_count_banks(self):
        for swizzled, groups in ((True, "4 groups"), (False, "1 group ")):
            first = tile_layouts.first_load(trace(swizzled))
            self.assertIn(f"tile: 8 rows in {groups}", tile_layouts.title_of("tile", first))

    def test_stages_and_how_far_copies_are_ahead(self):
        self.assertEqual(tile_life.stages(trace(), "x", 512), [0, STAGE])
        told = tile_life.story(trace(), "x", 512)
        self.assertEqual(told[:4], [("copy", 0, 0), ("load", 0, 0), ("copy", 1, 1), ("load", 1, 1)])
        self.assertEqual(told[-1], ("store", None, None))
        self.assertEqual(tile_life.ahead(told), [1])

    def test_drawn(self):
        with open(self.path("t.json"), "w", encoding="utf-8") as file:
            json.dump(trace(), file)
        for module, arguments, status in (
                (tile_layouts, ("x:512", self.path("t.json") + ":a_tile"), 0),
                (tile_life, ("x:512", "y:64", self.path("t.json")), 0),
                (tile_life, ("x:512", "z:64", self.path("t.json")), 2),
                (tile_layouts, ("x", self.path("t.json")), 2)):
            said = io.StringIO()
            with unittest.mock.patch.object(sys, "argv", [module.__name__, self.path("a.png"),
                                                          *arguments]), \
                    contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                self.assertEqual(module.main(), status, said.getvalue())
