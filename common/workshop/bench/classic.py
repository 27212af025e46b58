#!/usr/bin/env python3
"""The classic operator of deformable attention, a peer of chapter 7, built for half.

    classic.py fetch               its source into build/peers, where it is not there yet
    classic.py build INCLUDE ARCH  also compiled for ARCH; INCLUDE: PyTorch's headers

ms_deform_im2col of Deformable-DETR (SenseTime, Apache License 2.0): a thread for each output
channel. Nothing of it is in this repository. Its header is fetched from a pinned commit, known by
its SHA-256, together with its licence, and compiled as it is: PyTorch's c10::Half takes the place
of the float or double for which its authors' build instantiates it (mmcv builds the same kernel for
c10::Half), and classic_operator.inc launches it. Where there is no network, put the files there by
hand.

Exit status: 0 done, 2 bad usage or input, 3 what is missing.
"""
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.request

import results
from results import Lacking, Refused

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(HERE))), "build", "peers")
COMMIT = "11169a60c33333af00a4849f1808023eba96a931"
SITE = f"https://raw.githubusercontent.com/fundamentalvision/Deformable-DETR/{COMMIT}/"
HEADER = "ms_deform_im2col_cuda.cuh"
# Name here: path there, SHA-256.
FILES = {
    HEADER: ("models/ops/src/cuda/" + HEADER,
             "136729520587cbf0593209d692af61a1e8af5909bcf34b8bacb8844878496bad"),
    "LICENSE": ("LICENSE", "068413f8cf5e42e34d6e171e45a779df6dbea0a18249c0a223a3878e6de3cb27"),
}
# Of PyTorch the header includes these, for its backward pass; the kernel needs nothing of them.
EMPTY = ("ATen/ATen.h", "ATen/cuda/CUDAContext.h", "THC/THCAtomics.cuh")
WRAPPER = os.path.join(HERE, "classic_operator.inc")
SECONDS, COMPILE_SECONDS = 20, 200


def fetch(folder=FOLDER, site=SITE, files=None):
    """Path of the header. Throws Lacking without it and a network, Refused for other content."""
    for name, (path, wanted) in (files or FILES).items():
        target = os.path.join(folder, name)
        if not os.path.exists(target):
            try:
                with urllib.request.urlopen(site + path, timeout=SECONDS) as answer:
                    content = answer.read()
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", error)
                raise Lacking(f"the classic operator cannot be fetched: {site + path}: {reason}; "
                              f"put that file into {folder}") from None
            check(site + path, content, wanted)
            os.makedirs(folder, exist_ok=True)
            part = f"{target}.{os.getpid()}.part"
            with open(part, "wb") as file:
                file.write(content)
            os.replace(part, target)
        else:
            with open(target, "rb") as file:
                check(target, file.read(), wanted)
    return os.path.join(folder, HEADER)


def check(what, content, wanted):
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise Refused(f"{what}: its SHA-256 is {found}, that of the pinned file is {wanted}")


