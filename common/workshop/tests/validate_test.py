"""`make validate` without a GPU: a table as Nsight Compute prints it, pairs, results."""
import glob
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import unittest

from support import BENCH, ROOT, Case, copy, fixture

import ncu
import problems
import validate
from results import Lacking, Refused


def access(requests, sectors):
    return {"requests": requests, "sectors": sectors}


# What the virtual GPU counts of the launches in fixtures/ncu.csv.
TILING = {"kernel": "tiling<64>", "mangled": "_Z6tilingv", "grid": [26, 1, 1], "block": [128, 1, 1],
          "registers": 61, "global": {"load": access(1200, 38400), "store": access(50, 200)},
          "shared": {"load": {"requests": 2000, "wavefronts": 2000, "conflicts": 0}}}
COALESCING = {"kernel": "coalescing<64>", "mangled": "_Z10coalescingv", "grid": [14, 1, 1],
              "block": [128, 1, 1], "registers": 72,
              "global": {"load": access(150, 2400), "store": access(50, 200)},
              "shared": {"load": {"requests": 3000, "wavefronts": 3000, "conflicts": 0}}}


def table():
    with open(fixture("ncu.csv"), encoding="utf-8") as file:
        return file.read()


def safetensors(values, layout="e", name="out"):
    dtype, size = {"e": ("F16", 2), "f": ("F32", 4)}[layout]
    header = json.dumps({name: {"dtype": dtype, "shape": [len(values)],
                                "data_offsets": [0, size * len(values)]},
                         "__metadata__": {"by": "hand"}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}{layout}", *values)


class Table(unittest.TestCase):
    def test_launches_and_numbers(self):
        found = ncu.launches(table())
        self.assertEqual([launch["mangled"] for launch in found],
                         ["_Z6tilingv", "_Z6tilingv", "_Z10coalescingv"])
        self.assertEqual((found[0]["grid"], found[0]["block"]), ([26, 1, 1], [128, 1, 1]))
        metrics = found[2]["metrics"]
        self.assertEqual(metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"], 2400)

    def test_what_is_no_table_is_named(self):
        with self.assertRaisesRegex(Refused, "printed no table: ==ERROR== nothing"):
            ncu.launches("==PROF== x\n==ERROR== nothing\n")
        with self.assertRaisesRegex(Refused, "no table: nothing at all"):
            ncu.launches("")
        with self.assertRaisesRegex(Lacking, "may not read the GPU's counters"):
            ncu.launches("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
        with self.assertRaisesRegex(Refused, "no column 'Grid Size'"):
            ncu.launches(table().replace('"Grid Size"', '"Grid"'))
        with self.assertRaisesRegex(Refused, "no launch"):
            ncu.launches("\n".join(table().splitlines()[:5]))
        with self.assertRaisesRegex(Refused, "no size of a grid"):
            ncu.launches(table().replace("(14, 1, 1)", "(14, 1)"))

    def test_the_profiler_is_asked_for_every_metric(self):
        command = ncu.command("log", ["./chapter3", "--tokens", "197"])
        self.assertEqual(command[-3:], ["./chapter3", "--tokens", "197"])
        pattern, *named = command[command.index("--metrics") + 1].removeprefix("regex:").split(",")
        for parts, _, _ in ncu.COUNTERS.values():
            for metric in (m for alternatives in parts for some in alternatives for m in some):
                metric = metric.lstrip("-")
                if metric.startswith(("launch__", "memory_")):  # a pattern misses ncu's own
                    self.assertIn(metric, named)
                else:
                    self.assertRegex(metric, pattern)
                    self.assertNotRegex(metric + ".pct", pattern)
        self.assertIn("smsp__inst_executed_op_ldsm.sum", pattern)

    def test_the_gpu_stays_as_it_is_and_files_are_replaced(self):
        command = " ".join(ncu.command("log", ["./chapter3"]))
        for flags in ("--clock-control none", "--print-units base", "-f", "--log-file log"):
            self.assertIn(f" {flags} ", command)


class Sums(unittest.TestCase):
    LOADS = "smsp__sass_inst_executed_op_shared_ld.sum"
    LDSM, SASS_LDSM = "smsp__inst_executed_op_ldsm.sum", "smsp__sass_inst_executed_op_ldsm.sum"

    def of(self, **metrics):
        found, taken = ncu.counted("shared.load.requests", metrics)
        return found, [best for _, best in taken]

    def test_the_first_name_that_is_there_whole(self):
        both = {self.LOADS: 100.0, self.SASS_LDSM: 15.0}
        self.assertEqual(self.of(**both), (115.0, [(self.LOADS,), (self.SASS_LDSM,)]))
        self.assertEqual(self.of(**both, **{self.LDSM: 16.0}), (116.0, [(self.LOADS,), (self.LDSM,)]))
        names = [("whole",), ("part", "rest")]
        self.assertEqual(ncu.chosen(names, {"part": 1, "rest": 1}), ("part", "rest"))
        self.assertEqual(ncu.chosen(names, {"part": 1, "whole": 1}), ("whole",))

    def test_a_part_or_nothing(self):
        self.assertEqual(ncu.chosen([("whole",), ("part", "rest")], {"part": 1}), ("part",))
        self.assertEqual(self.of(**{self.LOADS: 100.0}), (100.0, [(self.LOADS,), ()]))
        self.assertEqual(self.of(**{self.LDSM: 10.0})[0], None)

    def test_asynchronous_copies_are_among_the_loads(self):
        loads = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
        copies = "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"
        self.assertEqual(ncu.counted("global.load.sectors", {loads: 100.0, copies: 40.0})[0], 100.0)

    def test_what_was_taken_and_what_is_missing_is_said(self):
        taken = validate.Taken()
        validate.compare_launch(TILING, {"metrics": {self.LOADS: 1.0, self.SASS_LDSM: 0.0}}, taken)
        text = "\n".join(taken.lines())
        self.assertIn(f"- shared.load.requests: with `{self.SASS_LDSM}`", text)
        self.assertIn("- registers: ncu did not deliver `launch__registers_per_thread`: "
                      "not compared", text)
        self.assertNotIn("local.load.sectors", text)  # not among TILING's counters
        taken = validate.Taken()
        validate.compare_launch(TILING, {"metrics": {self.LOADS: 1.0}}, taken)
        self.assertRegex("\n".join(taken.lines()),
                         r"- shared.load.requests: ncu did not deliver `smsp__inst_executed_"
                         r"op_ldsm.sum`, nor `smsp__sass_\S+`: compared without it")
        taken = validate.Taken()  # the one of its names that says less
        one = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
        validate.compare_launch(TILING, {"metrics": {one: 1.0}}, taken)
        self.assertIn(f"- shared.load.wavefronts: with `{one}`", "\n".join(taken.lines()))

    def test_conflicts_are_what_is_beyond_the_ideal(self):
        of = lambda **metrics: ncu.counted("shared.conflicts", metrics)[0]
        self.assertEqual(of(memory_l1_wavefronts_shared=5000.0,
                            memory_l1_wavefronts_shared_ideal=4800.0), 200.0)
        self.assertIsNone(of(memory_l1_wavefronts_shared=5000.0))  # half of a difference
        self.assertIsNone(of(memory_l1_wavefronts_shared_ideal=5000.0))
        shared = {"load": {"wavefronts": 3000, "conflicts": 100},
                  "store": {"wavefronts": 1000, "conflicts": 20}, "atomic": {"conflicts": 0}}
        rows = validate.compare_launch({"shared": shared}, {"metrics": {
            "memory_l1_wavefronts_shared": 4000.0, "memory_l1_wavefronts_shared_ideal": 3880.0}})
        self.assertEqual(rows, [{"counter": "shared.conflicts", "virtual": 120, "gpu": 120.0,
                                 "within": True}])
        far = validate.compare_launch({"shared": shared}, {"metrics": {
            "memory_l1_wavefronts_shared": 4100.0, "memory_l1_wavefronts_shared_ideal": 3880.0}})
        self.assertFalse(far[0]["within"])  # 100 of 4,000 wavefronts: 2.5%

    def test_wavefronts_by_instructions_before_those_of_the_hardware(self):
        load = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
        hardware = {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 900.0}
        of = lambda metrics: ncu.counted("shared.load.wavefronts", metrics)[0]
        self.assertEqual(of(hardware), 900.0)
        both = {load.format("ld"): 500.0, load.format("ldsm"): 30.0}
        self.assertEqual(of({**hardware, **both}), 530.0)
        store = {load.format("st"): 70.0}  # before Hopper there is no stmatrix
        self.assertEqual(ncu.counted("shared.store.wavefronts", store)[0], 70.0)
        self.assertEqual(ncu.counted("shared.store.wavefronts",
                                     {**store, load.format("stsm"): 5.0})[0], 75.0)


class Chips(Case):
    """Which metrics a chip has; by a stand-in, and by ncu where it is installed."""

    def ncu(self, text, status=0):
        with open(self.path("text"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(self.path("ncu"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho \"$*\" >'{self.path('asked')}'\n"
                       f"/bin/cat '{self.path('text')}'; exit {status}\n")
        os.chmod(self.path("ncu"), 0o755)

    def ask(self, *chips, path=None):
        done = subprocess.run([sys.executable, os.path.join(BENCH, "ncu.py"), *chips], text=True,
                              capture_output=True, timeout=120, check=False,
                              env={**os.environ, "PATH": path or self.folder})
        return done.returncode, done.stdout + done.stderr

    def names(self):
        return [metric.rsplit(".", 1)[0] for metric in ncu.METRICS
                if not metric.startswith(ncu.OF_NCU)]

    def test_each_counters_metric_is_named(self):
        self.ncu("Chip gh100\n------- ----\nMetric Name  Type\n" +
                 "".join(f"{name}   Counter  inst  # of\n" for name in self.names()))
        status, out = self.ask("h100", "gh100", "h200")
        self.assertEqual(status, 0, out)
        self.assertEqual(out.count("gh100:"), 1)
        self.assertIn("  shared.conflicts           memory_l1_wavefronts_shared "
                      "-memory_l1_wavefronts_shared_ideal\n", out)
        with open(self.path("asked"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "--query-metrics --chips gh100\n")

    def test_a_counter_without_a_metric_is_an_error(self):
        gone = "l1tex__t_requests_pipe_lsu_mem_global_op_st"
        self.ncu("".join(f"{name} Counter\n" for name in self.names() if name != gone))
        status, out = self.ask("a100")
        self.assertEqual(status, 1)
        self.assertIn("  global.store.requests      no metric\n", out)
        self.assertIn("1 counters have no metric", out)

    def test_bad_chips_no_ncu_and_no_chip_are_named(self):
        self.ncu("==ERROR== Invalid chip x1\n", 1)
        self.assertEqual(self.ask("x1"), (2, "x1:\nncu: ncu --query-metrics --chips x1: "
                                          "==ERROR== Invalid chip x1\n"))
        self.assertEqual(self.ask("h100", path=self.path("none"))[0], 3)
        self.assertEqual(self.ask()[0], 2)
        self.assertEqual(sorted(ncu.CHIPS), sorted(
            file.split(".")[0] for file in
            os.listdir(os.path.join(ROOT, "common", "vgpu", "profile", "devices"))))

    @unittest.skipUnless(shutil.which("ncu"), "no ncu here: what the chips have is not asked")
    def test_the_chips_have_the_metrics(self):
        # An ncu knows the chips of its time: gb202 is in none before 2025.
        here = [name for name in ncu.CHIPS if self.ask(name, path=os.environ["PATH"])[0] != 2]
        self.assertIn("h100", here)
        status, out = self.ask(*here, path=os.environ["PATH"])
        self.assertEqual(status, 0, out)
        there = set().union(*(ncu.known(ncu.CHIPS[name]) for name in here))
        self.assertEqual([name for name in self.names() if name not in there], [])


class Pairs(unittest.TestCase):
    def test_each_kind_of_launch_once(self):
        pairs, alone = validate.paired([TILING, COALESCING], ncu.launches(table()))
        self.assertEqual(alone, [])
        self.assertEqual([name for name, _, _ in pairs], ["tiling<64>", "coalescing<64>"])
        self.assertEqual(pairs[1][2]["metrics"]["launch__registers_per_thread"], 72)

    def test_a_second_launch_that_counts_otherwise_is_a_pair_of_its_own(self):
        other = copy.deepcopy(TILING)
        other["global"]["load"]["sectors"] = 4
        pairs, _ = validate.paired([TILING, other, COALESCING], ncu.launches(table()))
        self.assertEqual([name for name, _, _ in pairs],
                         ["tiling<64>", "tiling<64>, launch 2", "coalescing<64>"])

    def test_a_launch_of_one_side_alone_is_named(self):
        pairs, alone = validate.paired([TILING], ncu.launches(table()))
        self.assertEqual([name for name, _, _ in pairs], ["tiling<64>"])
        self.assertEqual(alone, [("_Z10coalescingv (grid 14x1x1, block 128x1x1)", 0, 1)])
        moved = {**COALESCING, "grid": [15, 1, 1]}
        pairs, alone = validate.paired([TILING, COALESCING, moved], ncu.launches(table()))
        self.assertEqual([name for name, _, _ in pairs], ["tiling<64>", "coalescing<64>"])
        self.assertEqual(alone, [("coalescing<64> (grid 15x1x1, block 128x1x1)", 1, 0)])

    def net(self, *names):
        """Launches of a made-up net: P and F are one kernel with one grid, and count otherwise."""
        launches = []
        for i, name in enumerate(names):
            of = copy.deepcopy(TILING)
            of["mangled"] = of["kernel"] = "linear" if name in "PF" else name
            of["global"]["load"]["sectors"] = ord(name)
            launches.append({**of, "is": name, "number": i})
        return launches

    def pairs_of(self, ours, theirs):
        pairs, alone = validate.paired(self.net(*ours), self.net(*theirs))
        self.assertEqual(alone, [])
        return [(a["is"], b["is"]) for _, a, b in pairs], [name for name, _, _ in pairs]

    def test_launches_of_one_kind_are_told_apart_by_the_order_of_all(self):
        net = "aPbFaPbFh"
        alike = [("a", "a"), ("P", "P"), ("F", "F"), ("b", "b"), ("h", "h")]
        for theirs in (net, "aaaPPPbbbFFFaaaPPPbbbFFFhhh",  # each one again
                       net * 3,                             # in whole rounds
                       "aaPPbbFFaaPPbbFFhh" + net * 2):
            pairs, names = self.pairs_of(net, theirs)
            self.assertEqual(pairs, alike, theirs)
            self.assertEqual(names, ["a", "linear", "linear, launch 2", "b", "h"])
        # One of each: what a prediction needs.
        self.assertEqual(self.pairs_of("aPbFh", net)[0], alike)
        # What follows the net belongs to what follows the last round.
        pairs, _ = validate.paired(self.net(*"aPbh", *"P"), self.net(*"aPbh" * 3, *"P"))
        self.assertEqual([b["number"] for _, a, b in pairs if a["is"] == "P"], [9])
        last = self.net(*"aPbhF"), self.net(*"aPbhaPbhF")
        self.assertEqual([b["is"] for _, a, b in validate.paired(*last)[0]], list("aPFbh"))

    def test_another_order_pairs_what_it_can(self):
        pairs, alone = validate.paired(self.net(*"ab"), self.net(*"ba"))
        self.assertEqual([(a["is"], b["is"]) for _, a, b in pairs], [("a", "a"), ("b", "b")])
        self.assertEqual(alone, [])

    def rows(self, ours, launch):
        return {row["counter"]: row for row in
                validate.compare_launch(ours, ncu.launches(table())[launch])}

    def test_counters_within_their_bounds(self):
        rows = self.rows(TILING, 0)
        self.assertEqual(set(rows), {
            "global.load.requests", "global.load.sectors", "shared.load.requests",
            "shared.load.wavefronts", "shared.load.conflicts", "registers"})
        self.assertTrue(all(row["within"] for row in rows.values()))
        rows = self.rows(COALESCING, 2)
        # 30 of 3030 wavefronts are 1%.
        self.assertEqual(rows["global.load.sectors"]["gpu"], 2400)
        self.assertTrue(all(row["within"] for row in rows.values()))

    def test_counters_beyond_their_bounds(self):
        for path, value in (("registers", 62), ("global.load.requests", 1201),
                            ("global.load.sectors", 38399), ("shared.load.wavefronts", 2041),
                            ("shared.load.conflicts", 41)):
            with self.subTest(path=path):
                ours = copy.deepcopy(TILING)
                place = ours
                *names, last = path.split(".")
                for name in names:
                    place = place[name]
                place[last] = value
                beyond = [name for name, row in self.rows(ours, 0).items() if not row["within"]]
                self.assertEqual(beyond, [path])


class Results(Case):
    def compared(self, ours, theirs, layout="e"):
        for name, values in (("a", ours), ("b", theirs)):
            with open(self.path(name), "wb") as file:
                file.write(safetensors(values, layout))
        return validate.compare_results(validate.tensors(self.path("a")),
                                        validate.tensors(self.path("b")))

    def test_bits_roundings_and_errors(self):
        self.assertEqual(self.compared([1.0, -2.0], [1.0, -2.0]),
                         ("all 2 numbers of the result have the same bits", True))
        words, within = self.compared([1.0, 2.0], [1.0, 2.0 + 2 ** -9])
        self.assertEqual((words, within), ("1 of 2 numbers differ, by at most 0.002", True))
        self.assertFalse(self.compared([1.0, 2.0], [1.0, 2.01])[1])
        self.assertFalse(self.compared([1.0, 2.0], [1.0, math.nan])[1])
        self.assertTrue(self.compared([1.0, math.nan], [1.0, math.nan])[1])
        self.assertTrue(self.compared([1.0, 2.0], [1.0, 2.0005], "f")[1])

    def test_what_is_no_result_is_named(self):
        with self.assertRaisesRegex(Refused, "other tensors or sizes"):
            self.compared([1.0], [1.0, 2.0])
        with self.assertRaisesRegex(Refused, "empty"):
            self.compared([], [])
        for content in (b"", b"\x10\x00\x00\x00\x00\x00\x00\x00{", safetensors([1.0])[:9]):
            with open(self.path("c"), "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(Refused, "no safetensors file"):
                validate.tensors(self.path("c"))


class Whole(Case):
    """The script, with an ncu, an nvidia-smi and programs that stand in."""

    def write(self, name, content, program=False):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        if program:
            os.chmod(path, 0o755)

    def setUp(self):
        super().setUp()
        self.write("bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 580.1, 1, 1, 1, 1, 1, P0, 9'\n",
                   True)
        # ncu ... --log-file FILE ... PROGRAM FLAGS
        self.write("bin/ncu", f"#!/bin/sh\nwhile [ $1 != --log-file ]; do shift; done\n"
                              f"/bin/cp '{fixture('ncu.csv')}' $2; shift 4; exec \"$@\"\n", True)
        self.write("result", safetensors([1.0, 2.0]))
        copy_result = f"while [ $# -gt 1 ]; do shift; done; /bin/cp '{self.path('result')}' $1\n"
        self.write("cuda/chapter3", "#!/bin/sh\n" + copy_result, True)
        self.write("counted", json.dumps([TILING, COALESCING]))
        self.write("vgpu/chapter3", "#!/bin/sh\n[ $VGPU_DEVICE = h200 ] || exit 9\n"
                   f"/bin/cp '{self.path('counted')}' ${{VGPU_PROFILE#json:}}\n" + copy_result,
                   True)

    def validate(self, *flags, gpu=True, only=("--only", "3"), times=("--counters",)):
        environment = {**os.environ, "PATH": self.path("bin") if gpu else self.path("nothing")}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        done = subprocess.run(
            [sys.executable, os.path.join(BENCH, "validate.py"), "--record", self.path("record"),
             *only, "--table", self.path("table.md"), *times, *flags], text=True,
            capture_output=True, timeout=300, check=False, env=environment)
        return done.returncode, done.stdout + done.stderr

    def record(self, gpu=True):
        return self.validate("--cuda", self.path("cuda"), "--vgpu", self.path("vgpu"), gpu=gpu)

    def test_recorded_and_compared(self):
        status, out = self.record()
        self.assertEqual(status, 0, out)
        with open(self.path("table.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("NVIDIA H200", text)
        self.assertIn("all 2 numbers of the result have the same bits", text)
        self.assertIn("| coalescing<64> | shared.load.wavefronts | 3,000 | 3,030 | -30 (-1.0%) | |",
                      text)
        self.assertIn("13 comparisons, 0 beyond", text)
        self.assertEqual(self.validate()[0], 0)  # what was recorded is enough

    def test_each_side_on_a_machine_of_its_own(self):
        status, out = self.validate("--cuda", self.path("cuda"))
        self.assertEqual(status, 0, out)
        self.assertIn("to be compared with --vgpu", out)
        self.assertFalse(os.path.exists(self.path("record/chapter3.json")))
        status, out = self.validate("--vgpu", self.path("vgpu"), gpu=False, only=())
        self.assertEqual(status, 0, out)
        self.assertIn("13 comparisons, 0 beyond", out)
        self.write("record/chapter3.vgpu.safetensors", safetensors([1.0, 3.0]))  # of an earlier run
        self.write("vgpu/chapter3", "#!/bin/sh\nexit 1\n", True)
        status, out = self.validate("--vgpu", self.path("vgpu"), gpu=False, only=())
        self.assertEqual(status, 2, out)
        self.assertIn("nothing recorded", out)

    def test_what_the_minutes_do_not_hold_is_named(self):
        status, out = self.validate("--cuda", self.path("cuda"), "--minutes", "1e-9")
        self.assertEqual(status, 0, out)
        self.assertIn("chapter 3: left out, 1e-09 minutes are over", out)
        self.assertFalse(os.path.exists(self.path("record/chapter3.csv")))

    def test_a_difference_fails(self):
        self.record()
        other = copy.deepcopy(TILING)
        other["global"]["load"]["sectors"] = 4
        self.write("record/chapter3.json", json.dumps([other, COALESCING]))
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn("| tiling<64> | global.load.sectors | 4 | 38,400 | -38,396 (-100.0%) "
                      "| beyond |", out)
        self.write("record/chapter3.json", json.dumps([TILING, COALESCING]))
        self.write("record/chapter3.cuda.safetensors", safetensors([1.0, 3.0]))
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn("**beyond the bound**", out)

    def test_a_launch_of_one_side_alone_is_a_line(self):
        self.write("counted", json.dumps([TILING, {**COALESCING, "grid": [15, 1, 1]}]))
        status, out = self.record()
        self.assertEqual(status, 1, out)
        self.assertIn("| tiling<64> | registers | 61 | 61 | 0 | |", out)
        self.assertIn("| coalescing<64> (grid 15x1x1, block 128x1x1) | launches | 1 | 0 | +1 "
                      "| beyond |", out)
        self.assertIn("| _Z10coalescingv (grid 14x1x1, block 128x1x1) | launches | 0 | 1 "
                      "| -1 (-100.0%) | beyond |", out)
        self.assertIn(", 2 beyond their bounds", out)

    def test_a_chapter_that_fails_is_no_end_of_the_others(self):
        self.write("cuda/chapter5", "#!/bin/sh\necho 'error: no such thing' >&2; exit 1\n", True)
        self.write("vgpu/chapter5", "#!/bin/sh\nexit 0\n", True)
        self.write("record/chapter5.csv", table())  # of an earlier run: does not count
        status, out = self.validate("--cuda", self.path("cuda"), "--vgpu", self.path("vgpu"),
                                    "--only", "5,3")
        self.assertEqual(status, 1, out)
        self.assertIn("chapter 5 under ncu: exit status 1: error: no such thing", out)
        self.assertIn("**Not compared**: nothing recorded", out)
        self.assertIn("| tiling<64> | registers | 61 | 61 | 0 | |", out)
        self.assertIn("14 comparisons, 1 beyond", out)

    def test_the_tables_name_has_the_gpus(self):
        self.record()
        # All that was recorded, on any machine.
        status, out = self.validate("--table", self.path("{gpu}/table.md"), gpu=False, only=())
        self.assertEqual(status, 0, out)
        self.assertTrue(os.path.exists(self.path("nvidia_h200/table.md")))

    def test_what_is_missing_is_named(self):
        status, out = self.record(gpu=False)
        self.assertEqual(status, 3)
        self.assertIn("no nvidia-smi", out)
        os.remove(self.path("bin/ncu"))
        status, out = self.record()
        self.assertEqual(status, 3)
        self.assertIn("no ncu here", out)
        self.write("bin/ncu", "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'; exit 1\n", True)
        status, out = self.record()
        self.assertEqual(status, 3)
        self.assertIn("may not read the GPU's counters", out)
        self.write("bin/nvidia-smi", "#!/bin/sh\necho 'GH200, 580.1, 1, 1, 1, 1, 1, P0, 9'\n", True)
        status, out = self.record()
        self.assertEqual(status, 3)
        self.assertIn("cannot be a GH200; it can be: a100, a100_40gb, a6000, h100, h200", out)
        self.assertEqual(self.validate()[0], 2)  # nothing was recorded

    def test_bad_usage_is_named(self):
        for flags, words in ((["--only", "three"], "chapters, as 3,6"),
                             (["--only", "3,99"], "chapter 99 has no line"),
                             (["--minutes", "-1"], "--minutes -1: a number above 0")):
            status, out = self.validate(*flags)
            self.assertEqual(status, 2)
            self.assertIn(words, out)

    @unittest.skipUnless(os.environ.get("BENCH_PROGRAMS"), "BENCH_PROGRAMS: of the virtual GPU")
    def test_every_chapters_launches_find_their_pairs(self):
        programs = os.path.join(ROOT, os.environ["BENCH_PROGRAMS"])
        chapters = ",".join(str(n) for n in problems.VALIDATED
                            if os.path.exists(os.path.join(programs, f"chapter{n}")))
        self.write("bin/ncu", f"#!/bin/sh\nexport BENCH='{BENCH}'\n"
                   f"exec '{sys.executable}' '{fixture('ncu_of_vgpu.py')}' \"$@\"\n", True)
        flags = ("--cuda", programs, "--vgpu", programs, "--only", chapters)
        status, out = self.validate(*flags)
        self.assertEqual(status, 0, out)
        self.assertNotIn("beyond |", out)
        self.assertEqual(out.count("of the result have the same bits"), chapters.count(",") + 1)
        self.assertNotIn("did not deliver", out)
        self.assertIn("- shared.load.requests: with `smsp__sass_inst_executed_op_ldsm.sum`", out)
        self.assertRegex(
            out, r"\| naive_attention::scores_kernel \| global.load.sectors \| [\d,]{4,} \|")
        os.environ["COUNT_MORE"] = "launch__registers_per_thread"
        self.addCleanup(os.environ.pop, "COUNT_MORE")
        status, out = self.validate(*flags[:4], "--only", "3")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"\| registers \| \d+ \| \d+ \| -1 \(-\d\.\d%\) \| beyond \|")

    @unittest.skipUnless(os.environ.get("BENCH_PROGRAMS"), "BENCH_PROGRAMS: of the virtual GPU")
    def test_times_of_a_chapter_are_recorded_and_compared(self):
        programs = os.path.join(ROOT, os.environ["BENCH_PROGRAMS"])
        self.write("bin/ncu", f"#!/bin/sh\nexport BENCH='{BENCH}'\n"
                   f"exec '{sys.executable}' '{fixture('ncu_of_vgpu.py')}' \"$@\"\n", True)
        flags = ("--cuda", programs, "--vgpu", programs, "--json", self.path("{gpu}.json"))
        status, out = self.validate(*flags, times=())
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"Predicted times of [23] launches: mean error 5%, worst 5%")
        with open(self.path("nvidia_h200.json"), encoding="utf-8") as file:
            [chapter] = json.load(file)["chapters"]
        quantities = {row["quantity"] for row in chapter["times"]["rows"]}
        for quantity in ("time, µs", "machine instructions", "issue slots", "pipe fma",
                         "pipe lsu, instructions", "stall long_scoreboard"):
            self.assertIn(quantity, quantities)

    @unittest.skipUnless(os.environ.get("BENCH_PROGRAMS"), "BENCH_PROGRAMS: of the virtual GPU")
    def test_recorded_kernels_have_the_names_of_todays(self):
        programs = os.path.join(ROOT, os.environ["BENCH_PROGRAMS"])
        tables = glob.glob(os.path.join(ROOT, "data", "results", "*", "recorded", "chapter*.csv"))
        self.assertTrue(tables)
        for path in tables:
            program = os.path.join(programs, os.path.basename(path).split(".")[0])
            if not os.path.exists(program):
                continue
            with open(program, "rb") as file:
                code = file.read()
            with open(path, encoding="utf-8") as file:
                names = {launch["mangled"] for launch in ncu.launches(file.read(), ())}
            unknown = sorted(name for name in names
                             if not name.startswith("_ZN3cub") and name.encode() + b"\0" not in code)
            self.assertEqual(unknown, [], path)

    def test_names_of_gpus(self):
        for name, key in (("NVIDIA H100 80GB HBM3", "h100"), ("Tesla T4", "t4"),
                          ("NVIDIA GeForce RTX 4090", "rtx4090"),
                          ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tis"),
                          ("NVIDIA GeForce RTX 5090", "rtx5090"), ("NVIDIA RTX A6000", "a6000"),
                          ("NVIDIA A100-SXM4-80GB", "a100")):
            self.assertEqual(validate.virtual_device(name), key)
        for name in ("NVIDIA GeForce RTX 4070 Ti", "NVIDIA RTX 6000 Ada Generation"):
            self.assertRaises(validate.Lacking, validate.virtual_device, name)
