"""The driver of `make bench`, with programs and an nvidia-smi that stand in for those of a GPU.

Longer than 600 lines: all cases share these stand-ins.
"""
import dataclasses
import glob
import json
import math
import os
import random
import shutil
import subprocess
import sys
import unittest

from support import BENCH, ROOT, Case, contextlib, fixture, io

import machine
import measure
import peering
import problems
import ratios
from results import Lacking, Refused

# Idle when it is asked once; with --loop-ms at work after a while.
SMI = """#!/bin/sh
say() {{ echo "NVIDIA H200, {driver}, $1, 3201, 1980, 41, $2, P0, $3"; }}
case "$*" in
  *--loop-ms=*) say 345 80.5 0; say 1900 650 97; say 1755 690 100; printf 'NVIDIA H2'
    : >'{folder}/watching'
    exec '{python}' -c 'import time; time.sleep(60)' ;;
  *) /bin/rm -f '{folder}/watching'; say 1980 250.5 0 ;;
esac
"""
TABLE = [{"chapter": 4, "name": "197 tokens", "flags": "--tokens 197"},
         {"chapter": 4, "name": "577 tokens", "flags": "--tokens 577"},
         {"chapter": 6, "name": "577 tokens", "flags": "--tokens 577", "peers": "attention"}]


