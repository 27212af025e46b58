"""vision_operators without NumPy and PyTorch: which library is found, what it exports, and a call
of it with arrays of the standard library alone."""
import array
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from vision_operators import functions, library

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


class Floats:
    """float32 numbers in a shape, as __array_interface__ has it."""

    dtype = "float32"

    def __init__(self, shape, numbers):
        self.shape, self.numbers = tuple(shape), array.array("f", numbers)
        self.strides = None

    @property
    def __array_interface__(self):
        return {"version": 3, "shape": self.shape, "typestr": "<f4", "strides": self.strides,
                "data": (self.numbers.buffer_info()[0], False)}


def empty_like(of, shape, dtype=None):
    count = 1
    for size in shape:
        count *= size
    return Floats(shape, [float("nan")] * count)


def on_the_host(case):
    if not os.path.exists(library.path_of("vgpu")):
        case.skipTest("no library for the virtual GPU (make operators DEVICE=vgpu)")


class Standard(unittest.TestCase):
    def setUp(self):
        on_the_host(self)
        self.addCleanup(setattr, functions, "empty_like", functions.empty_like)
        functions.empty_like = empty_like

    def test_layer_norm(self):
        x = Floats((2, 64), [(i * 37 % 101) / 7 for i in range(128)])
        scale, bias = Floats((64,), range(64)), Floats((64,), [1.0] * 64)
        y, total = functions.layer_norm_forward(x, scale, bias, epsilon=1e-3)
        self.assertIsNone(total)
        for row in range(2):
            numbers = x.numbers[64 * row:64 * row + 64]
            mean = sum(numbers) / 64
            factor = (sum((n - mean) ** 2 for n in numbers) / 64 + 1e-3) ** -0.5
            for column, number in enumerate(numbers):
                self.assertAlmostEqual(y.numbers[64 * row + column],
                                       (number - mean) * factor * column + 1,
                                       delta=2e-4)

    def test_refused_by_name(self):
        x, ones = Floats((2, 64), range(128)), Floats((64,), [1.0] * 64)
        for change, words in (
                (lambda: setattr(x, "strides", (4, 8)),
                 r"layer_norm_forward: x has strides \[1, 2\], must be contiguous: \[64, 1\]"),
                (lambda: setattr(x, "strides", (6, 2)),
                 r"layer_norm_forward: x has strides of \(6, 2\) bytes, must be contiguous "
                 r"float32: 4 bytes"),
                (lambda: setattr(x, "shape", (128,)),
                 r"layer_norm_forward: x has shape \[128\], must be \[rows, columns\]"),
                (lambda: setattr(x, "shape", (1,) * 7 + (128,)),
                 "8 dimensions, must have at most 6")):
            x.shape, x.strides = (2, 64), None
            change()
            with self.assertRaisesRegex(library.BadArgument, words):
                functions.layer_norm_forward(x, ones, ones)
        with self.assertRaisesRegex(library.BadArgument,
                                    "x is a list, must be a torch tensor or a NumPy array"):
            functions.layer_norm_forward([1.0], ones, ones)

    def test_after_a_refused_call_the_next_one_works(self):
        x, ones = Floats((1, 64), range(64)), Floats((64,), [1.0] * 64)
        with self.assertRaises(library.BadArgument):
            functions.layer_norm_forward(x, ones, Floats((63,), [1.0] * 63))
        self.assertEqual(len(functions.layer_norm_forward(x, ones, ones)[0].numbers), 64)


class Files(unittest.TestCase):
    def test_missing_library_names_the_command(self):
        for kind in ("cuda", "vgpu"):
            name = "VISION_OPERATORS_" + kind.upper()
            before = os.environ.get(name)
            self.addCleanup(lambda n=name, b=before: os.environ.pop(n, None) if b is None
                            else os.environ.__setitem__(n, b))
            os.environ[name] = "/nowhere/library.so"
            known = library._libraries.pop(kind, None)
            if known:
                self.addCleanup(library._libraries.__setitem__, kind, known)
            with self.assertRaisesRegex(library.MissingLibrary,
                                        f"/nowhere/library.so is not there: .* make operators "
                                        f"DEVICE={kind}"):
                library.library(kind)

    def test_what_is_no_library_names_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "text.so")
            with open(text, "w", encoding="utf-8") as file:
                file.write("no library")
            with self.assertRaisesRegex(library.MissingLibrary, "text.so cannot be used: .* "
                                        "make operators DEVICE=vgpu"):
                library.Library(text, staged=True)

    @unittest.skipUnless(shutil.which("cc"), "no cc")
    def test_another_interface_names_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, words in (("vision_interface", "has interface 7, this module needs "
                                 f"{library.INTERFACE}: build it again"),
                                ("another", "cannot be used: .*vision_interface.* build it again")):
                path = os.path.join(folder, name + ".so")
                subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], text=True,
                               check=True,
                               input=f"int {name}(void) {{ return 7; }}")
                with self.assertRaisesRegex(library.MissingLibrary,
                                            words + ".*make operators DEVICE=cuda"):
                    library.Library(path, staged=False)

    def test_structs_are_the_headers(self):
        with open(os.path.join(ROOT, "common", "operators", "operators.h"),
                  encoding="utf-8") as file:
            header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for struct, name in ((library.Tensor, "vision_tensor"),
                             (library.ConvNormOptions, "vision_conv_norm_options")):
            body = re.search(r"typedef struct " + name + r" \{(.*?)\}", header, re.S).group(1)
            fields = [re.sub(r"\[.*", "", part.split()[-1].lstrip("*")) for line in body.split(";")
                      if line.strip()
                      for part in line.split(",")]
            self.assertEqual([field[0] for field in struct._fields_], fields)
        self.assertEqual(int(re.search(r"VISION_INTERFACE (\d+)", header).group(1)),
                         library.INTERFACE)
        for name, number in re.findall(r"VISION_(\w+) = (\d+)", header):
            if name.lower() in library.TYPES:
                self.assertEqual(library.TYPES[name.lower()], int(number))
        self.assertEqual(ctypes.sizeof(library.Tensor), 8 + 4 + 4 + 6 * 8 * 2)

    @unittest.skipUnless(shutil.which("nm"), "no nm")
    def test_exports_are_the_headers_and_no_cuda_is_taken_or_given(self):
        on_the_host(self)
        with open(os.path.join(ROOT, "common", "operators", "operators.h"),
                  encoding="utf-8") as file:
            declared = set(re.findall(r"^(?:int|const char\*) (vision_\w+)\(", file.read(), re.M))
        said = subprocess.run(["nm", "-D", library.path_of("vgpu")], text=True, capture_output=True,
                              check=True).stdout
        defined = set(re.findall(r" [TWDBVuRi] (\w+)", said))
        self.assertEqual(defined, declared)
        self.assertEqual(re.findall(r" U (_{0,2}cuda\w*|cu[A-Z]\w*)", said), [])


