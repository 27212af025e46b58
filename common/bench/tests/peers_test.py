"""The formulations of peers.py against PyTorch's own arrays; needs a Python with torch:

    TESTS=peers_test.py PYTHON common/bench/tests/all.py
"""
import ast
import contextlib
import functools
import json
import math
import os
import subprocess
import sys
import time
import unittest
from unittest import mock

from support import BENCH, ROOT

import peering
import peers

try:
    import torch
except ImportError:
    torch = None

GOLDEN = os.path.join(ROOT, "data", "golden")


def array(name):
    """A tensor, in double, of a .npy file (version 1: magic, version, length of the header)."""
    with open(os.path.join(GOLDEN, name), "rb") as file:
        content = file.read()
    length = int.from_bytes(content[8:10], "little")
    head = ast.literal_eval(content[10:10 + length].decode())
    dtype = {"<f2": torch.float16, "<f4": torch.float32, "<f8": torch.float64}[head["descr"]]
    flat = torch.frombuffer(bytearray(content[10 + length:]), dtype=dtype)
    return flat.reshape(head["shape"]).double()


def cases(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as file:
        return json.load(file)["cases"]


def is_compiled(x):
    return x + (1 if torch.compiler.is_compiling() else 0)


class Timing(unittest.TestCase):
    def test_warm_up_by_number_and_by_time(self):
        calls, waits = [], []

        def launch(i):
            calls.append(i)
            time.sleep(0.001)
        start = time.perf_counter()
        done = peers.warm_up(launch, lambda: waits.append(0), 3, 0.02)
        self.assertGreaterEqual(time.perf_counter() - start, 0.023)
        self.assertEqual(calls, list(range(done)))
        self.assertTrue(3 + 1 <= done <= 3 + 63, done)
        self.assertTrue(2 <= len(waits) <= done)
        self.assertEqual(peers.warm_up(launch, lambda: None, 0, 9), 0)
        self.assertEqual(len(calls), done)

    def test_calls_of_a_graph_are_rounds_through_the_copies(self):
        self.assertEqual(peers.calls_of_graph(5, 1), 60)
        self.assertEqual(peers.calls_of_graph(5, 7), 63)
        self.assertEqual(peers.calls_of_graph(1000, 4), 4)
        self.assertEqual(peers.calls_of_graph(0.1, 64), 320)


@unittest.skipUnless(torch, "no torch")
class Formulations(unittest.TestCase):
    def close(self, got, expected, most=1e-12):
        self.assertEqual(got.shape, expected.shape)
        self.assertLessEqual(float((got - expected).norm()), most * float(expected.norm()))

    def test_attention(self):
        for case in cases("manifest.json"):
            with self.subTest(case["name"]):
                q, k, v, out = (array(f"{case['name']}_{x}.npy") for x in ("q", "k", "v", "out"))
                self.close(peers.attention(q, k, v, case["scale"]), out)

    def test_deformable_attention(self):
        for case in cases("deformable.json"):
            if case["name"] == "not_finite":
                continue  # grid_sample of coordinates that are no numbers is anything
            with self.subTest(case["name"]):
                value, locations, weights, out = (
                    array(f"deformable_{case['name']}_{x}.npy")
                    for x in ("value", "locations", "weights", "out"))
                got = peers.deformable(value, case["levels"], locations, weights)
                self.close(got.reshape(out.shape), out)

    def test_conv_norm(self):
        inputs, outputs = array("conv_norm_inputs.npy"), array("conv_norm_outputs.npy")
        at = done = 0
        for case in cases("conv_norm.json"):
            taken = []

            def take(*shape):
                nonlocal at
                count = math.prod(shape)
                taken.append(inputs[at:at + count].reshape(shape))
                at += count
                return taken[-1]
            B, I, O, k = (case[x] for x in ("batch", "in_channels", "out_channels", "kernel"))
            top, bottom, left, right = case["pads"]
            field = [(case[x] - 1) * case["upsample"] + 1 for x in ("height", "width")]
            size = [(field[0] + top + bottom - k) // case["stride"] + 1,
                    (field[1] + left + right - k) // case["stride"] + 1]
            x, weight = take(B, I, case["height"], case["width"]), take(O, I, k, k)
            bias = take(O) if case["bias"] else None
            gamma, beta = take(O), take(O)
            if case["residual"]:
                take(B, O, *size)
            count = B * O * math.prod(size)
            y = outputs[done + count:done + 2 * count].reshape(B, O, *size)
            done += 2 * count
            # Peers have no residual, no upsampling and always a ReLU; PyTorch refuses one pixel.
            if case["residual"] or case["upsample"] != 1 or math.prod(size) == 1:
                continue
            with self.subTest(case["name"]):
                got = peers.conv_norm(x, weight, bias, gamma, beta, case)
                extreme = case["name"] == "denormal" or "huge" in case["name"]
                self.close(got, y.clamp(min=0), 1e-6 if extreme else 1e-9)
        self.assertEqual((at, done), (len(inputs), len(outputs)))

    def test_wrong_results_have_no_time(self):
        bench = peers.Bench("cpu")
        expected = torch.ones(3, dtype=torch.float64)
        request = {"warmup": 0, "iterations": 3}
        rows = bench.rows(
            [("right", lambda: lambda i: torch.ones(3)),
             ("wrong", lambda: lambda i: torch.zeros(3)),
             ("no number", lambda: lambda i: torch.full((3,), math.nan)),
             ("refused", lambda: lambda i: torch.ones(3) @ torch.ones(2))],
            lambda out: peers.relative_l2(out, expected), 1e-5, request)
        self.assertEqual([row.get("pass") for row in rows], [True, False, False, None])
        self.assertIn("lacking", rows[3])
        json.dumps(rows)

    def test_a_context_is_entered_once_around_all_calls(self):
        entered, calls = [], []

        @contextlib.contextmanager
        def context():
            entered.append("in")
            yield
            entered.append("out")

        def launch(i):
            self.assertEqual(entered, ["in"])
            calls.append(i)
            return torch.ones(3)
        rows = peers.Bench("cpu").rows([("p", lambda: launch, context)], lambda out: 0.0, 1e-5,
                                       {"warmup": 3, "iterations": 4})
        self.assertEqual((entered, len(calls)), (["in", "out"], 1 + 1 + 3 + 4))
        self.assertTrue(rows[0]["pass"])

    def graph_row(self, us=10.0, captured=None, off=0.0):
        """What is said of calls of `us` with 4 copies, captured as that graph or not at all."""
        bench = peers.Bench("cpu")

        def capture(_, calls):
            if captured is None:
                raise RuntimeError("operation not permitted when stream is capturing\nmore words")
            return captured, torch.ones(3)
        with mock.patch.object(bench, "captured", capture):
            with mock.patch.object(bench, "samples", lambda launch, *_: [300.0, 900.0, 600.0]):
                return bench.in_a_graph(None, us, lambda out: off, 1e-3,
                                        {"warmup": 1, "iterations": 3}, 4)

    def test_a_graphs_time_is_of_a_call_and_its_result_is_compared(self):
        graph = mock.Mock()
        self.assertEqual(self.graph_row(captured=graph), {"graph_us": 600.0 / 32})  # 8 rounds of 4
        self.assertIn("replays are wrong", self.graph_row(captured=graph, off=0.5)["no_graph"])
        self.assertIn("replays are wrong", self.graph_row(captured=graph, off=math.nan)["no_graph"])
        self.assertEqual(self.graph_row()["no_graph"],
                         "operation not permitted when stream is capturing")
        self.assertIn("takes so long", self.graph_row(us=5001.0, captured=graph)["no_graph"])

    def test_every_problem_is_compiled(self):
        # More shapes than a function may be compiled for: then it would silently run as it is.
        bench = peers.Bench("cpu")
        with mock.patch.object(torch, "compile", functools.partial(torch.compile, backend="eager")):
            for size in range(2, 14):
                compiled = bench.compiled(is_compiled)
                self.assertEqual(compiled(torch.zeros(size)).tolist(), size * [1.0])

    def test_the_process_answers(self):
        requests = [{"family": family, "problem": problem, "warmup": 0, "iterations": 2}
                    for family, problem in (
                        ("attention", {"batch": 1, "heads": 2, "tokens": 17, "head_dim": 32}),
                        ("deformable", {"batch": 1, "queries": 5, "heads": 1, "channels": 16,
                                        "points": 4, "levels": 3, "pixels": 19560}),
                        ("weather", {}),
                        ("conv_norm", {"precision": "fp16"}),
                        ("conv_norm", {"batch": 1, "in_channels": 3, "out_channels": 5,
                                       "height": 9, "width": 12, "kernel": 3, "precision": "fp16",
                                       "storage": "fp16"}))]
        done = subprocess.run([sys.executable, os.path.join(BENCH, "peers.py"), "--device", "cpu"],
                              input="".join(json.dumps(r) + "\n" for r in requests), text=True,
                              capture_output=True, timeout=300, check=True)
        about, rows, wrong, refused, mixed, conv = map(json.loads, done.stdout.splitlines())
        self.assertEqual(about["torch"], torch.__version__)
        timed = [row for row in rows["rows"] if "median_us" in row]
        self.assertTrue(timed and all(row["pass"] for row in timed))
        self.assertIn("are not those of", wrong["refused"])
        self.assertIn("--storage fp16", mixed["refused"])
        self.assertIn("weather", refused["refused"])
        self.assertEqual([row["name"] for row in conv["rows"]],
                         ["eager", "eager, channels last", "compiled", "compiled, channels last"])
        self.assertTrue(all(row.get("pass") for row in conv["rows"]), conv)

    @unittest.skipIf(torch and torch.cuda.is_available(), "there is a GPU")
    def test_without_a_gpu_peers_say_so(self):
        with self.assertRaisesRegex(peering.Lacking, "sees no GPU"):
            peering.Peers(sys.executable)


if __name__ == "__main__":
    unittest.main()
