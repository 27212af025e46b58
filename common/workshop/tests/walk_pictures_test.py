"""The pictures of a block's walk over the keys and of a fragment: what they read off a trace, and refuse."""
import unittest

from support import Case

import fragment_layout
import tile_walk
from traces import Refused

ROW = 8  # bytes: head_dim 4


def load(array, rows, warp=0):
    return {"warp": warp, "space": "global", "access": "load", "allocation": array,
            "offsets": [row * ROW if row is not None else None for row in rows]}


def use(warp=0):
    return {"warp": warp, "space": "shared", "access": "load", "offsets": [0]}


def trace(*accesses, written=None):
    return {"kernel": "k", "accesses": list(accesses), "accesses_executed": len(accesses),
            "accesses_written": len(accesses) if written is None else written, "instructions": []}


def two_tiles(second=(4, 5)):
    """A warp loads tiles of K, another those of V; both use each. The second tile is ragged."""
    return (load("Q", (0, 1)), load("K", (0, 1)), load("K", (2, 3)), load("V", (0, 1, 2, 3), warp=1),
            use(), use(warp=1), load("K", (*second, None)), load("V", second, warp=1), use(), load("Q", (2,)))


class TileWalk(Case):
    def test_a_tile_ends_where_it_is_used(self):
        self.assertEqual(tile_walk.walk(trace(*two_tiles()), 6, 4), ([(0, 3), (4, 5)], 3))

    def test_what_is_no_walk_is_refused(self):
        for accesses, tokens, said in ((two_tiles((4, 6)), 8, "a tile has a gap"),
                                       (two_tiles(), 5, "leaves the first"),
                                       (two_tiles()[:-3], 6, "tiles of K and V differ"),
                                       (two_tiles()[:1], 6, "loads nothing of K")):
            with self.assertRaisesRegex(Refused, said):
                tile_walk.walk(trace(*accesses), tokens, 4)
        with self.assertRaisesRegex(Refused, "cut off"):
            tile_walk.walk(trace(*two_tiles(), written=3), 6, 4)


def stored(stride):
    """A fragment in four stores: lane 4 r + c has columns 2 c and 2 c + 1 of row r, in each quarter."""
    return {"kernel": "k", "instructions": [{"ptx": "ld.shared.f32 x;"},
                                            {"ptx": fragment_layout.STORE + " [x], {y};"}],
            "accesses": [{"instruction": 1, "bytes": 8,
                          "offsets": [64 + 4 * (stride * (lane // 4 + row) + 2 * (lane % 4) + column)
                                      for lane in range(32)]}
                         for column in (0, 8) for row in (0, 8)]}


class FragmentLayout(Case):
    def test_each_element_has_a_lane_and_a_number(self):
        found = fragment_layout.layout(stored(24), 24)
        self.assertEqual(len(found), 256)
        self.assertEqual([found[of] for of in ((0, 0), (0, 1), (1, 2), (9, 2), (1, 11), (15, 15))],
                         [(0, 0), (0, 1), (5, 0), (5, 2), (5, 5), (31, 7)])

    def test_a_wrong_stride_and_a_trace_without_fragments_are_refused(self):
        with self.assertRaisesRegex(Refused, "with 16 floats a row element"):
            fragment_layout.layout(stored(24), 16)
        with self.assertRaisesRegex(Refused, "no wmma.store.d"):
            fragment_layout.layout({"kernel": "k", "instructions": [], "accesses": []}, 24)


if __name__ == "__main__":
    unittest.main()
