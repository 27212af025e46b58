"""The cuBLASLt peer: what is missing is named, its numbers are those of NVIDIA's headers, and its two
products are right in a library that computes on the CPU and is compiled against these headers."""
import array
import ctypes
import math
import os
import shutil
import subprocess
import unittest

from support import Case

import cublaslt

# Computes what cublasLtMatmul() is asked for, by the manual's formula: all layouts by columns, A
# transposed. The headers declare each function, so that a wrong parameter does not compile.
STAND_IN = r"""
#include <cublasLt.h>
#include <cmath>
#include <cstring>
struct Desc {
  cublasComputeType_t compute;
  int32_t transposed, bias_type;
  uint32_t epilogue;
  const float* bias;
};
struct Layout { cudaDataType type; uint64_t rows, columns; int64_t pitch; };
template <class To, class From> To* as(From* of) { return reinterpret_cast<To*>(of); }
extern "C" {
long last_algorithm = 0;
size_t cublasLtGetVersion() { return 130002; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "another";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = as<cublasLtContext>(&last_algorithm);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType scale) {
  *desc = as<cublasLtMatmulDescOpaque_t>(new Desc{compute, 0, -1, 1, nullptr});
  return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name, const void* from,
                                              size_t bytes) {
  Desc& of = *as<Desc>(desc);
  void* to = name == CUBLASLT_MATMUL_DESC_TRANSA         ? as<void>(&of.transposed)
             : name == CUBLASLT_MATMUL_DESC_EPILOGUE     ? as<void>(&of.epilogue)
             : name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? as<void>(&of.bias)
             : name == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE ? as<void>(&of.bias_type) : nullptr;
  if (!to || bytes != (to == &of.bias ? 8 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t pitch) {
  *layout = as<cublasLtMatrixLayoutOpaque_t>(new Layout{type, rows, columns, pitch});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* of) {
  *of = as<cublasLtMatmulPreferenceOpaque_t>(new size_t);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t of) {
  delete as<size_t>(of);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* from, size_t bytes) {
  if (name != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES || bytes != 8)
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(of, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
// The first guess cannot be used, the two others can; nothing is known for one row.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
    cublasLtMatmulHeuristicResult_t found[], int* count) {
  if (*as<size_t>(preference) != 32 << 20 || most < 3) return CUBLAS_STATUS_INVALID_VALUE;
  *count = as<Layout>(d)->columns == 1 ? 1 : 3;
  for (int i = 0; i < *count; ++i) {
    found[i].algo.data[0] = 10 + i;
    found[i].state = i ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t bytes, cudaStream_t) {
  const Desc& of = *as<Desc>(desc);
  const Layout &A = *as<Layout>(a_layout), &B = *as<Layout>(b_layout), &D = *as<Layout>(d_layout);
  if (of.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || A.type != CUDA_R_32F ||
      of.bias_type != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;  // of halves: this one knows floats
  if (handle != as<cublasLtContext>(&last_algorithm) || !workspace || bytes != 32 << 20 ||
      of.transposed != CUBLAS_OP_T || A.rows != B.rows || A.columns != D.rows ||
      B.columns != D.columns || c_layout != d_layout)
    return CUBLAS_STATUS_INVALID_VALUE;
  last_algorithm = long(algorithm->data[0]);
  for (uint64_t j = 0; j < D.columns; ++j)
    for (uint64_t i = 0; i < D.rows; ++i) {
      double v = 0;
      for (uint64_t k = 0; k < A.rows; ++k)
        v += double(static_cast<const float*>(a)[k + i * A.pitch]) *
             double(static_cast<const float*>(b)[k + j * B.pitch]);
      v *= *static_cast<const float*>(alpha);
      const float factor = *static_cast<const float*>(beta);
      if (factor != 0) v += double(factor) * double(static_cast<const float*>(c)[i + j * D.pitch]);
      v += double(of.bias[i]);
      if (of.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
        v = v / 2 * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
      else if (of.epilogue != CUBLASLT_EPILOGUE_BIAS)
        return CUBLAS_STATUS_INVALID_VALUE;
      static_cast<float*>(d)[i + j * D.pitch] = float(v);
    }
  return CUBLAS_STATUS_SUCCESS;
}
}
"""
CONSTANTS = ("CUDA_R_32F CUDA_R_16F CUBLAS_COMPUTE_32F CUBLAS_COMPUTE_32F_FAST_TF32 CUBLAS_OP_T "
             "CUBLASLT_MATMUL_DESC_TRANSA CUBLASLT_MATMUL_DESC_EPILOGUE "
             "CUBLASLT_MATMUL_DESC_BIAS_POINTER CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE "
             "CUBLASLT_EPILOGUE_BIAS CUBLASLT_EPILOGUE_GELU_BIAS "
             "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES").split()


