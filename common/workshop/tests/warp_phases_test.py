"""The picture of what a block's warps do: phases from a timeline, and what it refuses."""
import json
import sys
import unittest
import unittest.mock

from support import Case, contextlib, io

try:
    import matplotlib
except ImportError:  # palette alone needs no matplotlib before something is drawn
    matplotlib = None
import warp_phases
from traces import Refused

# What a warp does, and for how many clocks.
LIFE = (("special", 10), ("wait", 30), ("global_load", 40), ("long_scoreboard", 200), ("wait", 10),
        ("tensor", 30), ("alu", 20), ("fp32", 60), ("barrier", 80), ("math_pipe_throttle", 30),
        ("tensor", 10), ("exit", 40))


def warp(process, track, life=LIFE):
    events, clock = [], 0
    for what, clocks in life:
        events.append({"ph": "X", "cat": "warp", "pid": process, "tid": track, "name": what,
                       "args": {"begin_clock": clock, "end_clock": clock + clocks}})
        clock += clocks
    return events


def named(process, kernel, tracks):
    events = [{"ph": "M", "name": "process_name", "pid": process,
               "args": {"name": f"SM 0 of {kernel}"}}]
    return events + [{"ph": "M", "name": "thread_name", "pid": process, "tid": track,
                      "args": {"name": name}} for track, name in tracks.items()]


def timeline(life=LIFE):
    return named(7, "a::first_kernel<64>", {1: "block 3, warp 1", 2: "block 3, warp 0",
                                            3: "block 9, warp 0"}) + \
        named(8, "a::first_kernel_too<64>", {1: "block 0, warp 0"}) + \
        warp(7, 1) + warp(7, 2, life) + warp(7, 3) + warp(8, 1)


class WarpPhases(Case):
    def test_the_first_block_of_the_kernel_with_that_name(self):
        warps = warp_phases.warps_of(timeline(), "first_kernel")
        self.assertEqual(list(warps), [0, 1])
        self.assertEqual(warps[0][2], ("global_load", 40, 80))
        for kernel in ("second_kernel", "kernel"):
            with self.assertRaisesRegex(Refused, f"'{kernel}': 0 kernels .* must be one"):
                warp_phases.warps_of(timeline(), kernel)
        with self.assertRaisesRegex(Refused, "'first_kernel': 2 kernels"):
            warp_phases.warps_of(timeline() + named(9, "first_kernel", {}), "first_kernel")
        with self.assertRaisesRegex(Refused, "breaks off before warp 0 of block 3 ends"):
            warp_phases.warps_of(timeline(LIFE[:5]), "first_kernel")

    def test_a_block_without_tensor_cores_computes(self):
        life = (("global_load", 10), ("long_scoreboard", 50), ("wait", 4), ("fp16", 6), ("shared_load", 2),
                ("alu", 8), ("global_store", 3), ("exit", 1))
        clock, told = 0, []
        for what, clocks in life:
            told.append((what, clock, clock + clocks))
            clock += clocks
        kinds = warp_phases.kinds_of({0: told})
        self.assertIs(kinds, warp_phases.PLAIN)
        self.assertIs(warp_phases.kinds_of({0: told, 1: [("tensor", 0, 1)]}), warp_phases.FOR)
        self.assertEqual([phase for phase, *_ in warp_phases.phases(told, kinds)],
                         ["copy", "wait for global memory", "compute", "compute", "compute", "copy", "copy", None])
        self.assertEqual(warp_phases.shares({0: told}).get("wait for copies"), None)
        self.assertIn("its warps wait for global memory and at barriers 60% of", warp_phases.title_of("k", {0: told}))

    def test_a_short_wait_belongs_to_what_the_warp_gets_to(self):
        found = warp_phases.phases(warp_phases.warps_of(timeline(), "first_kernel")[0])
        self.assertEqual([of for of, *_ in found],
                         ["copy"] * 3 + ["wait for copies"] + ["multiply"] * 2 + ["softmax"] * 2 +
                         ["wait at a barrier"] + ["multiply"] * 2 + [None])
        self.assertEqual(found[3][1:], (80, 280))

    def test_a_warp_that_only_multiplies_prepares_no_copy(self):
        reader = (("alu", 10), ("long_scoreboard", 200), ("tensor", 30), ("fp32", 60),
                  ("global_store", 10), ("exit", 1))
        found = warp_phases.phases(warp_phases.warps_of(timeline(reader), "first_kernel")[0])
        self.assertEqual([of for of, *_ in found], ["multiply", "wait for copies", "multiply",
                                                    "softmax", "copy", None])
        producer = (("alu", 10), ("vote", 1), ("bulk_copy", 5), ("wait", 90), ("exit", 1))
        found = warp_phases.phases(warp_phases.warps_of(timeline(producer), "first_kernel")[0])
        self.assertEqual([of for of, *_ in found], ["copy", "copy", "copy", None, None])

    def test_each_step_has_what_takes_most_of_it(self):
        self.assertEqual(warp_phases.steps([("copy", 0, 30), ("multiply", 30, 110)], 160),
                         ["copy", "multiply", "multiply", None])

    def test_the_title_has_the_share_of_waiting(self):
        self.assertIn("k: the block takes 560 clocks; its warps wait for copies and at barriers 50% of",
                      warp_phases.title_of("k", warp_phases.warps_of(timeline(), "first_kernel")))

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_drawn(self):
        path = self.path("t.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": timeline()}, file)
        for arguments, status in ((("600", path + ":first_kernel:a_title"), 0),
                                  (("600", path + ":no_kernel:a_title"), 2),
                                  (("39", path + ":first_kernel:a_title"), 2),
                                  (("600", path), 2),
                                  (("600", self.path("none.json") + ":k:t"), 2)):
            said = io.StringIO()
            with unittest.mock.patch.object(sys, "argv", ["warp_phases", self.path("a.png"),
                                                          *arguments]), \
                    contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                self.assertEqual(warp_phases.main(), status, said.getvalue())
