// The toolkit's exponentials and logarithms of fp16, for each of its numbers: the header computes them
// with ex2.approx and lg2.approx and mends the results by hand where the GPU's are off by one.
#include <doctest/doctest.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int kFunctions = 6;
const char* const kNames[kFunctions] = {"hexp", "hexp2", "hexp10", "hlog", "hlog2", "hlog10"};

constexpr int kNumbers = 65536;

// single: [kFunctions, kNumbers], what the functions of one number give; paired: those of two
__global__ void all_numbers(__half* single, __half2* paired) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const __half x = __ushort_as_half(static_cast<unsigned short>(i));
  const __half one[] = {hexp(x), hexp2(x), hexp10(x), hlog(x), hlog2(x), hlog10(x)};
  const __half2 y = __halves2half2(x, __ushort_as_half(static_cast<unsigned short>(~i)));
  const __half2 two[] = {h2exp(y), h2exp2(y), h2exp10(y), h2log(y), h2log2(y), h2log10(y)};
  for (int f = 0; f < kFunctions; ++f) {
    single[f * kNumbers + i] = one[f];
    paired[f * kNumbers + i] = two[f];
  }
}

double exact(int function, double x) {
  switch (function) {
    case 0:
      return std::exp(x);
    case 1:
      return std::exp2(x);
    case 2:
      return std::pow(10.0, x);
    case 3:
      return std::log(x);
    case 4:
      return std::log2(x);
    default:
      return std::log10(x);
  }
}

}  // namespace

TEST_CASE("half: exponentials and logarithms of all numbers are the rounded exact ones") {
  __half* single = nullptr;
  __half2* paired = nullptr;
  REQUIRE(cudaMallocManaged(&single, kFunctions * kNumbers * sizeof(__half)) == cudaSuccess);
  REQUIRE(cudaMallocManaged(&paired, kFunctions * kNumbers * sizeof(__half2)) == cudaSuccess);
  all_numbers<<<kNumbers / 256, 256>>>(single, paired);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const auto bits = [](__half h) {
    return std::isnan(__half2float(h)) ? 0x7fff : static_cast<int>(__half_as_ushort(h));
  };
  for (int f = 0; f < kFunctions; ++f) {
    std::string wrong;
    int count = 0;
    for (int i = 0; i < kNumbers; ++i) {
      const double x = __half2float(__ushort_as_half(static_cast<unsigned short>(i)));
      const int want = bits(__double2half(exact(f, x)));
      const __half results[] = {single[f * kNumbers + i], __low2half(paired[f * kNumbers + i]),
                                __high2half(paired[f * kNumbers + (i ^ 0xffff)])};
      for (const __half r : results) {
        if (bits(r) == want || ++count > 10) continue;
        char text[100];
        std::snprintf(text, sizeof text, "\n  of %.9g: %04x, not %04x", x, bits(r), want);
        wrong += text;
      }
    }
    INFO(std::string(kNames[f]) << wrong);
    CHECK(count == 0);
  }
  CHECK(cudaFree(single) == cudaSuccess);
  CHECK(cudaFree(paired) == cudaSuccess);
}