def compiler():
    """Path of nvcc, of the variable NVCC, of PATH or of the usual folder. Throws Lacking."""
    for path in (os.environ.get("NVCC"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.path.exists(path):
            return path
    raise Lacking("the classic operator needs nvcc, the CUDA Toolkit's compiler: none in PATH")


def build(header, include, arch, folder=FOLDER, more=()):
    """Path of a library with launch_ms_deform_im2col(), compiled where it is not there yet."""
    nvcc, flags = compiler(), ["-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", "-w",
                               f"-arch={arch}", *more]
    if os.environ.get("CUDA_LIB"):  # a toolkit of wheels, whose nvcc does not know the place
        flags.append("-L" + os.environ["CUDA_LIB"])
    version = subprocess.run([nvcc, "--version"], text=True, capture_output=True, check=False,
                             timeout=60).stdout
    key = hashlib.sha256("\n".join([version, include, *flags]).encode())
    for path in (header, WRAPPER):
        with open(path, "rb") as file:
            key.update(file.read())
    library = os.path.join(folder, f"classic_operator-{key.hexdigest()[:16]}.so")
    if os.path.exists(library):
        return library
    empty = os.path.join(folder, "empty")
    for name in EMPTY:
        results.write(os.path.join(empty, name), "")
    part = f"{library[:-3]}.{os.getpid()}.part.so"
    command = [nvcc, *flags, "-I", empty, "-I", os.path.dirname(header), "-I", include, "-x", "cu",
               WRAPPER, "-o", part]
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False,
                              timeout=COMPILE_SECONDS)
        if done.returncode != 0:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line]
            raise Lacking("the classic operator does not compile: "
                          f"{lines[0] if lines else 'nvcc says nothing'}")
        os.replace(part, library)
    except subprocess.TimeoutExpired:
        raise Lacking(f"the classic operator: nvcc took more than {COMPILE_SECONDS} s") from None
    finally:
        if os.path.exists(part):
            os.remove(part)
    return library


class Operator:
    """Called with PyTorch's tensors: value [B, S, H, C], shapes [(height, width)] of the levels,
    locations [B, Q, H, L, P, 2], weights [B, Q, H, L, P]; returns [B, Q, H * C]."""

    def __init__(self, torch, launch):
        self.torch, self.launch, self.levels = torch, launch, {}

    @classmethod
    def built(cls, torch):
        major, minor = torch.cuda.get_device_capability()
        include = os.path.join(os.path.dirname(torch.__file__), "include")
        if not os.path.exists(os.path.join(include, "c10", "util", "Half.h")):
            include = "/usr/include"  # of a distribution's package
        return cls(torch, loaded(build(fetch(), include, f"sm_{major}{minor}")))

    def of_levels(self, shapes, device):
        """Sizes and first pixels of the levels, int64 on the device, made once."""
        key = tuple(map(tuple, shapes))
        if key not in self.levels:
            starts = [sum(h * w for h, w in key[:level]) for level in range(len(key))]
            make = lambda what: self.torch.tensor(what, dtype=self.torch.int64, device=device)
            self.levels[key] = make(key), make(starts)
        return self.levels[key]

    def __call__(self, value, shapes, locations, weights):
        torch = self.torch
        for tensor in (value, locations, weights):
            if tensor.dtype != torch.float16 or not tensor.is_contiguous():
                raise RuntimeError("the classic operator takes contiguous tensors in fp16")
        sizes, starts = self.of_levels(shapes, value.device)
        B, pixels, H, C = value.shape
        Q, L, P = locations.shape[1], locations.shape[3], locations.shape[4]
        out = value.new_empty(B, Q, H * C)
        stream = torch.cuda.current_stream().cuda_stream
        status = self.launch(value.data_ptr(), sizes.data_ptr(), starts.data_ptr(),
                             locations.data_ptr(), weights.data_ptr(), B, pixels, H, C, L, Q, P,
                             out.data_ptr(), stream)
        if status:
            raise RuntimeError(f"the classic operator's launch failed with CUDA error {status}")
        return out


def loaded(library):
    """launch(value, sizes, starts, locations, weights, 7 sizes, out, stream), returns an error."""
    try:
        function = ctypes.CDLL(library).launch_ms_deform_im2col
    except (OSError, AttributeError) as error:
        raise Lacking(f"the classic operator: {error}") from None
    function.argtypes = 5 * [ctypes.c_void_p] + 7 * [ctypes.c_int] + 2 * [ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function


def main():
    try:
        if sys.argv[1:] == ["fetch"]:
            print(fetch())
        elif len(sys.argv) == 4 and sys.argv[1] == "build":
            print(build(fetch(), *sys.argv[2:]))
        else:
            print("usage: classic.py fetch, or classic.py build INCLUDE ARCH", file=sys.stderr)
            return 2
    except Lacking as error:
        print(f"classic: {error}", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"classic: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
