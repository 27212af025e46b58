"""What the tests share: the browser, pages made of objects, and small objects made by hand."""
import json
import os
import pathlib
import tempfile
import unittest

import browser

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
PAGE = HERE.parent / "page"
CHROMIUM = browser.executable()


def page(data):
    """The text of a page with these data: an object, or a text that stands in it as it is."""
    files = [line.strip() for line in (PAGE / "files.txt").read_text().splitlines()
             if line.strip() and not line.startswith("#")]
    text = {kind: "".join((PAGE / name).read_text() for name in files if name.endswith("." + kind))
            for kind in ("css", "js")}
    text["data"] = (data if isinstance(data, str) else json.dumps(data)).replace("<", "\\u003c")
    out = (PAGE / "page.html").read_text()
    for kind, content in text.items():
        marker = f"<!-- look:{kind} -->\n"
        assert out.count(marker) == 1, marker
        out = out.replace(marker, content + "\n")
    return out


@unittest.skipUnless(CHROMIUM, "no Chromium here (Debian's package chromium)")
class PageTest(unittest.TestCase):
    """Tests in one browser, each with a page of its own. None may leave an error in the console."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = browser.Browser(CHROMIUM)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def open(self, data, **how):
        """Opens the page of an object, or of a file that a program has written."""
        path = data
        if not isinstance(data, pathlib.Path):
            path = pathlib.Path(self.folder.name) / "look.html"
            path.write_text(page(data))
        self.browser.open(path, **how)
        return self.browser

    def tearDown(self):
        self.assertEqual(self.browser.errors, [], "the console has errors")
        foreign = [url for url in self.browser.requests if not url.startswith(("file:", "data:"))]
        self.assertEqual(foreign, [], "the page asks the network")


# ---- objects made by hand -----------------------------------------------------------------------

STRIDED = """// Copies every 32nd element.
__global__ void strided(const float* in, float* out) {
  __shared__ float tile[1024];
  const int i = threadIdx.x * 32;
  tile[i] = in[i];
  __syncthreads();
  out[threadIdx.x] = tile[i];  // </script><b id="injected">bold</b>
}""".split("\n")
DENSE = [line.replace("every 32nd element", "neighbours").replace("strided", "dense")
         .replace("threadIdx.x * 32", "threadIdx.x") for line in STRIDED]
ALL = 0xffffffff


def report(name, us, sectors, limits):
    return {
        "kernel": name, "device": "NVIDIA H200", "device_key": "h200", "grid": [2, 1, 1],
        "block": [64, 1, 1], "blocks": 2, "warps": 4, "threads": 128, "static_shared": 4096,
        "dynamic_shared": 0, "registers": 16, "warp_instructions": 40, "thread_instructions": 1280,
        "global": {"load": {"requests": 12, "sectors": sectors}}, "dram_bytes": 12288,
        "occupancy": {"blocks_per_sm": 32, "warps_per_sm": 64, "fraction": 1.0,
                      "limiter": "warps", "waves": 0.0005},
        "limits": limits, "limit": {"name": "DRAM", "us": limits["DRAM"]},
        "predicted": {"us": us, "error": 0.25, "clocks": 1000, "blocks_simulated": 1,
                      "stalls": {"selected": 0.1, "long_scoreboard": 0.8, "barrier": 0.1}}}


def launch(name, source, step, us):
    """A kernel of two warps. A lane's load is `step` bytes behind that of the lane before it."""
    sectors = max(4, min(32, step))  # of a warp's load: 32 lanes of 4 bytes
    ways = min(32, max(1, step // 4))  # words of the fullest bank
    ptx = [
        {"t": "mov.u32 %r1, %tid.x;", "n": 20, "f": source, "l": 4,
         "c": {"executed": 12, "threads": 384, "time": 24, "stalls": {"selected": 12, "wait": 12}}},
        {"t": "ld.global.f32 %f1, [%rd1];", "n": 21, "f": source, "l": 5,
         "c": {"executed": 12, "threads": 384, "requests": 12, "sectors": 12 * sectors, "ideal": 48,
               "time": 800, "stalls": {"selected": 12, "long_scoreboard": 788}}},
        {"t": "st.shared.f32 [%r2], %f1;", "n": 22, "f": source, "l": 5,
         "c": {"executed": 12, "threads": 384, "shared_requests": 12, "wavefronts": 12 * ways,
               "conflicts": 12 * (ways - 1), "time": 100,
               "stalls": {"selected": 12, "short_scoreboard": 88}}},
        {"t": "bar.sync 0;", "n": 23, "f": source, "l": 6,
         "c": {"executed": 4, "threads": 128, "time": 76, "stalls": {"barrier": 72, "selected": 4}}},
        {"t": "$L__BB0_2:", "n": 24, "f": -1, "l": 0},
        {"t": "ret;", "n": 25, "f": source, "l": 8, "c": {"executed": 4, "threads": 128}}]
    accesses = [{"i": 0, "w": w, "k": k, "m": ALL, "a": "in", "s": sectors if k < 2 else 4,
                 "o": {"first": 4096 * w + 32 * k, "step": step if k < 2 else 4}}
                for w in (0, 1) for k in (0, 1, 2)]
    accesses += [{"i": 1, "w": w, "k": 0, "m": 0xffff if w else ALL, "v": ways, "d": 1,
                  "o": [lane * step if lane < 16 or not w else None for lane in range(32)]}
                 for w in (0, 1)]
    block = [[[0, 10, "compute", 0, "selected"], [10, 12, "load", 1, "selected"],
              [12, 400, "wait", 2, "long_scoreboard"], [400, 402, "store", 2, "selected"],
              [402, 440 + 40 * w, "wait", 1, "wait"], [440 + 40 * w, 442 + 40 * w, "load", 1, "selected"],
              [442 + 40 * w, 900, "barrier", 3, "barrier"]] for w in (0, 1)]
    return {
        "kernel": name, "count": 3, "index": source, "findings": [], "flops": 1.2e6, "dram_bytes": 12288,
        "report": report(name, us, 12 * sectors, {"DRAM": us / 4, "issue": us / 10, "tensor": 0.0,
                                                  "L2": "not modelled"}),
        "ptx": ptx,
        "sass": [{"t": "S2R R1, SR_TID.X  stall 2", "pc": 0, "p": 0, "c": {"executed": 12, "time": 24}},
                 {"t": "LDG.E R2, [R4.64]  stall 4", "pc": 16, "p": 1, "c": {"executed": 12, "time": 800}},
                 {"t": "STS [R6], R2  stall 1", "pc": 32, "p": 2, "c": {"executed": 12, "time": 100}},
                 {"t": "BAR.SYNC 0x0  stall 5", "pc": 48, "p": 3, "c": {"executed": 4, "time": 76}},
                 {"t": "NOP  stall 1", "pc": 64, "p": -1}],
        "accesses": {"block": 0, "list": accesses, "left_out": 7, "instructions": [
            {"p": 1, "space": "global", "kind": "load", "bytes": 4, "executed": 6},
            {"p": 2, "space": "shared", "kind": "store", "bytes": 4, "executed": 6}]},
        "warps": {"block": 0, "clocks": 900, "clock_mhz": 1980, "resolution": 1, "warps": block}}


def two_kernels():
    """strided: 32 sectors a load and 32 words in one bank; dense: 4 sectors, no conflict."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "host (modelled)"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "CUDA calls"}},
        {"ph": "M", "name": "thread_name", "pid": 2, "tid": 5, "args": {"name": "the default stream"}},
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 9, "args": {"name": "SM 0 of strided"}},
        {"ph": "X", "name": "cudaMalloc", "cat": "call", "pid": 1, "tid": 1, "ts": 0, "dur": 10, "args": {}},
        {"ph": "X", "name": "strided", "cat": "kernel", "pid": 2, "tid": 5, "ts": 12.5, "dur": 8,
         "args": {"duration": "predicted", "grid": "(2, 1, 1)"}},
        {"ph": "X", "name": "selected", "cat": "warp", "pid": 9, "tid": 9, "ts": 12.5, "dur": 1, "args": {}}]
    return {
        "version": 1, "program": "copies", "arguments": ["--size", "64"], "toolkit": "ptxas V13.0.88",
        "device": {"name": "NVIDIA H200", "key": "h200", "compute_capability": "9.0", "sms": 132,
                   "clock_mhz": 1980, "peaks": {"DRAM": 4.8e12, "L2": None, "fp32": 66.9e12,
                                                "tensor": 7.1e14, "wgmma": 1.07e15}},
        "findings": [], "detail": 1, "launches_left_out": 0,
        "sources": [{"path": "copies/strided.cuh", "lines": STRIDED},
                    {"path": "copies/dense.cuh", "lines": DENSE}],
        "launches": [launch("strided", 0, 128, 8.0), launch("dense", 1, 4, 2.0)],
        "timeline": {"traceEvents": events, "left_out": 3}}
