"""The formulations of peers.py against PyTorch's own arrays; needs a Python with torch:

    TESTS=peers_test.py PYTHON common/workshop/tests/all.py
"""
import ast
import contextlib
import ctypes
import functools
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import weakref
from unittest import mock

from support import BENCH, ROOT

import cublaslt_test

import classic
import cublaslt
import peering
import peers
import results

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


class Fairness(unittest.TestCase):
    """What needs no torch."""

    def test_copies_in_turn_do_not_stay_in_the_l2(self):
        l2 = 50e6  # of an H100
        self.assertEqual(peers.rotation_copies(250e6, l2), 1)
        self.assertEqual(peers.rotation_copies(100e6, l2), 1)
        self.assertEqual(peers.rotation_copies(99e6, l2), 2)
        self.assertEqual(peers.rotation_copies(10e6, l2), 10)
        self.assertEqual(peers.rotation_copies(1000, l2), 64)  # no more than that
        self.assertEqual(peers.rotation_copies(0, l2), 64)
        self.assertEqual(peers.rotation_copies(1e6, 0), 1)

    def test_how_far_a_peer_may_be_off(self):
        self.assertEqual(peers.most_error("conv_norm", "float32"), 1e-4)  # Winograd stays in
        self.assertEqual(peers.most_error("attention", "float32"), 1e-5)
        self.assertEqual(peers.most_error("conv_norm", "tf32"), 1e-3)
        self.assertEqual(peers.most_error("attention", "float16"), 1e-3)
        self.assertEqual(peers.most_error("deformable", "float16"), 1e-1)

    def test_versions_of_cudnn(self):
        self.assertEqual(peers.cudnn_version(91002), "9.10.2")
        self.assertEqual(peers.cudnn_version(92600), "9.26.0")
        self.assertEqual(peers.cudnn_version(8907), "8.9.7")
        self.assertIsNone(peers.cudnn_version(None))

    def test_results_are_kept_as_long_as_their_turn_is_not_back(self):
        alive = []

        class Result:
            def __init__(self, i):
                self.i = i
                alive.append(i)

            def __del__(self):
                alive.remove(self.i)
        launch = peers.rotated(Result, 3)
        for i in range(7):
            self.assertEqual(launch(i).i, i)
            self.assertEqual(alive, list(range(max(0, i - 2), i + 1)))


class Events:
    """Stands in for torch.cuda: what is launched runs at once on the CPU."""

    class Event:
        def __init__(self, enable_timing=False):
            self.at = 0.0

        def record(self):
            self.at = time.perf_counter()

        def elapsed_time(self, other):
            return 1e3 * (other.at - self.at)

    class Stream:
        cuda_stream = 0

        def wait_stream(self, other):
            pass

    class CUDAGraph:
        def replay(self):
            pass

    graph = stream = lambda self, what: contextlib.nullcontext()
    synchronize = empty_cache = lambda self: None
    get_device_capability = lambda self: (9, 0)

    def current_stream(self):
        return self.Stream()

    def get_device_properties(self, index):
        return mock.Mock(L2_cache_size=30000)


@contextlib.contextmanager
def on_a_gpu():
    """A Bench whose code for a GPU runs on the CPU, in fp32."""
    stand_in = Events()
    names = [name for name in dir(Events) if not name.startswith("_")]
    with mock.patch.multiple(torch.cuda, **{name: getattr(stand_in, name) for name in names}), \
            mock.patch.object(peers, "WARMUP_S", 0.001), mock.patch.object(peers, "GRAPH_US", 1), \
            mock.patch.object(peers, "LONG_US", 1e9), mock.patch.object(peers, "SAMPLE_US", 1):
        bench = peers.Bench("cpu")
        bench.cuda = True
        yield bench


SMALL = {"mlp": {"batch": 1, "rows": 19, "width": 24, "hidden": 40},
         "attention": {"batch": 1, "heads": 2, "tokens": 17, "head_dim": 32},
         "attention_backward": {"batch": 1, "heads": 2, "tokens": 17, "head_dim": 32},
         "layer_norm": {"rows": 17, "columns": 40, "storage": "fp16"},
         **dict.fromkeys(("projection", "projection_backward"),
                         {"batch": 2, "height": 5, "width": 6, "channels": 8, "class_tokens": 1}),
         "vit": {"batch": 2, "size": 64, "tokens": 17, "width": 64, "heads": 2, "blocks": 2,
                 "classes": 10},
         "deformable": {"batch": 1, "queries": 5, "heads": 1, "channels": 16, "points": 4,
                        "levels": 4, "pixels": 19560, "distribution": "local"},
         "conv_norm": {"batch": 1, "in_channels": 3, "out_channels": 5, "height": 9, "width": 12,
                       "kernel": 3, "precision": "tf32"}}


