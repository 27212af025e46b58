#!/usr/bin/env python3
"""The chapters' problems in PyTorch, for `make bench PEERS=torch`.

Reads requests from standard input, a line of JSON each, and answers each with a line:

    {"family": "attention", "problem": {"batch": 32, ...}, "warmup": 5, "iterations": 50}
    {"rows": [{"name": "cudnn", "median_us": ..., "graph_us": ..., "pass": true, ...}, ...]}

Its first line says what there is: {"device": "NVIDIA H200", "versions": {"torch": "2.9.0", ...}},
or {"lacking": why}. Nothing else goes to standard output; what libraries print there goes to
standard error. The problem is that of the program's result file. Each formulation is compared with
the problem's formula in double precision, on a part of the output, and timed as the lab does it:
warm-up by number and by time, CUDA events, samples of at least 0.2 ms, inputs and results rotated
through twice the L2; then once more, as many calls replayed from one CUDA graph (graph_us, or
no_graph: why not). The same problem asked again is another round: what was prepared and compiled
for it is kept. --device cpu runs all of it on the CPU, for tests: the same formulations, wall time,
no graphs.

Longer than 600 lines: of each family its formulations and the formula that judges them stand together.
"""
import contextlib
import dataclasses
import gc
import importlib
import importlib.metadata
import json
import math
import os
import statistics
import sys
import time
import typing

import classic
import cublaslt

# As in common/lab/timing.cpp.
WARMUP_S, SAMPLE_US, GRAPH_US, LONG_US, MOST_COPIES = 0.2, 200, 300, 5000, 64


def most_error(family, arithmetic):
    """The largest relative L2 error of a peer's result. Not the kernels' tolerance, which is
    derived: this one only tells another rounding from another result."""
    if family == "mlp":
        return 1e-3  # of arrays in fp32, too, whose products are in tf32
    if arithmetic == "float32":
        # Winograd's convolution, which cuDNN takes where it is faster, is some 1e-5 off.
        return 1e-4 if family == "conv_norm" else 1e-5
    # Coordinates up to 160 in fp16 are off by up to 1/16 pixel: the operators' own rounding.
    return {"attention": 1e-3, "conv_norm": 1e-3, "deformable": 1e-1, "layer_norm": 1e-3,
            # Differences of numbers that are rounded to fp16, and dw's sums over all pixels.
            "attention_backward": 1e-2, "projection": 2e-3, "projection_backward": 2e-2,
            # Twelve blocks, some ten roundings each, of 2^-11 up or down.
            "vit": 1e-2}[family]


def rotation_copies(size, l2_bytes):
    """How many copies of so many bytes, used in turn, do not stay in the L2; as the lab has it."""
    return max(1, min(MOST_COPIES, math.ceil(2 * l2_bytes / max(1, size))))


def rotated(launch, count):
    """The launch, its last `count` results kept: each call writes to another place than the calls
    before it, since PyTorch gives memory out again as soon as nothing holds it."""
    kept = [None] * count

    def call(i):
        kept[i % count] = launch(i)
        return kept[i % count]
    return call


def cudnn_version(number):
    """'9.10.2' of 91002, '8.9.7' of 8907: its number has another layout since version 9."""
    if not number:
        return None
    large = 10000 if number >= 90000 else 1000
    return f"{number // large}.{number % large // 100}.{number % 100}"


def version_of(*packages):
    """Of the first of the packages that is installed, or None."""
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    return None


def grid_of(locations):
    """grid_sample's coordinates, [-1, 1] from border to border: pixel = loc * size - 0.5."""
    return 2 * locations - 1


def deformable(value, shapes, locations, weights):
    """Deformable attention by grid_sample, as its authors' plain PyTorch code has it.

    value [B, S, H, C], shapes [(height, width)] of the levels, locations [B, Q, H, L, P, 2] as
    (x, y) in [0, 1], weights [B, Q, H, L, P]; returns [B, Q, H * C].
    """
    import torch
    import torch.nn.functional as F
    B, _, H, C = value.shape
    Q, P = locations.shape[1], locations.shape[4]
    sampled, first = [], 0
    for level, (height, width) in enumerate(shapes):
        pixels = value[:, first:first + height * width]  # [B, h * w, H, C]
        first += height * width
        pixels = pixels.permute(0, 2, 3, 1).reshape(B * H, C, height, width)
        grid = grid_of(locations[:, :, :, level]).transpose(1, 2).reshape(B * H, Q, P, 2)
        sampled.append(F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros",
                                     align_corners=False))  # [B * H, C, Q, P]
    factors = weights.permute(0, 2, 1, 3, 4).reshape(B * H, 1, Q, len(shapes) * P)
    out = (torch.cat(sampled, dim=-1) * factors).sum(-1)  # [B * H, C, Q]
    return out.reshape(B, H * C, Q).transpose(1, 2)


