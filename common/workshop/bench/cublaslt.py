"""cuBLASLt's product y = act(x weightᵀ + bias) + residual in one launch, for peers.py.

The library is looked for when it is asked for: in $CUBLASLT, beside an installed nvidia-cublas wheel,
in the CUDA toolkit, where the loader finds it. Only its C interface is used, by ctypes; arrays are
addresses on the device. Its GELU is the one by tanh, up to 4.8e-4 from the exact one.
"""
import ctypes
import os
import shutil
import sys

NAME = "libcublasLt.so.13"
# Of cublasLt.h, cublas_api.h and library_types.h; a test compiles them against the headers.
CUDA_R_32F, CUDA_R_16F = 0, 2
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 77
CUBLAS_OP_T = 1
CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_EPILOGUE = 3, 7
CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 8, 26
CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS = 4, 36
CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
WORKSPACE_BYTES = 32 << 20  # what NVIDIA advises for sm_90
MOST_ALGORITHMS = 8


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""
    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace_bytes", ctypes.c_size_t),
                ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


def places(environment=os.environ, paths=None):
    """Files that may be the library, in the order in which they are tried; then the loader's."""
    found = [environment["CUBLASLT"]] if environment.get("CUBLASLT") else []
    for path in sys.path if paths is None else paths:
        found += [os.path.join(path, "nvidia", *folder, "lib", NAME)
                  for folder in (("cu13",), ("cublas",))]
    nvcc = shutil.which("nvcc", path=environment.get("PATH"))
    toolkits = [environment.get("CUDA_HOME"),
                nvcc and os.path.dirname(os.path.dirname(os.path.realpath(nvcc))),
                "/usr/local/cuda"]
    found += [os.path.join(toolkit, "lib64", NAME) for toolkit in toolkits if toolkit]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)] + [NAME]


class Library:
    """The library and a handle of it. Throws RuntimeError saying what is missing."""

    def __init__(self, candidates=None):
        why = []
        for path in places() if candidates is None else candidates:
            try:
                self.functions = ctypes.CDLL(path)
                break
            except OSError as error:
                why.append(str(error))
        else:
            raise RuntimeError(f"cuBLASLt is not installed: {'; '.join(why)}. It is part of the CUDA "
                               "toolkit, and of the wheel nvidia-cublas (13.0.*); CUBLASLT=FILE "
                               "names it")
        self.path = path
        self.functions.cublasLtGetVersion.restype = ctypes.c_size_t
        self.functions.cublasLtGetStatusString.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def version(self):
        """'13.0.2' of 130002: its own number."""
        number = self.functions.cublasLtGetVersion()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name, *arguments):
        status = getattr(self.functions, name)(*arguments)
        if status != 0:
            words = self.functions.cublasLtGetStatusString(status) or b""
            raise RuntimeError(f"{name}: {words.decode(errors='replace')} (status {status})")


class Product:
    """y = act(x weightᵀ + bias) + residual: x [m, k], weight [n, k], bias [n], residual and y
    [m, n], by rows. cuBLASLt counts by columns: for it this is yᵀ = weight xᵀ, [n, m]."""

    def __init__(self, library, shape, fp16, bias, gelu, residual):
        self.library, (m, n, k) = library, shape
        kind = CUDA_R_16F if fp16 else CUDA_R_32F
        compute = CUBLAS_COMPUTE_32F if fp16 else CUBLAS_COMPUTE_32F_FAST_TF32
        self.what = ctypes.c_void_p()
        library.call("cublasLtMatmulDescCreate", ctypes.byref(self.what), compute, CUDA_R_32F)
        epilogue = CUBLASLT_EPILOGUE_GELU_BIAS if gelu else CUBLASLT_EPILOGUE_BIAS
        for name, value in ((CUBLASLT_MATMUL_DESC_TRANSA, ctypes.c_int32(CUBLAS_OP_T)),
                            (CUBLASLT_MATMUL_DESC_EPILOGUE, ctypes.c_uint32(epilogue)),
                            (CUBLASLT_MATMUL_DESC_BIAS_POINTER, ctypes.c_void_p(bias)),
                            (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, ctypes.c_int32(kind))):
            library.call("cublasLtMatmulDescSetAttribute", self.what, name, ctypes.byref(value),
                         ctypes.c_size_t(ctypes.sizeof(value)))
        self.weight, self.x, self.y = (self._layout(kind, *of) for of in ((k, n), (k, m), (n, m)))
        self.beta = 1.0 if residual else 0.0
        self.algorithms = self._algorithms()
        self.chosen = self.algorithms[0]

    def _layout(self, kind, rows, columns):
        layout = ctypes.c_void_p()
        self.library.call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind,
                          ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        return layout

    def _algorithms(self):
        """Those that it would try, the best guess first. Throws RuntimeError where there is none."""
        preference, size = ctypes.c_void_p(), ctypes.c_size_t(WORKSPACE_BYTES)
        self.library.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        self.library.call("cublasLtMatmulPreferenceSetAttribute", preference,
                          CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ctypes.byref(size),
                          ctypes.c_size_t(ctypes.sizeof(size)))
        found, count = (Heuristic * MOST_ALGORITHMS)(), ctypes.c_int()
        self.library.call("cublasLtMatmulAlgoGetHeuristic", self.library.handle, self.what,
                          self.weight, self.x, self.y, self.y, preference, MOST_ALGORITHMS, found,
                          ctypes.byref(count))
        self.library.call("cublasLtMatmulPreferenceDestroy", preference)
        usable = [of for of in found[:count.value] if of.state == 0]
        if not usable:
            raise RuntimeError("cublasLtMatmulAlgoGetHeuristic: no algorithm for this product")
        return usable

    def run(self, x, weight, residual, y, workspace, stream):
        """Into the stream. Arguments are addresses; residual is y where there is none."""
        alpha, beta = ctypes.c_float(1), ctypes.c_float(self.beta)
        self.library.call("cublasLtMatmul", self.library.handle, self.what, ctypes.byref(alpha),
                          ctypes.c_void_p(weight), self.weight, ctypes.c_void_p(x), self.x,
                          ctypes.byref(beta), ctypes.c_void_p(residual), self.y,
                          ctypes.c_void_p(y), self.y, ctypes.byref(self.chosen.algorithm),
                          ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES),
                          ctypes.c_void_p(stream))

    def choose(self, time_of):
        """Takes the algorithm whose time_of() is least; time_of runs this product."""
        times = []
        for self.chosen in self.algorithms:
            times.append(time_of())
        self.chosen = self.algorithms[times.index(min(times))]