class Driver(Case):
    def setUp(self):
        super().setUp()
        for chapter in ("chapter4", "chapter6"):
            shutil.copy(fixture("program.py"), self.path(chapter))
            os.chmod(self.path(chapter), 0o755)
        os.mkdir(self.path("bin"))
        os.symlink(sys.executable, self.path("bin/python3"))
        self.smi()
        self.write("table.json", json.dumps(TABLE))

    def smi(self, driver="580.1"):
        self.write("bin/nvidia-smi", SMI.format(driver=driver, python=sys.executable,
                                                folder=self.folder))
        os.chmod(self.path("bin/nvidia-smi"), 0o755)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def measure(self, *flags, gpu=True):
        """Exit status, output; what the programs were called with since the last time."""
        if os.path.exists(self.path("log")):
            os.remove(self.path("log"))
        environment = dict(os.environ)
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment["PATH"] = self.path("bin") if gpu else self.path("nothing")
        done = subprocess.run(
            [sys.executable, os.path.join(BENCH, "measure.py"), "--programs", self.folder,
             "--results", self.path("out"), "--table", self.path("table.json"), *flags], text=True,
            capture_output=True, timeout=120, check=False, env=environment)
        calls = []
        if os.path.exists(self.path("log")):
            with open(self.path("log"), encoding="utf-8") as file:
                calls = file.read().splitlines()
        return done.returncode, done.stdout + done.stderr, calls

    def result(self, chapter):
        with open(self.path(f"out/chapter{chapter}.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_each_problem_is_measured_and_kept_with_its_circumstances(self):
        status, out, calls = self.measure()
        self.assertEqual(status, 0, out)
        # What is worth most first.
        self.assertEqual(calls, ["chapter6 577 5 50", "chapter4 197 5 50", "chapter4 577 5 50"])
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["chapter4.json", "chapter6.json"])
        result = self.result(4)
        self.assertEqual(result["driver"], "580.1")
        self.assertEqual(result["device"]["name"], "NVIDIA H200")
        self.assertEqual([run["name"] for run in result["runs"]], ["197 tokens", "577 tokens"])
        run = result["runs"][1]
        self.assertEqual(run["clocks"]["before"]["sm_mhz"], 1980)
        self.assertEqual(run["clocks"]["after"]["power_w"], 250.5)
        during = run["clocks"]["during"]
        self.assertEqual((during["samples"], during["busy"]["samples"]), (3, 2))
        self.assertEqual(during["sm_mhz"], {"min": 345, "max": 1900})
        self.assertEqual(during["busy"]["sm_mhz"], {"min": 1755, "max": 1900})
        self.assertEqual(during["busy"]["power_w"], {"min": 650, "max": 690})
        self.assertEqual(run["commit"], "abc")
        kernel = run["kernels"][1]
        self.assertEqual(kernel["memory_bytes"], 8 * 32 * 12 * 577 * 64 + 1024)
        self.assertEqual((kernel["median_us"], kernel["std_us"]), (200.0, 2.0))
        # 41 us of tensor cores, see the floors below; "before" is of another chapter.
        self.assertEqual(kernel["floor"], "tensor")
        self.assertEqual(kernel["graph_us"], 150.0)
        self.assertIn("after*              200.0 us  in a graph 150.0  min", out)
        self.assertIn("before              400.0 us  min", out)
        self.assertIn("not in a CUDA graph: it waits", out)
        self.assertIn("* a stage among others", out)
        self.assertAlmostEqual(kernel["share_of_floor"], 41.4 / 200, 3)
        self.assertGreater(kernel["kernel_lines"], 40)
        self.assertNotIn("kernel_lines", run["kernels"][0])

    def test_a_second_call_measures_what_is_missing(self):
        self.measure("--only", "chapter4 197")
        status, out, calls = self.measure()
        self.assertEqual(calls, ["chapter6 577 5 50", "chapter4 577 5 50"])
        self.assertIn("chapter 4, 197 tokens: measured before, kept", out)
        self.assertEqual((status, self.measure()[2]), (0, []))
        self.assertEqual(len(self.measure("--fresh")[2]), 3)

    def test_another_program_driver_or_problem_is_measured_anew(self):
        self.measure()
        with open(self.path("chapter4"), "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.assertEqual(self.measure()[2], ["chapter4 197 5 50", "chapter4 577 5 50"])
        self.smi("590.2")
        status, out, calls = self.measure()
        self.assertEqual((status, len(calls)), (0, 3))
        self.assertIn("begun anew", out)
        self.assertEqual(self.result(4)["driver"], "590.2")
        self.assertEqual(len(self.result(4)["runs"]), 2)
        table = [{**TABLE[0], "flags": "--tokens 31"}, *TABLE[1:]]
        self.write("table.json", json.dumps(table))
        self.assertEqual(self.measure()[2], ["chapter4 31 5 50"])
        self.assertEqual([run["flags"] for run in self.result(4)["runs"]],
                         ["--tokens 31", "--tokens 577"])

    def test_killed_in_the_middle_it_goes_on_from_there(self):
        self.write("die", "--tokens 197")
        status, _, calls = self.measure()
        self.assertEqual((status, len(calls)), (-9, 2))
        self.assertEqual([run["name"] for run in self.result(6)["runs"]], ["577 tokens"])
        os.remove(self.path("die"))
        status, _, calls = self.measure()
        self.assertEqual((status, calls), (0, ["chapter4 197 5 50", "chapter4 577 5 50"]))
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["chapter4.json", "chapter6.json"])

    def test_a_damaged_result_is_measured_anew(self):
        self.measure("--only", "chapter4")
        self.write("out/chapter4.json", '{"chapter": "03_coal')
        status, out, calls = self.measure("--only", "chapter4")
        self.assertEqual((status, len(calls)), (0, 2))
        self.assertIn("not JSON", out)

    def test_what_is_wrong_or_lacking_is_named_and_not_kept(self):
        self.write("wrong", "--tokens 197")
        status, out, calls = self.measure("--only", "chapter4")
        self.assertEqual((status, len(calls)), (1, 2))
        self.assertIn("chapter 4, 197 tokens: not measured", out)
        self.assertEqual([run["name"] for run in self.result(4)["runs"]], ["577 tokens"])
        os.remove(self.path("wrong"))
        self.write("lacking", "--tokens 197")
        status, out, calls = self.measure("--only", "chapter4")
        self.assertEqual((status, len(calls)), (1, 1))
        self.assertIn("100 GiB are needed", out)

    def test_without_a_gpu_it_says_so(self):
        status, out, calls = self.measure(gpu=False)
        self.assertEqual((status, calls), (3, []))
        self.assertIn("no nvidia-smi", out)
        self.write("bin/nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n")
        status, out, _ = self.measure()
        self.assertEqual(status, 3)
        self.assertIn("No devices were found", out)

    def test_bad_usage_is_named(self):
        for flags, words in ((["--only", "chapter9"], "no problem has the words"),
                             (["--iterations", "49"], "at least 50"),
                             (["--table", self.path("none")], "no table of problems"),
                             (["--rounds", "0"], "--rounds 0: at least 1"),
                             (["--minutes", "-1"], "--minutes -1: a number above 0"),
                             (["--minutes", "nan"], "--minutes nan: a number above 0"),
                             (["--programs", self.path("bin")], "make chapter6 builds it")):
            status, out, _ = self.measure(*flags)
            self.assertEqual(status, 2, out)
            self.assertIn(words, out)

    def test_peers_take_turns_with_the_program(self):
        # An interpreter that starts the stand-in whatever script it is given.
        self.write("bin/torch", f"#!/bin/sh\nexec '{sys.executable}' '{fixture('peers.py')}'\n")
        os.chmod(self.path("bin/torch"), 0o755)
        self.measure()
        status, out, calls = self.measure("--peers", self.path("bin/torch"))
        self.assertEqual(status, 0, out)
        self.assertEqual(calls, 7 * ["chapter6 577 5 50"])  # those without peers are kept
        run = self.result(6)["runs"][0]
        self.assertEqual(run["rounds"], 7)
        self.assertEqual(run["kernels"][1]["rounds_us"], 7 * [200.0])
        self.assertEqual(run["versions"]["torch"], "9.9")
        cudnn, wrong, flash = run["peers"]
        self.assertEqual((cudnn["library"], cudnn["by"]), ("cuDNN 9", "PyTorch"))
        self.assertEqual(cudnn["rounds_us"], [100.0 + 20 * i for i in range(7)])
        self.assertEqual(cudnn["median_us"], 160.0)
        best = run["best"]
        self.assertEqual((best["peer"], best["kernel"]), ("cudnn", "after"))
        for ratio, expected in zip(best["ratios"], (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)):
            self.assertAlmostEqual(ratio, expected)
        self.assertAlmostEqual(best["ratio"], 0.8)
        self.assertEqual(best["interval"], [0.5, 1.1])  # with seven rounds: least and most
        # In a graph against in a graph: 90, 108 ... beside 150.
        graphs = run["best_in_graphs"]
        self.assertAlmostEqual(graphs["ratio"], 0.9 * 160 / 150)
        self.assertEqual((graphs["kernel"], graphs["kernel_us"]), ("after", 150.0))
        self.assertIn("wrong: relative L2 5.0e-01", wrong["lacking"])
        self.assertEqual(flash["lacking"], "no such backend")
        self.assertIn("after is 0.80 times as fast (95%: 0.50 to 1.10) as the fastest peer in a "
                      "stream, cudnn\n", out)
        self.assertIn("after is 0.96 times as fast (95%: 0.60 to 1.32) as the fastest peer in CUDA "
                      "graphs, cudnn\n", out)
        self.assertIn("PyTorch's side: torch 9.9, flash_attn_3 is not there", out)
        self.assertEqual(self.measure("--peers", self.path("bin/torch"))[2], [])

    def test_what_does_not_fit_into_the_time_is_left_for_the_next_call(self):
        status, out, calls = self.measure("--minutes", "0.000001")
        self.assertEqual((status, calls), (1, []), out)
        self.assertIn("left out", out)
        self.assertIn("0 of 3 problems are measured", out)
        self.assertIn("3 did not fit into 1e-06 minutes: the same call goes on", out)
        status, out, calls = self.measure("--minutes", "30")
        self.assertEqual((status, len(calls)), (0, 3), out)
        self.assertIn("3 of 3 problems to measure, predicted: ", out)
        self.assertIn("chapter 4, 577 tokens (3 of 3; about ", out)

    def test_what_was_measured_before_predicts_how_long_it_takes(self):
        self.measure()
        for chapter in (4, 6):
            result = self.result(chapter)
            for run in result["runs"]:
                run["seconds"] = 120.0
            self.write(f"out/chapter{chapter}.json", json.dumps(result))
            with open(self.path(f"chapter{chapter}"), "a", encoding="utf-8") as file:
                file.write("# changed\n")
        self.assertIn("3 of 3 problems to measure, predicted: 6 min", self.measure()[1])

    def test_a_peer_that_fails_does_not_cost_the_chapters_own_times(self):
        self.write("bin/torch", f"#!/bin/sh\nexec '{sys.executable}' '{fixture('peers.py')}'\n")
        os.chmod(self.path("bin/torch"), 0o755)
        self.write("table.json", json.dumps([
            {"chapter": 6, "name": name, "flags": "--tokens 577", "peers": peers}
            for name, peers in (("refused", "weather"), ("gone", "exit"), ("kept", "attention"))]))
        status, out, _ = self.measure("--peers", self.path("bin/torch"))
        self.assertEqual(status, 1, out)
        refused, gone, kept = self.result(6)["runs"]
        self.assertEqual(refused["no_peers"], "weather")
        self.assertIn("ended with 7", gone["no_peers"])
        self.assertEqual(len(kept["peers"]), 3)  # by a process started again
        for run in (refused, gone):
            self.assertEqual([line["median_us"] for line in run["kernels"]], [400.0, 200.0])
            self.assertNotIn("peers", run)
        self.assertIn("refused: measured without PyTorch: weather", out)
        self.assertIn("3 of 3 problems are measured", out)
        self.assertIn("2 of them without PyTorch", out)
        # They are tried again.
        self.assertEqual(len(self.measure("--peers", self.path("bin/torch"))[2]), 2)

    def test_without_torch_it_says_so(self):
        self.write("bin/no_torch", f"#!/bin/sh\nexec '{sys.executable}' -S -E \"$@\"\n")
        os.chmod(self.path("bin/no_torch"), 0o755)
        status, out, calls = self.measure("--peers", self.path("bin/no_torch"))
        self.assertEqual((status, calls), (3, []), out)
        self.assertIn("PEERS=torch needs", out)

    @unittest.skipUnless(os.environ.get("BENCH_PROGRAMS"), "BENCH_PROGRAMS: of the virtual GPU")
    def test_the_real_programs_on_the_virtual_gpu(self):
        programs = os.path.join(ROOT, os.environ["BENCH_PROGRAMS"])
        small = "--batch 2 --heads 1 --tokens 17 --head-dim 32"
        self.write("table.json", json.dumps(
            [{"chapter": n, "name": "small", "flags": small} for n in (1, 3)] +
            [{"chapter": 7, "name": "small", "flags": "--batch 1 --queries 9 --channels 16"}]))
        status, out, _ = self.measure("--virtual", "--programs", programs, "--warmup", "1",
                                      "--iterations", "3")
        self.assertEqual(status, 0, out)
        naive = self.result(1)["runs"][0]["kernels"]
        self.assertEqual([line["name"] for line in naive],
                         ["scores", "softmax", "values", "attention"])
        self.assertEqual(naive[3]["scratch_bytes"], 4 * 2 * 17 * 17)
        for kernel in naive:
            self.assertEqual(kernel["samples"], 3)
            self.assertGreaterEqual(kernel["mean_us"], kernel["min_us"])
            self.assertGreater(kernel["std_us"], 0)
        for kernel in self.result(7)["runs"][0]["kernels"]:
            self.assertIn("kernel_lines", kernel)
        # The programs of the virtual GPU are no measurement of a GPU.
        status, out, _ = self.measure("--programs", programs, "--fresh")
        self.assertEqual(status, 1)
        self.assertIn("ran on the virtual GPU", out)


class Floors(unittest.TestCase):
    """Against the table of floors at batch 32, 12 heads of 64, worked out for an H200."""

    def run_of(self, **problem):
        return {"problem": problem, "device": {"sm_count": 132}, "clocks": {"peak_sm_hz": 1.98e9}}

    def test_attention(self):
        for tokens, tensor, dram in ((197, 4.8, 9.0), (577, 41, 26), (1025, 131, 48)):
            elements = 32 * 12 * tokens * 64
            line = {"flops": 4.0 * elements * tokens, "bytes": 8.0 * elements}
            self.assertAlmostEqual(1e6 * line["flops"] / 790e12 / tensor, 1, delta=0.03)
            self.assertAlmostEqual(1e6 * line["bytes"] / 4.3e12 / dram, 1, delta=0.03)
            line["bound"] = {"name": "tensor", "us": 1e6 * line["flops"] / 790e12}
            found = problems.floors(
                self.run_of(batch=32, heads=12, tokens=tokens, head_dim=64), line)
            # 16 exponentials a clock of 132 SMs at 1.98 GHz
            exponentials = 32 * 12 * tokens ** 2 / (16 * 132 * 1980)
            self.assertEqual(found, {"tensor": line["bound"]["us"], "exponentials": exponentials})

    def test_deformable_attention_through_the_l1(self):
        run = self.run_of(batch=48, queries=15422, heads=1, levels=4, points=8, channels=32)
        line = {"bound": {"name": "DRAM", "us": 58.0}, "flops": 6.0642e9}
        found = problems.floors(run, line)
        self.assertAlmostEqual(found["L1"], 6.064e9 / (128 * 132 * 1980), delta=0.1)  # 0.18 ms
        self.assertEqual(found["DRAM"], 58.0)
        # A stage of the gradients that sorts samples, or adds up what others have left.
        self.assertEqual(problems.floors(run, {**line, "flops": 5e6}), {"DRAM": 58.0})

    def test_an_unknown_device_has_no_floor(self):
        run = self.run_of(tokens=1)
        run["device"]["sm_count"] = 0
        self.assertEqual(problems.floors(run, {"bound": {"name": "unknown", "us": None}}), {})


class Code(Case):
    def test_lines_of_a_kernel_with_what_it_includes_of_its_chapter(self):
        folder = self.path("chapters/08_two_steps")
        os.makedirs(folder)
        for name, text in (("fused.cuh", '// head\n#pragma once\n#include "tile.cuh"\n'
                                         '#include "../other/kernel.cuh"\n\nint a; // b\n'),
                           ("tile.cuh", "/* a\n b */\nint c;\nint d;\n"),
                           ("three_passes.cuh", '#include "tile.cuh"\n#include "fused.cuh"\n')):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        lines = lambda kernel: problems.kernel_lines(8, kernel, self.folder)
        self.assertEqual(lines("fused"), 4 + 2)
        self.assertEqual(lines("fused, tf32") or 0, 0)
        self.assertEqual(lines("fused tf32"), 4 + 2)
        self.assertEqual(lines("three passes"), 2 + 4 + 2)
        self.assertIsNone(lines("other"))
        self.assertIsNone(problems.kernel_lines(9, "fused", self.folder))

    def test_the_chapters_have_lines(self):
        for chapter in problems.LADDER:
            self.assertGreater(problems.kernel_lines(chapter, "4 rows a warp"), 20)

    def test_a_step_beside_kernel_cuh_has_its_own_lines(self):
        folder = self.path("chapters/09_two_steps")
        os.makedirs(folder)
        for name, text in (("kernel.cuh", "int a;\nint b;\n"), ("wide_loads.cuh", "int c;\n" * 3)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        self.assertEqual(problems.kernel_lines(9, "wide loads", self.folder), 3)
        self.assertEqual(problems.kernel_lines(9, "other", self.folder), 2)


class Own(unittest.TestCase):
    def own(self, chapter, kernels, *ratios):
        return problems.own_kernels({
            "chapter": chapter,
            "kernels": [{"name": name, "bytes": size} for name, size in kernels],
            "ratios": [{"before": before, "after": after} for before, after in ratios]})

    def test_one_kernel_beside_another_chapters(self):
        self.assertEqual(self.own("03_coalescing", [("tiling", 8.0), ("coalescing", 8.0)],
                                  ("tiling", "coalescing")), ["coalescing"])
        self.assertEqual(self.own("01_naive_attention", [("scores", 8.0), ("attention", 8.0)]),
                         ["attention"])

    def test_a_first_step_with_a_file_in_the_chapter(self):
        self.assertEqual(self.own("15_gradients", [("P", 0.0), ("naive", 9.0), ("recompute", 9.0)],
                                  ("naive", "recompute")), ["naive", "recompute"])

    def test_several_steps_and_stages(self):
        self.assertEqual(self.own("08_fused_conv_norm", [
            ("convolution", 0.0), ("ReLU", 0.0), ("three passes", 9.0), ("warp norm", 5.0)],
            ("naive norm", "warp norm")), ["three passes", "warp norm"])

    def test_a_stage_that_does_all_of_the_arithmetic_is_not_the_fastest_step(self):
        lines = [{"name": name, "flops": flops, "median_us": us, "bytes": 9.0} for name, flops, us in (
            ("naive", 8, 50.0), ("convolutions", 8, 20.0), ("finish", 0, 2.0), ("fused", 8, 25.0))]
        names = [line["name"] for line in lines]
        both = {"kernels": lines, "ratios": [{"before": "naive", "after": "fused"}]}
        alone = {"kernels": lines[1:]}
        for result in (both, alone):
            self.assertEqual(peering.fastest([result], names, "median_us"), ("fused", 25.0, [25.0]))


class Arithmetic(unittest.TestCase):
    def test_chapter_8s_problems_are_named_for_the_arithmetic_that_peers_do_too(self):
        flags = {p.name: p.flags for p in problems.TABLE if p.chapter == 8}
        self.assertEqual(flags["deep"], "--preset deep")
        self.assertEqual(flags["deep tf32"], "--preset deep --precision tf32")
        self.assertEqual(flags["deep fp16"], "--preset deep --storage fp16")


class Machine(unittest.TestCase):
    def test_what_a_gpu_does_not_tell_is_none(self):
        found = machine.parsed("Tesla T4, 535.1, 585, 5000, 1590, 50, [N/A], P8, [N/A]")
        self.assertEqual((found["sm_mhz"], found["power_w"]), (585.0, None))
        self.assertEqual(found["driver"], "535.1")
        with self.assertRaises(Lacking):
            machine.parsed("Tesla T4, 535.1")


    def test_clocks_in_between(self):
        line = "Tesla T4, 535.1, {}, 5000, 1590, 50, [N/A], P0, {}"
        states = [machine.parsed(line.format(*of))
                  for of in ((300, 0), (1590, 99), (1410, "[N/A]"))]
        found = machine.clocks_of(states)
        self.assertEqual(found["sm_mhz"], {"min": 300, "max": 1590})
        self.assertEqual(found["power_w"], None)
        self.assertEqual((found["samples"], found["busy"]["samples"]), (3, 1))
        self.assertEqual(found["busy"]["sm_mhz"], {"min": 1590, "max": 1590})
        self.assertEqual(machine.clocks_of([])["busy"]["sm_mhz"], None)


class Asking(Case):
    """The process to ask, which may say anything, or nothing."""

    def peers(self, script, seconds=20):
        with open(self.path("peers.py"), "w", encoding="utf-8") as file:
            file.write("import json, sys, time\n"
                       "say = lambda what: print(json.dumps(what), flush=True)\n" + script)
        peers = peering.Peers(sys.executable, self.path("peers.py"), seconds)
        self.addCleanup(peers.close)
        return peers

    def test_stray_lines_are_no_answers(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            peers = self.peers("print('[a warning]', flush=True)\nsay({'torch': '9'})\n"
                               "for line in sys.stdin:\n    print('compiling\\n17', flush=True)\n"
                               "    say({'rows': [{'name': 'p'}]})\n")
            self.assertEqual(peers.about["torch"], "9")
            self.assertEqual(peers.measure("f", {}, 1, 1), [{"name": "p"}])
            self.assertEqual(peers.measure("f", {}, 1, 1), [{"name": "p"}])
        for words in ("[a warning]", "compiling", "17"):
            self.assertIn(f"peers.py: {words}\n", errors.getvalue())

    def test_a_problem_is_forgotten_whatever_the_process_says(self):
        log = self.path("log")
        peers = self.peers("say({'torch': '9'})\nfor line in sys.stdin:\n"
                           f"    open({log!r}, 'a').write(json.loads(line)['family'])\n"
                           "    say({'refused': 'what?'})\n")
        peers.forget()
        with open(log, encoding="utf-8") as file:
            self.assertEqual(file.read(), "forget")
        peers.close()
        peers.forget()  # nothing is started for it
        self.assertIsNone(peers.process)

    def test_no_answer_in_time_ends_it_and_the_next_one_starts_it_again(self):
        peers = self.peers("say({'torch': '9'})\nline = sys.stdin.readline()\n"
                           "'slow' in line and time.sleep(60)\nsay({'rows': []})\n", seconds=5)
        slow = peers.process
        with self.assertRaisesRegex(Lacking, "did not answer within 5 s"):
            peers.measure("slow", {}, 1, 1)
        self.assertIsNotNone(slow.poll())
        self.assertEqual(peers.measure("quick", {}, 1, 1), [])

    def test_an_end_and_a_strange_answer(self):
        with self.assertRaisesRegex(Lacking, "ended with 5"):
            self.peers("sys.exit(5)\n")
        peers = self.peers("say({'torch': '9'})\nsys.stdin.readline()\nsay({'a': 1})\n")
        with self.assertRaisesRegex(Refused, "no rows"):
            peers.measure("f", {}, 1, 1)
        with self.assertRaisesRegex(Lacking, "ended with 0|is gone"):
            peers.measure("f", {}, 1, 1)
        with self.assertRaisesRegex(Lacking, "no CUDA"):
            self.peers("say({'lacking': 'no CUDA'})\n")


class Pairing(unittest.TestCase):
    def kernel_round(self, *times):
        part = {"name": "a part", "median_us": 1.0, "flops": 3.0}
        return {"chapter": "07_persistent_deformable_attention",
                "kernels": [part] + [{"name": name, "median_us": us, "flops": 9.0}
                                     for name, us in times],
                "ratios": [{"before": "simple", "after": "shared"},
                           {"before": "shared", "after": "a part"}]}

    PEER = {"name": "p", "min_us": 1, "std_us": 1, "relative_l2": 0, "pass": True}

    def test_the_fastest_kernel_stands_beside_the_best_peer_alone(self):
        rounds = [self.kernel_round(("simple", 40.0), ("shared", us)) for us in (10.0, 20.0, 15.0)]
        slow = {**self.PEER, "name": "slow", "median_us": 90.0}
        peers = [[{**self.PEER, "median_us": 30.0}, slow] for _ in rounds]
        found = peering.paired(rounds, peers)
        best = found["best"]
        self.assertEqual((best["kernel"], best["peer"]), ("shared", "p"))
        self.assertEqual(best["ratios"], [3.0, 1.5, 2.0])
        self.assertEqual((best["ratio"], best["interval"]), (2.0, [1.5, 3.0]))
        self.assertNotIn("best_in_graphs", found)
        for row in found["peers"]:
            self.assertFalse([key for key in row if "ratio" in key], row)
        self.assertEqual(sum("times as fast" in line for line in peering.lines(found)), 1)

    def test_the_best_peer_is_right_and_was_in_every_round(self):
        rounds = 3 * [self.kernel_round(("simple", 40.0), ("shared", 10.0))]
        quick = {**self.PEER, "median_us": 2.0}
        right = {**self.PEER, "name": "q", "median_us": 30.0}
        for spoiled in ({**quick, "pass": False, "relative_l2": 0.3},
                        {"name": "p", "lacking": "out of memory"}):
            found = peering.paired(rounds, [[quick, right], [spoiled, right], [quick, right]])
            self.assertEqual((found["best"]["peer"], found["best"]["ratio"]), ("q", 3.0))
        found = peering.paired(rounds, [[quick, right], [right], [quick, right]])
        self.assertEqual(found["peers"][0]["lacking"], "not in every round")
        self.assertEqual(found["best"]["peer"], "q")

    def test_a_graph_stands_beside_a_graph(self):
        rounds = [self.kernel_round(("simple", 40.0), ("shared", 10.0)) for _ in range(2)]
        for of in rounds:  # the other kernel is the faster one there
            of["kernels"][1]["graph_us"], of["kernels"][2]["graph_us"] = 4.0, 5.0
        peer = {**self.PEER, "median_us": 30.0}
        found = peering.paired(rounds, [[{**peer, "graph_us": us}] for us in (8.0, 16.0)])
        self.assertEqual((found["best"]["kernel"], found["best"]["ratio"]), ("shared", 3.0))
        graphs = found["best_in_graphs"]
        self.assertEqual((graphs["kernel"], graphs["ratio"]), ("simple", 3.0))
        self.assertEqual(graphs["ratios"], [2.0, 4.0])
        found = peering.paired(rounds, [[{**peer, "graph_us": 8.0}], [{**peer, "no_graph": "x"}]])
        self.assertNotIn("best_in_graphs", found)
        self.assertEqual(found["peers"][0]["no_graph"], "x")
        self.assertIn("in a CUDA graph: x", peering.lines(found)[1])
        del rounds[1]["kernels"][1]["graph_us"], rounds[1]["kernels"][2]["graph_us"]
        found = peering.paired(rounds, 2 * [[{**peer, "graph_us": 8.0}]])
        self.assertEqual(found["peers"][0]["graph_us"], 8.0)
        self.assertNotIn("best_in_graphs", found)

    def test_a_peer_that_fails_once_has_no_ratio(self):
        rounds = [self.kernel_round(("simple", 40.0), ("shared", 10.0))] * 2
        peer = {**self.PEER, "median_us": 5.0}
        found = peering.paired(rounds, [[peer], [{"name": "p", "lacking": "out of memory"}]])
        self.assertEqual(found, {"peers": [{"name": "p", "lacking": "out of memory"}]})
        text = peering.lines(found)
        self.assertIn("out of memory", text[0])
        self.assertIn("no peer to compare with", text[1])


class Rounds(unittest.TestCase):
    def test_a_kernels_time_is_the_median_of_its_rounds(self):
        rounds = [{"pass": True, "kernels": [
            {"name": "k", "median_us": us, "min_us": us - 1, "mean_us": us, "std_us": us / 10,
             "graph_us": graph, "gb_per_s": 100.0, "pass": right}]}
            for us, graph, right in ((10.0, 8.0, True), (30.0, None, True), (20.0, 9.0, False))]
        self.assertIs(measure.merged(rounds[:1]), rounds[0])
        kernel = measure.merged(rounds)["kernels"][0]
        self.assertEqual((kernel["median_us"], kernel["min_us"]), (20.0, 9.0))
        self.assertEqual(kernel["std_us"], 3.0)
        self.assertEqual(kernel["graph_us"], 8.0)  # the first round's: not every round has one
        self.assertEqual(kernel["rounds_us"], [10.0, 30.0, 20.0])
        self.assertEqual(kernel["gb_per_s"], 50.0)  # of 20 us, not of the first round's 10
        self.assertFalse(kernel["pass"])

    def test_what_is_worth_most_comes_first(self):
        order = [(of.chapter, of.name) for of in problems.by_worth(problems.TABLE)]
        self.assertEqual(order[:len(problems.FIRST)], list(problems.FIRST))
        self.assertEqual(sorted(order), sorted((of.chapter, of.name) for of in problems.TABLE))
        self.assertEqual(order[-1], (6, "1025 tokens"))
        peers = [bool(of.peers) for of in problems.by_worth(problems.TABLE)]
        self.assertEqual(peers, sorted(peers, reverse=True))

    def test_the_prediction_learns(self):
        plan = measure.Plan([10, 20, 30], 1)
        self.assertEqual(plan.left(), 60)
        plan.next(20)
        self.assertEqual(plan.left(), 100)
        self.assertTrue(plan.fits())
        plan.next()
        self.assertEqual((plan.left(), plan.factor()), (60, 2))
        plan.start -= 10
        self.assertFalse(plan.fits())

    def test_predicted_seconds_grow_with_the_work(self):
        tokens = [of for of in problems.TABLE if of.chapter == 6]
        alone = [problems.predicted_seconds(of, 7, False, 4) for of in tokens]
        self.assertEqual(alone, sorted(alone))
        for of, least in zip(tokens, alone):
            peered = dataclasses.replace(of, peers="attention")
            self.assertGreater(problems.predicted_seconds(peered, 7, True, 4), 7 * least)
        total = sum(problems.predicted_seconds(of, 7, True, 16) for of in problems.TABLE)
        self.assertLess(total, 30 * 60)

    def test_gradients_take_longer_than_what_they_are_of(self):
        times = {of.chapter: problems.predicted_seconds(of, 7, False, 1) for of in problems.TABLE
                 if of.name == "1025 tokens"}
        self.assertAlmostEqual(times[15] - problems.RUN_S, 2.5 * (times[13] - problems.RUN_S))


class Table(unittest.TestCase):
    """Which chapters are measured and validated: all that have a program and steps timed on the device."""

    def test_no_chapter_is_left_out(self):
        programs = {int(os.path.basename(os.path.dirname(path))[:2])
                    for path in glob.glob(os.path.join(problems.ROOT, "chapters", "*", "main.cu"))}
        # A training step has the host's time, and its kernels are chapter 16's; a network's layers, in a table
        # of their own, are steps of chapter 8.
        programs -= {18, 20}
        self.assertEqual({of.chapter for of in problems.TABLE} & programs, programs)
        # Chapter 9's steps are timed from the host's first call to its last wait: no launch's time is theirs.
        timed = programs - {9}
        self.assertEqual(set(problems.VALIDATED) & programs, timed)
        self.assertEqual(set(problems.TIMED) & programs, timed)

    def test_names_are_unlike_within_a_chapter(self):
        names = [(of.chapter, of.name) for of in problems.TABLE]
        self.assertEqual(len(names), len(set(names)))


class Bootstrap(unittest.TestCase):
    def test_the_interval_holds_the_true_median_as_often_as_it_says(self):
        rounds = random.Random(7)
        for spread in (0.02, 0.3):  # ratios vary by factors
            held = 0
            for _ in range(400):
                values = [math.exp(rounds.gauss(0, spread)) for _ in range(7)]
                low, high = ratios.interval(values, resamples=1000)
                held += low <= 1 <= high
            self.assertGreaterEqual(held / 400, 0.95)
        # More values: narrower, and still right.
        held, widths = 0, []
        for _ in range(200):
            values = [rounds.gauss(1, 0.1) for _ in range(40)]
            low, high = ratios.interval(values, resamples=500)
            held += low <= 1 <= high
            widths.append((high - low) / (max(values) - min(values)))
        self.assertGreaterEqual(held / 200, 0.93)
        self.assertLess(max(widths), 0.6)

    def test_it_is_the_same_every_time_and_needs_three_values(self):
        values = [1.0, 1.2, 0.9, 1.1, 1.05, 0.97, 1.3]
        self.assertEqual(ratios.interval(values), ratios.interval(values))
        self.assertEqual(ratios.interval(values), (0.9, 1.3))
        self.assertEqual(ratios.interval([2.0, 2.0, 2.0]), (2.0, 2.0))
        self.assertIsNone(ratios.interval([1.0, 2.0]))

    def test_students_quantiles(self):
        for freedom, t in ((1, 12.706), (2, 4.303), (6, 2.447), (30, 2.042)):  # of any table
            self.assertAlmostEqual(ratios.student_quantile(0.025, freedom), t, delta=0.001 * t)
        self.assertAlmostEqual(ratios.expanded_tail(7), 0.0041, 4)
        self.assertAlmostEqual(ratios.expanded_tail(10000), 0.025, 4)

    def test_the_best_row(self):
        rows = [{"name": "a", "us": 3}, {"name": "b", "us": 2, "lacking": "wrong"}, {"name": "c"},
                {"name": "d", "us": None}]
        self.assertEqual(ratios.best(rows, "us")["name"], "a")
        self.assertIsNone(ratios.best(rows[1:], "us"))


if __name__ == "__main__":
    unittest.main()