def conv_norm(x, weight, bias, gamma, beta, shape):
    """Convolution, instance norm, ReLU; shape: stride, pads (top, bottom, left, right), padding."""
    import torch.nn.functional as F
    top, bottom, left, right = shape["pads"]
    mode = "reflect" if shape.get("padding", "zero").startswith("refl") else "constant"
    # Equal pads of zeros go to the convolution itself, as anybody would write it.
    if mode == "constant" and top == bottom and left == right:
        y = F.conv2d(x, weight, bias, stride=shape["stride"], padding=(top, left))
    else:
        y = F.conv2d(F.pad(x, (left, right, top, bottom), mode=mode), weight, bias,
                     stride=shape["stride"])
    return F.relu(F.instance_norm(y, weight=gamma, bias=beta, eps=shape.get("eps", 1e-5)))


def output_shape(problem, shape):
    """[batch, channels, height, width] of conv_norm()'s result."""
    top, bottom, left, right = shape["pads"]
    k, stride = problem["kernel"], shape["stride"]
    return (problem["batch"], problem["out_channels"],
            (problem["height"] + top + bottom - k) // stride + 1,
            (problem["width"] + left + right - k) // stride + 1)


def attention(q, k, v, scale):
    import torch.nn.functional as F
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def attention_backward(q, k, v, scale):
    """A function of d_o that returns (dq, dk, dv): the chosen backend's backward operation alone. (By
    autograd's engine it would run in the forward pass's stream, which no graph captures.)"""
    import torch
    out = attention(*(t.detach().requires_grad_() for t in (q, k, v)), scale)
    back = out.grad_fn
    if not back.name().startswith("ScaledDotProduct"):
        raise RuntimeError(f"its backward pass is no single operation: {back.name()}")

    def launch(d_o):
        with torch.no_grad():
            return back(d_o)[:3]
    return launch


def layer_norm(x, scale, bias):
    import torch.nn.functional as F
    return F.layer_norm(x, x.shape[1:], scale, bias, 1e-6)


STRIDES, BATCH_NORM_EPS = (1, 2, 2), 1e-5  # of q's, k's and v's convolution


def projection(x, weights, scales, shifts):
    """CvT's convolutional projection: maps [B, C, H, W] in, those of q, k and v out, normalized."""
    import torch.nn.functional as F
    return [F.batch_norm(F.conv2d(x, w, stride=stride, padding=1, groups=len(w)), None, None, scale,
                         shift, training=True, eps=BATCH_NORM_EPS)
            for w, scale, shift, stride in zip(weights, scales, shifts, STRIDES)]


def projection_statistics(x, weights):
    """What the forward pass keeps: of each convolution (its map, mean, 1 / deviation)."""
    import torch.nn.functional as F
    kept = []
    for w, stride in zip(weights, STRIDES):
        of = F.conv2d(x, w, stride=stride, padding=1, groups=len(w))
        exact = of.float() if of.element_size() < 4 else of
        variance, mean = exact.transpose(0, 1).flatten(1).var(1, correction=0), exact.mean((0, 2, 3))
        kept.append((of, mean, (variance + BATCH_NORM_EPS).rsqrt()))
    return kept


def projection_backward(x, weights, scales, kept, d_out):
    """(dx, then of q, k and v dw, dscale, dshift): the operations that autograd calls."""
    from torch import ops
    dx, others = None, []
    for w, scale, (of, mean, inverse), d, stride in zip(weights, scales, kept, d_out, STRIDES):
        d_map, d_scale, d_shift = ops.aten.native_batch_norm_backward(
            d, of, scale, None, None, mean, inverse, True, BATCH_NORM_EPS, [True] * 3)
        own, dw, _ = ops.aten.convolution_backward(
            d_map, x, w, None, [stride] * 2, [1, 1], [1, 1], False, [0, 0], len(w),
            [True, True, False])
        dx = own if dx is None else dx + own
        others += [dw, d_scale, d_shift]
    return (dx, *others)


def mlp(x, w1, b1, w2, b2):
    """y = x + w2 gelu(w1 x + b1) + b2, by rows."""
    from torch.nn.functional import gelu, linear
    return x + linear(gelu(linear(x, w1, b1)), w2, b2)


def relative_l2(got, expected):
    got, expected = got.double(), expected.double()
    if not bool(got.isfinite().all()):
        return math.inf
    return float((got - expected).norm() / expected.norm())


def worst_l2(got, expected):
    """Of several results, each beside its own."""
    return max(relative_l2(*of) for of in zip(got, expected, strict=True))


def warm_up(launch, finish, count, seconds):
    """launch(0), launch(1), ... `count` times, then for at least `seconds` unless count is 0:
    a GPU that was idle needs that long to raise its clocks. Returns how often."""
    done = 0
    while done < count:
        launch(done)
        done += 1
    finish()
    if not count:
        return 0
    start, batch = time.perf_counter(), 1
    while True:
        for _ in range(batch):
            launch(done)
            done += 1
        finish()
        took = time.perf_counter() - start
        if took >= seconds:
            return done
        if took <= seconds / 2:
            batch *= 2


def calls_of_graph(call_us, copies):
    """Whole rounds through the copies, of a call that takes so long."""
    return copies * math.ceil(GRAPH_US / max(1, call_us) / copies)


def summary(samples):
    return {"median_us": statistics.median(samples), "min_us": min(samples),
            "mean_us": statistics.fmean(samples),
            "std_us": statistics.stdev(samples) if len(samples) > 1 else 0.0,
            "samples": len(samples)}


def words_of(problem):
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    known = isinstance(problem, (RuntimeError, ImportError, NotImplementedError))
    return (lines[0] if known else f"{type(problem).__name__}: {lines[0]}")[:200]


@dataclasses.dataclass
class Formulation:
    """A way to compute a problem: prepare() returns launch(i), i the number of the call. All of it
    happens within context(), entered once a round."""
    name: str
    prepare: typing.Callable
    context: typing.Callable = contextlib.nullcontext
    about: dict = dataclasses.field(default_factory=dict)  # more to say: library, version
    launch: typing.Callable = None
    lacking: str = ""


@dataclasses.dataclass
class Prepared:
    """A problem: its formulations, how far a result is off, how far it may be, copies in turn."""
    formulations: list
    error_of: typing.Callable
    most: float
    copies: int = 1


class Bench:
    """Times what is launched on one device."""

    def __init__(self, device):
        import torch
        self.torch, self.device, self.cuda = torch, device, device == "cuda"
        self.half = self.cuda  # arrays in fp16 where the kernels have them
        self.asked, self.prepared = None, None

    def versions(self):
        """Of what the peers are made of; None: not there."""
        torch = self.torch
        return {"python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__,
                "cuda": torch.version.cuda, "cudnn": self.cudnn(), "triton": version_of("triton"),
                "flash_attn_3": version_of("flash_attn_3", "flash-attn-3"),
                "deformops": version_of("deformops"),
                "cublas": version_of("nvidia-cublas", "nvidia-cublas-cu13"),
                "ms_deform_im2col": classic.COMMIT}

    def cudnn(self):
        return cudnn_version(self.torch.backends.cudnn.version())

    def copies(self, tensors):
        """How many copies of the tensors do not stay in the L2 when used in turn."""
        if not self.cuda:
            return 1
        return rotation_copies(sum(tensor.numel() * tensor.element_size() for tensor in tensors),
                               self.torch.cuda.get_device_properties(0).L2_cache_size)

    def forget(self):
        """What was prepared and compiled for one problem, before another one."""
        import torch._dynamo
        self.asked = self.prepared = None
        gc.collect()
        # A function that is compiled for the ninth time is not compiled at all.
        torch._dynamo.reset()
        if self.cuda:
            torch.cuda.empty_cache()

    def samples(self, launch, warmup, iterations):
        """Microseconds of a launch; launch(i) gets the iteration, to rotate its buffers."""
        if not self.cuda:
            for i in range(warmup):
                launch(i)
            result = []
            for i in range(iterations):
                start = time.perf_counter()
                launch(i)
                result.append(1e6 * (time.perf_counter() - start))
            return result
        event = lambda: self.torch.cuda.Event(enable_timing=True)
        warm_up(launch, self.torch.cuda.synchronize, warmup, WARMUP_S)
        start, stop = event(), event()
        start.record()
        for i in range(3):
            launch(i)
        stop.record()
        self.torch.cuda.synchronize()
        one_us = max(0.1, 1e3 * start.elapsed_time(stop) / 3)
        together = max(1, min(1000, math.ceil(SAMPLE_US / one_us)))
        events = [event()]
        events[0].record()
        for i in range(iterations):
            for j in range(together):
                launch(i * together + j)
            events.append(event())
            events[-1].record()
        self.torch.cuda.synchronize()
        return [1e3 * a.elapsed_time(b) / together for a, b in zip(events, events[1:])]

    def row(self, name, launch, error_of, most, request, copies):
        """Times a launch whose result is within `most`; error_of(out) says how far it is off."""
        off = error_of(launch(0))
        row = {"name": name, **summary(self.samples(launch, request["warmup"],
                                                    request["iterations"])),
               "relative_l2": off if math.isfinite(off) else 1e300, "pass": off <= most}
        if self.cuda and row["pass"] and request["warmup"]:
            row.update(self.in_a_graph(launch, row["median_us"], error_of, most, request, copies))
        return row

    def in_a_graph(self, launch, call_us, error_of, most, request, copies):
        """{"graph_us": of a call when many are replayed from a CUDA graph} or {"no_graph": why}."""
        if call_us > LONG_US:
            return {"no_graph": "a call takes so long that the host's part is nothing"}
        try:
            calls = calls_of_graph(call_us, copies)
            graph, out = self.captured(launch, calls)
            samples = self.samples(lambda _: graph.replay(), request["warmup"],
                                   request["iterations"])
            off = error_of(out)
        except Exception as problem:  # what cannot be captured raises whatever it likes
            with contextlib.suppress(Exception):  # tells the same once more
                self.torch.cuda.synchronize()
            return {"no_graph": words_of(problem)}
        if not off <= most:
            return {"no_graph": f"its replays are wrong: relative L2 {off:.1e}"}
        return {"graph_us": statistics.median(samples) / calls}

    def captured(self, launch, calls):
        """(a CUDA graph of launch(0), ..., launch(calls - 1), what the last one returns)."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what a first call sets up must be there before
            for i in range(3):
                launch(i)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(calls):
                out = launch(i)
        return graph, out

    def rows(self, problem, request):
        """A round: a row of each formulation. What cannot be prepared is not tried again."""
        rows = []
        for of in problem.formulations:
            row = {"name": of.name, **of.about}
            if not of.lacking:
                try:
                    with of.context():
                        if of.launch is None:
                            of.launch = rotated(of.prepare(), problem.copies)
                        of.launch(0)
                        row.update(self.row(of.name, of.launch, problem.error_of, problem.most,
                                            request, problem.copies))
                except Exception as error:  # torch.compile has errors of its own
                    of.lacking = words_of(error)
                    of.launch = None
            rows.append({**row, "lacking": of.lacking} if of.lacking else row)
            if self.cuda:
                self.torch.cuda.empty_cache()
        return rows

    def compiled(self, function):
        """Compiled for the shapes of this problem alone: a second shape would make the first one's
        code general."""
        return self.torch.compile(function, dynamic=False)

    def round_of(self, request):
        """The rows of the request, whose problem is prepared where it is not the last one's; of the
        family "forget" none, and its memory is free then."""
        if request["family"] == "forget":
            self.forget()
            return {"rows": []}
        family = {of.__name__: of for of in (
            self.attention, self.attention_backward, self.deformable, self.conv_norm, self.layer_norm,
            self.mlp, self.projection, self.projection_backward, self.vit)}.get(request["family"])
        if family is None:
            return {"refused": f"no family '{request['family']}'"}
        asked = (request["family"], request["problem"])
        if asked != self.asked:
            self.forget()
            self.prepared = family(request["problem"])
            self.asked = asked
        return {"rows": self.rows(self.prepared, request)}

    # ---- the families ----------------------------------------------------------------------------

    def attention(self, problem):
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        shape = [problem[name] for name in ("batch", "heads", "tokens", "head_dim")]
        scale = problem.get("scale", shape[3] ** -0.5)
        torch.manual_seed(1)
        dtype = torch.float16 if self.half else torch.float32
        # Scores with a deviation of 3: peaked, as those of patches that look for each other.
        make = lambda factor: (factor * torch.randn(shape, device=self.device)).to(dtype)
        first = [make(3 / (scale * math.sqrt(shape[3]))), make(1), make(1)]
        count = self.copies(first + first[:1])
        sets = [first] + [[t.clone() for t in first] for _ in range(count - 1)]
        q, k, v = (t[[0, -1]][:, [0, -1]].double() for t in first)  # corners of batch and heads
        expected = torch.softmax(q @ k.transpose(-1, -2) * scale, -1) @ v

        launch = lambda i: attention(*sets[i % count], scale)
        cudnn = {"library": f"cuDNN {self.cudnn()}"} if self.cudnn() else {}
        backends = [("flash", "FLASH_ATTENTION", {}), ("cudnn", "CUDNN_ATTENTION", cudnn),
                    ("efficient", "EFFICIENT_ATTENTION", {}), ("math", "MATH", {})]
        # The backend is chosen outside of what is timed.
        formulations = [
            Formulation(name, lambda: launch,
                        lambda which=which: sdpa_kernel(getattr(SDPBackend, which)), about)
            for name, which, about in backends]
        formulations.append(self.flash_attention_3(sets, scale, count))
        return Prepared(formulations,
                        lambda out: relative_l2(out[[0, -1]][:, [0, -1]], expected),
                        most_error("attention", "float16" if self.half else "float32"), count)

    def flash_attention_3(self, sets, scale, count):
        """By its own package: PyTorch's flash backend is FlashAttention-2."""
        def prepare():
            try:
                flash = importlib.import_module("flash_attn_interface")
            except ImportError as error:
                raise RuntimeError(f"FlashAttention-3 is not installed: {error}") from None
            if self.cuda and self.torch.cuda.get_device_capability() != (9, 0):
                raise RuntimeError("FlashAttention-3 is for compute capability 9.0, this GPU has "
                                   "{}.{}".format(*self.torch.cuda.get_device_capability()))
            # [batch, tokens, heads, head_dim], as it wants them.
            own = [[t.transpose(1, 2).contiguous() for t in tensors] for tensors in sets]

            def launch(i):
                out = flash.flash_attn_func(*own[i % count], softmax_scale=scale)
                return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
            return launch
        version = version_of("flash_attn_3", "flash-attn-3")
        return Formulation("FlashAttention-3", prepare, about={
            "by": "Dao-AILab", **({"library": f"flash_attn_3 {version}"} if version else {})})

    def attention_backward(self, problem):
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        shape = [problem[name] for name in ("batch", "heads", "tokens", "head_dim")]
        scale = problem.get("scale", shape[3] ** -0.5)
        torch.manual_seed(1)
        dtype = torch.float16 if self.half else torch.float32
        first = [torch.randn(shape, device=self.device).to(dtype) for _ in range(4)]  # q, k, v, d_o
        count = self.copies(first + first)
        sets = [first] + [[t.clone() for t in first] for _ in range(count - 1)]
        some = [t[[0, -1]][:, [0, -1]].double() for t in first]
        exact = [t.requires_grad_() for t in some[:3]]
        o = torch.softmax(exact[0] @ exact[1].transpose(-1, -2) * scale, -1) @ exact[2]
        expected = torch.autograd.grad(o, exact, some[3])

        def launch_of():
            launches = [attention_backward(*tensors[:3], scale) for tensors in sets]
            return lambda i: launches[i % count](sets[i % count][3])
        cudnn = {"library": f"cuDNN {self.cudnn()}"} if self.cudnn() else {}
        return Prepared(
            [Formulation(name, launch_of,
                         lambda which=which: sdpa_kernel(getattr(SDPBackend, which)), about)
             for name, which, about in (("flash", "FLASH_ATTENTION", {}),
                                        ("cudnn", "CUDNN_ATTENTION", cudnn),
                                        ("efficient", "EFFICIENT_ATTENTION", {}))],
            lambda out: worst_l2([t[[0, -1]][:, [0, -1]] for t in out], expected),
            most_error("attention_backward", "float16" if self.half else "float32"), count)

    def layer_norm(self, problem):
        torch = self.torch
        half = self.half and problem.get("storage") != "fp32"
        torch.manual_seed(1)
        make = lambda *shape: torch.randn(shape, device=self.device).to(
            torch.float16 if half else torch.float32)
        columns = problem["columns"]
        first = [make(problem["rows"], columns), make(columns), make(columns)]
        count = self.copies([*first, first[0]])
        sets = [first] + [[t.clone() for t in first] for _ in range(count - 1)]
        expected = layer_norm(*(t.double() for t in first))

        def launch_of(function):
            return lambda i: function(*sets[i % count])
        return Prepared([Formulation("eager", lambda: launch_of(layer_norm)),
                         Formulation("compiled", lambda: launch_of(self.compiled(layer_norm)))],
                        lambda out: relative_l2(out, expected),
                        most_error("layer_norm", "float16" if half else "float32"), count)

    def projection_arrays(self, problem):
        """x as [B, C, H, W] whose memory is [B, tokens, C], weights, scales, shifts."""
        torch = self.torch
        torch.manual_seed(1)
        dtype = torch.float16 if self.half and problem.get("dtype") != "fp32" else torch.float32
        make = lambda factor, *shape: (factor * torch.randn(shape, device=self.device)).to(dtype)
        B, H, W, C, first = (problem[name] for name in
                             ("batch", "height", "width", "channels", "class_tokens"))
        map_of = lambda tokens, h, w: tokens[:, first:].reshape(B, h, w, C).permute(0, 3, 1, 2)
        x = map_of(make(1, B, first + H * W, C), H, W)
        d_out = [map_of(make(1, B, first + h * w, C), h, w) for h, w in
                 (((H - 1) // stride + 1, (W - 1) // stride + 1) for stride in STRIDES)]
        of_each = lambda *shape: [make(1, *shape) for _ in STRIDES]
        return (x, of_each(C, 1, 3, 3), of_each(C), of_each(C)), d_out

    def projection(self, problem):
        first, d_out = self.projection_arrays(problem)
        count = self.copies([first[0], *d_out])
        copy = lambda of: [t.clone() for t in of] if isinstance(of, list) else of.clone()
        sets = [first] + [tuple(map(copy, first)) for _ in range(count - 1)]
        expected = projection(*([t.double() for t in of] if isinstance(of, list) else of.double()
                                for of in first))

        def launch_of(function):
            return lambda i: function(*sets[i % count])
        return Prepared([Formulation("eager", lambda: launch_of(projection)),
                         Formulation("compiled", lambda: launch_of(self.compiled(projection)))],
                        lambda out: worst_l2(out, expected),
                        most_error("projection", "float16" if self.half else "float32"), count)

    def projection_backward(self, problem):
        (x, weights, scales, _), d_out = self.projection_arrays(problem)
        kept = projection_statistics(x, weights)
        count = self.copies([x, x, *d_out, *(of for of, _, _ in kept)])
        clones = lambda tensors: [t.clone() for t in tensors]
        sets = [(x, weights, scales, kept, d_out)] + [
            (x.clone(), clones(weights), clones(scales), [clones(of) for of in kept], clones(d_out))
            for _ in range(count - 1)]
        double = lambda tensors: [t.double() for t in tensors]
        exact = projection_statistics(x.double(), double(weights))
        expected = projection_backward(x.double(), double(weights), double(scales), exact,
                                       double(d_out))

        def launch_of(function):
            return lambda i: function(*sets[i % count])
        return Prepared(
            [Formulation("eager", lambda: launch_of(projection_backward)),
             Formulation("compiled", lambda: launch_of(self.compiled(projection_backward)))],
            lambda out: worst_l2(out, expected),
            most_error("projection_backward", "float16" if self.half else "float32"), count)

    def deformable(self, problem):
        torch = self.torch
        B, Q, H, C, P = (problem[name]
                         for name in ("batch", "queries", "heads", "channels", "points"))
        shapes = problem.get("level_sizes") or [[92, 160], [46, 80], [23, 40], [12, 20]]
        if len(shapes) != problem["levels"] or sum(h * w for h, w in shapes) != problem["pixels"]:
            raise ValueError(f"{problem['levels']} levels of {problem['pixels']} pixels in all are "
                             f"not those of {shapes}")
        L = len(shapes)
        torch.manual_seed(1)
        dtype = torch.float16 if self.half else torch.float32
        random = lambda *size: torch.randn(size, device=self.device)
        value = random(B, problem["pixels"], H, C).to(dtype)
        weights = torch.softmax(random(B, Q, H, L * P), -1).reshape(B, Q, H, L, P).to(dtype)
        if problem.get("distribution") == "uniform":
            locations = torch.rand(B, Q, H, L, P, 2, device=self.device)
        else:  # 2 pixels around a raster of queries over the first level
            sizes = torch.tensor([[w, h] for h, w in shapes], device=self.device)
            columns = math.ceil(math.sqrt(Q * shapes[0][1] / shapes[0][0]))
            index = torch.arange(Q, device=self.device)
            rows = math.ceil(Q / columns)
            raster = torch.stack(
                [(index % columns + 0.5) / columns, (index // columns + 0.5) / rows], -1)
            locations = raster[None, :, None, None, None] + 2 * random(B, Q, H, L, P, 2) / \
                sizes[:, None]
        locations = locations.to(dtype)
        first = [value, locations, weights]
        count = self.copies(first + [value.new_empty(B, Q, H * C)])
        sets = [first] + [[t.clone() for t in first] for _ in range(count - 1)]
        part = min(Q, 64)  # queries of the last image
        expected = deformable(value[-1:].double(), shapes, locations[-1:, :part].double(),
                              weights[-1:, :part].double())

        def launch_of(function):
            return lambda i: function(sets[i % count][0], shapes, *sets[i % count][1:])

        def classic_operator():
            if not self.half:
                raise RuntimeError("the classic operator is built for half, on a GPU")
            operator = classic.Operator.built(torch)
            return lambda i: operator(sets[i % count][0], shapes, *sets[i % count][1:])

        def deformops():
            try:
                from deformops.registry import msda
            except ImportError as error:
                raise RuntimeError(f"deformops is not installed: {error}") from None
            sizes = torch.tensor(shapes, device=self.device)
            starts = torch.cat([sizes.new_zeros(1), sizes.prod(1).cumsum(0)[:-1]])

            def launch(i):
                value, locations, weights = sets[i % count]
                return msda(value, sizes, starts, locations, weights).reshape(B, Q, H * C)
            return launch
        version = version_of("deformops")
        return Prepared(
            [Formulation("ms_deform_im2col, half", classic_operator,
                         about={"by": "Deformable-DETR", "library": classic.COMMIT[:12]}),
             Formulation("deformops", deformops,
                         about={"library": f"deformops {version}"} if version else {}),
             Formulation("grid_sample", lambda: launch_of(deformable)),
             Formulation("grid_sample, compiled", lambda: launch_of(self.compiled(deformable)))],
            lambda out: relative_l2(out[-1:, :part], expected),
            most_error("deformable", "float16" if self.half else "float32"), count)

    def vit(self, problem):
        torch = self.torch
        torch.manual_seed(1)
        dtype = torch.float16 if self.half else torch.float32
        make = lambda deviation, *size: (deviation * torch.randn(size, device=self.device)).to(dtype)
        weights = vit_parameters(problem, make)
        image = make(1, problem["batch"], 3, problem["size"], problem["size"])
        count = self.copies([image, *weights.values()])
        sets = [(image, weights)] + [(image.clone(), {n: t.clone() for n, t in weights.items()})
                                     for _ in range(count - 1)]
        part = 1 if self.cuda else problem["batch"]  # images that are computed in double, too
        expected = vit(image[:part].double(), {n: t.double() for n, t in weights.items()}, problem)

        def launch_of(function):
            return lambda i: function(*sets[i % count], problem)
        return Prepared([Formulation("eager", lambda: launch_of(vit)),
                         Formulation("compiled", lambda: launch_of(self.compiled(vit)))],
                        lambda out: relative_l2(out[:part], expected),
                        most_error("vit", "float16" if self.half else "float32"), count)

    def conv_norm(self, problem):
        torch = self.torch
        precision = problem.get("precision", "fp32")
        if precision == "fp16" and problem.get("storage") != "fp16":
            raise ValueError("PyTorch has no fp16 products of arrays in fp32: --storage fp16")
        half = precision == "fp16" and self.half
        # The same arithmetic on both sides: TF32 only where the kernel has it.
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        k = problem["kernel"]
        shape = {"stride": problem.get("stride", 1), "padding": problem.get("padding", "zero"),
                 "pads": problem.get("pads", [k // 2] * 4), "eps": problem.get("eps", 1e-5)}
        torch.manual_seed(1)
        dtype = torch.float16 if half else torch.float32
        make = lambda *size: torch.randn(size, device=self.device).to(dtype)
        C_in, C_out = problem["in_channels"], problem["out_channels"]
        first = [make(problem["batch"], C_in, problem["height"], problem["width"]),
                 make(C_out, C_in, k, k), make(C_out), make(C_out), make(C_out)]
        count = self.copies(first + [first[0].new_empty(output_shape(problem, shape))])
        sets = [first] + [[t.clone() for t in first] for _ in range(count - 1)]
        exact = [t.double() for t in first]
        if self.cuda:  # one image is enough, in double
            exact[0] = exact[0][:1]
        expected = conv_norm(*exact, shape)
        most = most_error("conv_norm",
                          "float16" if half else "tf32" if precision == "tf32" else "float32")

        def launch_of(function, layout=None):
            used = sets
            if layout:  # of x and the weights, as a network in that layout has them
                used = [[t.to(memory_format=layout) if t.dim() == 4 else t for t in tensors]
                        for tensors in sets]
            return lambda i: function(*used[i % count], shape)
        last = torch.channels_last
        about = {"library": f"cuDNN {self.cudnn()}"} if self.cudnn() else {}
        formulations = [Formulation(*of, about=about) for of in (
            ("eager", lambda: launch_of(conv_norm)),
            ("eager, channels last", lambda: launch_of(conv_norm, last)),
            ("compiled", lambda: launch_of(self.compiled(conv_norm))),
            ("compiled, channels last", lambda: launch_of(self.compiled(conv_norm), last)))]
        return Prepared(formulations, lambda out: relative_l2(out[:len(expected)], expected), most,
                        count)

    def mlp(self, problem):
        torch = self.torch
        rows, width, hidden = (problem[name] for name in ("rows", "width", "hidden"))
        half = self.half and problem.get("storage") != "fp32"
        dtype = torch.float16 if half else torch.float32
        torch.manual_seed(1)
        make = lambda factor, *shape: (factor * torch.randn(shape, device=self.device)).to(dtype)
        first = [make(1, rows, width), make(width ** -0.5, hidden, width), make(0.25, hidden),
                 make(hidden ** -0.5, width, hidden), make(0.25, width)]
        count = self.copies([*first, first[0], first[0].new_empty((rows, hidden))])
        sets = [first] + [[t.clone() for t in first] for _ in range(count - 1)]
        some = [*range(min(8, rows)), *range(-min(8, rows), 0)]
        expected = mlp(first[0][some].double(), *(t.double() for t in first[1:]))

        def launch_of(function):
            return lambda i: function(*sets[i % count])

        @contextlib.contextmanager
        def in_tf32():  # the same arithmetic on both sides
            of = torch.backends.cuda.matmul
            before, of.allow_tf32 = of.allow_tf32, True
            try:
                yield
            finally:
                of.allow_tf32 = before
        formulations = [
            Formulation("eager", lambda: launch_of(mlp), in_tf32),
            Formulation("compiled", lambda: launch_of(self.compiled(mlp)), in_tf32),
            Formulation("cuBLASLt", lambda: self.cublaslt_mlp(sets, half), about={"by": "NVIDIA"})]
        return Prepared(formulations, lambda out: relative_l2(out[some], expected),
                        most_error("mlp", "float16" if half else "float32"), count)

    def cublaslt_mlp(self, sets, half):
        """Two launches: bias and GELU, then bias and residual, in the products' epilogues."""
        torch = self.torch
        library = cublaslt.Library()
        workspace = torch.empty(cublaslt.WORKSPACE_BYTES, dtype=torch.uint8, device=self.device)
        stream = lambda: torch.cuda.current_stream().cuda_stream if self.cuda else None
        calls, outputs = [], []
        for x, w1, b1, w2, b2 in sets:
            (rows, width), hidden = x.shape, w1.shape[0]
            between, y = x.new_empty((rows, hidden)), torch.empty_like(x)
            for product, arrays in (
                    (cublaslt.Product(library, (rows, hidden, width), half, b1.data_ptr(),
                                      gelu=True, residual=False), (x, w1, between, between)),
                    (cublaslt.Product(library, (rows, width, hidden), half, b2.data_ptr(),
                                      gelu=False, residual=True), (between, w2, x, y))):
                pointers = [array.data_ptr() for array in (*arrays, workspace)]
                calls.append((product, pointers))
            outputs.append((y, between))  # kept as long as the calls

        def run(call):
            product, pointers = call
            product.run(*pointers, stream())
        for which in (0, 1):
            product = calls[which][0]
            product.choose(lambda: statistics.median(
                self.samples(lambda i: run(calls[which]), 1, 5)))
            for other, _ in calls[which + 2::2]:  # the same shape, and the same order of guesses
                other.chosen = other.algorithms[product.algorithms.index(product.chosen)]

        def launch(i):
            of = i % len(sets)
            run(calls[2 * of])
            run(calls[2 * of + 1])
            return outputs[of][0]
        return launch


def vit_parameters(problem, make):
    """Weights as training begins with: {name: tensor}; make(deviation, *sizes)."""
    width, tokens, hidden = problem["width"], problem["tokens"], 4 * problem["width"]
    weights = {"patch": make(1 / math.sqrt(768), width, 3, 16, 16), "patch_bias": make(0.02, width),
               "class": make(0.02, 1, 1, width), "position": make(0.02, 1, tokens, width),
               "head": make(0.02, problem["classes"], width),
               "head_bias": make(0.02, problem["classes"])}
    for i in range(problem["blocks"] + 1):
        for name in ("norm1", "norm2") if i < problem["blocks"] else ("norm",):
            weights[f"{i}.{name}"] = 1 + make(0.02, width)
            weights[f"{i}.{name}_bias"] = make(0.02, width)
        for name, out, into in (("qkv", 3 * width, width), ("proj", width, width),
                                ("fc1", hidden, width), ("fc2", width, hidden)):
            if i < problem["blocks"]:
                weights[f"{i}.{name}"] = make(0.02, out, into)
                weights[f"{i}.{name}_bias"] = make(0.02, out)
    return weights


def vit(image, weights, problem):
    """A Vision Transformer as PyTorch users write it: [batch, 3, size, size] to [batch, classes]."""
    import torch
    import torch.nn.functional as F
    heads, width, blocks = problem["heads"], problem["width"], problem["blocks"]

    def linear(x, name):
        return F.linear(x, weights[name], weights[name + "_bias"])

    def norm(x, name):
        return F.layer_norm(x, (width,), weights[name], weights[name + "_bias"], 1e-6)
    x = F.conv2d(image, weights["patch"], weights["patch_bias"], stride=16)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([weights["class"].expand(x.shape[0], -1, -1), x], 1) + weights["position"]
    B, N, _ = x.shape
    for i in range(blocks):
        qkv = linear(norm(x, f"{i}.norm1"), f"{i}.qkv").reshape(B, N, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v)
        x = x + linear(o.transpose(1, 2).reshape(B, N, width), f"{i}.proj")
        x = x + linear(F.gelu(linear(norm(x, f"{i}.norm2"), f"{i}.fc1")), f"{i}.fc2")
    return linear(norm(x[:, 0], f"{blocks}.norm"), "head")


def answer(bench, line):
    return bench.round_of(json.loads(line))


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed, by compilers too, is no answer
    say = lambda what: print(json.dumps(what), file=answers, flush=True)
    device = "cpu" if sys.argv[1:] == ["--device", "cpu"] else "cuda"
    try:
        import torch
    except ImportError:
        say({"lacking": "PEERS=torch needs PyTorch: no torch for " + sys.executable})
        return 3
    if device == "cuda" and not torch.cuda.is_available():
        say({"lacking": "PEERS=torch needs a PyTorch with CUDA; this one sees no GPU"})
        return 3
    bench = Bench(device)
    say({"device": torch.cuda.get_device_name(0) if device == "cuda" else "CPU",
         "versions": bench.versions()})
    for line in sys.stdin:
        try:
            say(answer(bench, line))
        except Exception as problem:  # one problem that fails is no end of the others
            say({"refused": f"{type(problem).__name__}: {problem}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