class Beside(unittest.TestCase):
    """With another CUDA runtime in the process, as PyTorch's wheels for GPUs load one for
    everybody."""

    CODE = """
import ctypes, sys
sys.path.insert(0, {module!r})
if {other!r}:
    ctypes.CDLL({other!r}, mode=ctypes.RTLD_GLOBAL).cudaMalloc  # it is there, and ends the process
from vision_operators import library
found = library.library("vgpu")
address = ctypes.c_void_p()
found.check(found._c.vision_allocate(ctypes.c_int64(256), ctypes.byref(address)))
found.check(found._c.vision_free(address))
if not {other!r}:
    try:
        ctypes.CDLL(None).cudaMalloc
    except AttributeError:
        pass
    else:
        sys.exit("cudaMalloc of the library is there for everybody")
print(found.device())
"""

    def run_beside(self, other):
        code = self.CODE.format(module=os.path.join(ROOT, "common", "operators"), other=other)
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, "^virtual ")

    def test_gives_nothing(self):
        on_the_host(self)
        self.run_beside("")

    @unittest.skipUnless(shutil.which("cc"), "no cc")
    def test_takes_nothing(self):
        on_the_host(self)
        names = ("cudaMalloc", "cudaFree", "cudaGetDevice", "cudaGetDeviceProperties",
                 "__cudaRegisterFatBinary",
                 "__cudaRegisterFunction", "cudaLaunchKernel", "cudaGetLastError")
        with tempfile.TemporaryDirectory() as folder:
            source, map_file = os.path.join(folder, "other.c"), os.path.join(folder, "other.map")
            with open(source, "w", encoding="utf-8") as file:
                file.write("#include <stdlib.h>\n" + "".join(f"int {name}(void) {{ _Exit(9); }}\n"
                                                             for name in names))
            with open(map_file, "w", encoding="utf-8") as file:
                file.write("libcudart.so.13 { global: *; };\n")
            other = os.path.join(folder, "libcudart.so.13")
            subprocess.run(["cc", "-shared", "-fPIC", source, "-o", other,
                            "-Wl,--version-script=" + map_file],
                           check=True)
            self.run_beside(other)


class Forked(unittest.TestCase):
    CODE = """
import ctypes, os, sys
sys.path.insert(0, {module!r})
from vision_operators import library
found = library.library("vgpu")
address = ctypes.c_void_p()
found.check(found._c.vision_allocate(ctypes.c_int64(256), ctypes.byref(address)))
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    found.check(found._c.vision_allocate(ctypes.c_int64(256), ctypes.byref(address)))
except library.DeviceError as error:
    print(error, flush=True)
os._exit(0)
"""

    def test_says_what_to_do(self):
        on_the_host(self)
        code = self.CODE.format(module=os.path.join(ROOT, "common", "operators"))
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                              check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"forked after the library was "
                                      r"loaded.*get_context\('spawn'\)")


class Import(unittest.TestCase):
    def test_without_torch_its_functions_say_so(self):
        code = ("import sys; sys.modules['torch'] = None\nimport vision_operators\n"
                "try: vision_operators.attention\n"
                "except AttributeError as error: print(error)\n")
        path = os.path.join(ROOT, "common", "operators")
        said = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                              check=True, env=os.environ | {"PYTHONPATH": path}).stdout
        self.assertEqual(said, "vision_operators.attention needs PyTorch, which this Python has "
                               "not\n")

    def test_without_torch_all_else_can_be_imported(self):
        code = ("import sys; sys.modules['torch'] = None\nfrom vision_operators import *\n"
                "print(linear_forward.__name__)\n")
        path = os.path.join(ROOT, "common", "operators")
        said = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                              check=True, env=os.environ | {"PYTHONPATH": path}).stdout
        self.assertEqual(said, "linear_forward\n")


if __name__ == "__main__":
    unittest.main()