def header_folder():
    """Of the toolkit; None where it has no cuBLAS."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include")
    return folder if os.path.exists(os.path.join(folder, "cublasLt.h")) else None


def stand_in(folder):
    """Compiles the library above; its path."""
    source, library = os.path.join(folder, "lt.cpp"), os.path.join(folder, cublaslt.NAME)
    layout = cublaslt.Heuristic
    checks = [f"{name} == {getattr(cublaslt, name)}" for name in CONSTANTS] + [
        f"sizeof(cublasLtMatmulHeuristicResult_t) == {ctypes.sizeof(layout)}",
        f"offsetof(cublasLtMatmulHeuristicResult_t, state) == {layout.state.offset}"]
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <cstddef>\n" + STAND_IN +
                   "".join(f'static_assert({of}, "");\n' for of in checks))
    subprocess.run(["g++", "-std=c++17", "-O0", "-shared", "-fPIC", "-I", header_folder(), source,
                    "-o", library], check=True)
    return library


class Missing(Case):
    def test_it_is_named(self):
        with self.assertRaisesRegex(RuntimeError, r"cuBLASLt is not installed: /nowhere/\S+: cannot "
                                    r"open.*nvidia-cublas \(13\.0\.\*\)"):
            cublaslt.Library([f"/nowhere/{cublaslt.NAME}"])

    def test_where_it_is_looked_for(self):
        wheel, toolkit = (os.path.join(self.folder, name) for name in ("wheel", "toolkit"))
        files = [os.path.join(wheel, "nvidia", "cu13", "lib", cublaslt.NAME),
                 os.path.join(toolkit, "lib64", cublaslt.NAME)]
        for file in files:
            os.makedirs(os.path.dirname(file))
            with open(file, "w", encoding="utf-8"):
                pass
        found = cublaslt.places({"CUDA_HOME": toolkit, "PATH": ""}, [wheel])
        self.assertEqual(found[:2], files)
        self.assertEqual(found[-1], cublaslt.NAME)
        named = {"CUBLASLT": files[1], "PATH": ""}
        self.assertEqual(cublaslt.places(named, [wheel])[:2], [files[1], files[0]])


@unittest.skipUnless(header_folder(), "no cublasLt.h")
class Products(Case):
    def setUp(self):
        super().setUp()
        self.library = cublaslt.Library([stand_in(self.folder)])

    def product(self, shape, gelu, with_residual, fp16=False):
        m, n, k = shape
        x, weight, bias, residual = (array.array("f", (math.sin(1 + i * step) for i in range(count)))
                                     for count, step in ((m * k, 0.7), (n * k, 0.9), (n, 1.3),
                                                         (m * n, 0.4)))
        y, workspace = array.array("f", [math.nan] * (m * n)), array.array("f", [0])
        at = lambda of: of.buffer_info()[0]
        product = cublaslt.Product(self.library, shape, fp16, at(bias), gelu, with_residual)
        run = lambda: product.run(at(x), at(weight), at(residual) if with_residual else at(y), at(y),
                                  at(workspace), None)
        run()
        for row in range(m):
            for column in range(n):
                v = sum(x[row * k + i] * weight[column * k + i] for i in range(k)) + bias[column]
                if gelu:
                    v = v / 2 * (1 + math.erf(v / math.sqrt(2)))
                if with_residual:
                    v += residual[row * n + column]
                self.assertAlmostEqual(y[row * n + column], v, delta=5e-4 if gelu else 1e-5)
        return product, run

    def test_both_layers_of_an_mlp(self):
        self.product((3, 5, 4), gelu=True, with_residual=False)
        self.product((7, 2, 6), gelu=False, with_residual=True)
        self.assertEqual(self.library.version(), "13.0.2")

    def test_the_fastest_algorithm_is_taken(self):
        product, run = self.product((3, 5, 4), gelu=True, with_residual=False)
        last = ctypes.c_long.in_dll(self.library.functions, "last_algorithm")
        self.assertEqual(last.value, 11)  # the first usable guess

        def time_of():
            run()
            return {11: 2.0, 12: 1.0}[last.value]
        product.choose(time_of)
        run()
        self.assertEqual(last.value, 12)

    def test_what_it_refuses_is_named(self):
        with self.assertRaisesRegex(RuntimeError, "no algorithm for this product"):
            self.product((1, 5, 4), gelu=True, with_residual=False)
        with self.assertRaisesRegex(RuntimeError, r"cublasLtMatmul: not supported \(status 15\)"):
            self.product((3, 5, 4), gelu=True, with_residual=False, fp16=True)


if __name__ == "__main__":
    unittest.main()