@unittest.skipUnless(torch, "no torch")
class OnAGpu(unittest.TestCase):
    """Each line that a GPU will run, run on the CPU."""

    def rows(self, bench, family, problem=None):
        request = {"family": family, "problem": problem or SMALL[family], "warmup": 1,
                   "iterations": 3}
        answer = bench.round_of(request)
        json.dumps(answer)
        return {row["name"]: row for row in answer["rows"]}

    def test_each_family_by_events_and_graphs(self):
        compile_eager = functools.partial(torch.compile, backend="eager")
        with on_a_gpu() as bench, mock.patch.object(torch, "compile", compile_eager):
            for family in SMALL:
                rows = self.rows(bench, family)
                timed = [row for row in rows.values() if "median_us" in row]
                # The CPU has one backend whose backward pass is an operation.
                self.assertGreaterEqual(len(timed), 1 if family == "attention_backward" else 2, rows)
                for row in timed:
                    self.assertTrue(row["pass"], row)
                    self.assertGreater(row["graph_us"], 0, row)
                self.assertGreater(bench.prepared.copies, 1 if family == "attention" else 0)
            self.assertIn("cuDNN", self.rows(bench, "conv_norm")["eager"]["library"])

    def test_the_projections_gradients_are_those_of_autograd(self):
        (x, *parameters), d_out = peers.Bench("cpu").projection_arrays(SMALL["projection"])
        x, *d_out = (t.double() for t in (x, *d_out))
        weights, scales, shifts = ([t.double().requires_grad_() for t in of] for of in parameters)
        x.requires_grad_()
        out = peers.projection(x, weights, scales, shifts)
        each = [t for of in zip(weights, scales, shifts) for t in of]
        expected = torch.autograd.grad(out, [x, *each], d_out)
        with torch.no_grad():
            kept = peers.projection_statistics(x, weights)
            got = peers.projection_backward(x, weights, scales, kept, d_out)
        self.assertLess(peers.worst_l2(got, expected), 1e-12)

    def test_what_is_no_single_operation_backward_is_no_peer(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        q = torch.randn(1, 2, 5, 8)
        with sdpa_kernel(SDPBackend.MATH), self.assertRaisesRegex(RuntimeError, "no single operation"):
            peers.attention_backward(q, q, q, 1.0)

    def test_a_second_round_prepares_nothing_again(self):
        with on_a_gpu() as bench, mock.patch.object(bench, "compiled",
                                                    side_effect=lambda f: f) as compiled:
            for _ in range(3):
                self.rows(bench, "conv_norm")
            self.assertEqual(compiled.call_count, 2)  # eager layout and channels last
            self.rows(bench, "conv_norm", {**SMALL["conv_norm"], "height": 10})
            self.assertEqual(compiled.call_count, 4)
            kept = weakref.ref(bench.prepared)
            self.assertEqual(bench.round_of({"family": "forget"}), {"rows": []})
            self.assertIsNone(kept())  # and its arrays with it
            self.rows(bench, "conv_norm", {**SMALL["conv_norm"], "height": 10})
            self.assertEqual(compiled.call_count, 6)

    def test_what_cannot_be_prepared_is_tried_once(self):
        tried = []

        def prepare():
            tried.append(0)
            raise RuntimeError("no such backend\nmore")
        bench = peers.Bench("cpu")
        problem = peers.Prepared([peers.Formulation("p", prepare, about={"library": "l 1"})],
                                 lambda out: 0.0, 1e-5)
        for _ in range(2):
            self.assertEqual(bench.rows(problem, {"warmup": 0, "iterations": 1}),
                             [{"name": "p", "library": "l 1", "lacking": "no such backend"}])
        self.assertEqual(len(tried), 1)

    def test_results_and_inputs_take_turns(self):
        with on_a_gpu() as bench:
            self.rows(bench, "attention")
            count = bench.prepared.copies
            # Q, K, V and O of 17 tokens in fp32: 17,408 bytes, twice an L2 of 30,000.
            self.assertEqual(count, 4)
            seen, inputs = [], []
            math_backend = bench.prepared.formulations[3].launch
            spied = lambda q, k, v, scale: (inputs.append(q.data_ptr()), q + 0)[1]
            with mock.patch.object(peers, "attention", spied):
                for i in range(2 * count):
                    seen.append(math_backend(i).data_ptr())
            self.assertEqual(len(set(inputs)), count)
            for i in range(len(seen) - count + 1):
                self.assertEqual(len(set(seen[i:i + count])), count)

    def test_flash_attention_3_where_it_is_installed(self):
        seen = []

        def flash(q, k, v, softmax_scale):
            seen.append((q.shape, q.is_contiguous()))
            out = torch.nn.functional.scaled_dot_product_attention(
                *(t.transpose(1, 2) for t in (q, k, v)), scale=softmax_scale)
            return out.transpose(1, 2), None  # with the log-sum-exp, as some versions have it
        with mock.patch.dict(sys.modules, flash_attn_interface=mock.Mock(flash_attn_func=flash)):
            with on_a_gpu() as bench:
                row = self.rows(bench, "attention")["FlashAttention-3"]
                self.assertTrue(row["pass"], row)
                self.assertEqual(row["by"], "Dao-AILab")
            self.assertEqual(set(seen), {((1, 17, 2, 32), True)})
            with mock.patch.object(Events, "get_device_capability", lambda self: (8, 0)):
                with on_a_gpu() as bench:
                    row = self.rows(bench, "attention")["FlashAttention-3"]
                    self.assertEqual(row["lacking"], "FlashAttention-3 is for compute capability "
                                     "9.0, this GPU has 8.0")
        with mock.patch.dict(sys.modules, flash_attn_interface=None), on_a_gpu() as bench:
            self.assertIn("FlashAttention-3 is not installed",
                          self.rows(bench, "attention")["FlashAttention-3"]["lacking"])

    def test_cublaslt_where_it_is_installed(self):
        # Without a GPU the true library, where there is one, gives no handle.
        with on_a_gpu() as bench:
            row = self.rows(bench, "mlp")["cuBLASLt"]
            if not torch.cuda.is_available():
                self.assertRegex(row["lacking"], "cublasLtCreate: |cuBLASLt is not installed: ")
            self.assertEqual(row["by"], "NVIDIA")
        with on_a_gpu() as bench, mock.patch.object(cublaslt, "places", lambda: ["/nowhere/lt"]):
            self.assertIn("cuBLASLt is not installed: /nowhere/lt",
                          self.rows(bench, "mlp")["cuBLASLt"]["lacking"])
        if not cublaslt_test.header_folder():
            return
        with tempfile.TemporaryDirectory() as folder, on_a_gpu() as bench:
            library = cublaslt_test.stand_in(folder)
            with mock.patch.object(cublaslt, "places", lambda: [library]):
                row = self.rows(bench, "mlp")["cuBLASLt"]
                self.assertTrue(row["pass"], row)
                self.assertGreater(row["graph_us"], 0)
                self.assertGreater(bench.prepared.copies, 1)
                launch = bench.prepared.formulations[-1].launch
                first, second = launch(0), launch(1)
                self.assertNotEqual(first.data_ptr(), second.data_ptr())
                self.assertTrue(torch.equal(first, second))

    def test_the_classic_operators_arguments(self):
        """The launch gets addresses and sizes: what stands there is put together again."""
        def launch(value, sizes, starts, locations, weights, B, S, H, C, L, Q, P, out, stream):
            def at(address, dtype, *shape):
                size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
                raw = (ctypes.c_char * size).from_address(address)
                return torch.frombuffer(raw, dtype=dtype).reshape(shape)
            shapes = at(sizes, torch.int64, L, 2).tolist()
            self.assertEqual(at(starts, torch.int64, L).tolist(), [0, 14720, 18400, 19320])
            got = peers.deformable(at(value, torch.float16, B, S, H, C).float(), shapes,
                                   at(locations, torch.float16, B, Q, H, L, P, 2).float(),
                                   at(weights, torch.float16, B, Q, H, L, P).float())
            at(out, torch.float16, B, Q, H * C).copy_(got)
            return 0
        with on_a_gpu() as bench, \
                mock.patch.object(peers, "deformable", wraps=half_deformable(peers.deformable)), \
                mock.patch.object(classic, "fetch", lambda: "header"), \
                mock.patch.object(classic, "build", lambda *of: of), \
                mock.patch.object(classic, "loaded", lambda library: launch):
            bench.half = True
            row = self.rows(bench, "deformable", {**SMALL["deformable"], "heads": 2, "batch": 3})[
                "ms_deform_im2col, half"]
            self.assertTrue(row["pass"], row)
            self.assertLess(row["relative_l2"], 1e-3)
            self.assertEqual(row["library"], classic.COMMIT[:12])
            refused = lambda: (_ for _ in ()).throw(results.Lacking("no network"))
            with mock.patch.object(classic, "fetch", refused):
                bench.forget()
                row = self.rows(bench, "deformable")["ms_deform_im2col, half"]
            self.assertIn("no network", row["lacking"])


def half_deformable(function):
    """grid_sample of the CPU has no fp16."""
    def wide(value, shapes, locations, weights):
        if value.dtype != torch.float16:
            return function(value, shapes, locations, weights)
        return function(value.float(), shapes, locations.float(), weights.float()).half()
    return wide


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

    def test_mlp(self):
        x, w1, b1, w2, b2, y = (array(f"mlp_{name}.npy") for name in
                                ("x", "w1", "b1", "w2", "b2", "y"))
        self.close(peers.mlp(x, w1, b1, w2, b2), y)

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

    def test_vit(self):
        with open(os.path.join(GOLDEN, "vit_narrow.safetensors"), "rb") as file:
            content = file.read()
        size = struct.unpack("<Q", content[:8])[0]
        read = {}
        for name, of in json.loads(content[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = of["data_offsets"]
                kind = {"F16": torch.float16, "F32": torch.float32}[of["dtype"]]
                read[name] = torch.frombuffer(bytearray(content[8 + size + begin:8 + size + end]),
                                              dtype=kind).reshape(of["shape"]).double()
        weights = {"patch": read["patch_embed.proj.weight"], "class": read["cls_token"],
                   "patch_bias": read["patch_embed.proj.bias"], "position": read["pos_embed"]}
        names = {"head": "head", "2.norm": "norm"}
        for block in range(2):
            for name, timms in (("norm1", "norm1"), ("norm2", "norm2"), ("qkv", "attn.qkv"),
                                ("proj", "attn.proj"), ("fc1", "mlp.fc1"), ("fc2", "mlp.fc2")):
                names[f"{block}.{name}"] = f"blocks.{block}.{timms}"
        for name, timms in names.items():
            weights[name], weights[name + "_bias"] = read[f"{timms}.weight"], read[f"{timms}.bias"]
        problem = {"tokens": 17, "width": 64, "heads": 2, "blocks": 2, "classes": 10}
        made = peers.vit_parameters(problem, lambda deviation, *sizes: torch.zeros(sizes))
        self.assertEqual({name: of.shape for name, of in made.items()},
                         {name: of.shape for name, of in weights.items()})
        self.close(peers.vit(array("vit_narrow_image.npy").double(), weights, problem),
                   array("vit_narrow_logits.npy").double(), 1e-6)

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
        rows = bench.rows(peers.Prepared(
            [peers.Formulation(*of) for of in (
                ("right", lambda: lambda i: torch.ones(3)),
                ("wrong", lambda: lambda i: torch.zeros(3)),
                ("no number", lambda: lambda i: torch.full((3,), math.nan)),
                ("refused", lambda: lambda i: torch.ones(3) @ torch.ones(2)))],
            lambda out: peers.relative_l2(out, expected), 1e-5), request)
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
        problem = peers.Prepared([peers.Formulation("p", lambda: launch, context)],
                                 lambda out: 0.0, 1e-5)
        rows = peers.Bench("cpu").rows(problem, {"warmup": 3, "iterations": 4})
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
                bench.forget()  # a problem after another
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
        self.assertEqual(about["versions"]["torch"], torch.__version__)
        self.assertEqual(set(about["versions"]), {"python", "torch", "cuda", "cudnn", "triton",
                                                  "flash_attn_3", "deformops", "cublas",
                                                  "ms_deform_im2col"})
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
