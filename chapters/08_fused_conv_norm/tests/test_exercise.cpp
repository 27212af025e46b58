// Exercise 8 and its second task: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

namespace {

// The solution's kernel as two: the convolution goes to memory of its own and comes back.
std::string unfused(std::string text) {
  const size_t first = text.find("  // Mean and variance of a pixel");
  const size_t last = text.find("// y = relu(gamma");
  text.replace(first, last - first,
               "  for (int c = 0; c < kWarpChannels && c < own_channels; ++c) {\n"
               "    const int pixel = first_pixel + lane;\n"
               "    float* row = conv_global + (int64_t(image) * out_channels + first_own + c) *\n"
               "                                   pixels;\n"
               "    if (pixel < pixels) row[pixel] = conv[c].x;\n"
               "    if (pixel + 32 < pixels) row[pixel + 32] = conv[c].y;\n"
               "  }\n"
               "  (void)y, (void)gamma, (void)beta, (void)eps;\n"
               "}\n"
               "__global__ void norm_kernel(const float* conv, const float* gamma,\n"
               "                            const float* beta, half* y, int channels, int pixels,\n"
               "                            int all, float eps) {\n"
               "  const int i = blockIdx.x * kThreads + threadIdx.x;\n"
               "  if (i >= all) return;\n"
               "  const int64_t first = int64_t(i / pixels) * channels * pixels + i % pixels;\n"
               "  float mean = 0, squares = 0;\n"
               "  for (int c = 0; c < channels; ++c) mean += conv[first + c * pixels] / channels;\n"
               "  for (int c = 0; c < channels; ++c) {\n"
               "    const float distance = conv[first + c * pixels] - mean;\n"
               "    squares += distance * distance / channels;\n"
               "  }\n"
               "  for (int c = 0; c < channels; ++c)\n"
               "    y[first + c * pixels] = __float2half(fmaxf(\n"
               "        gamma[c] * (conv[first + c * pixels] - mean) / sqrtf(squares + eps) +\n"
               "            beta[c], 0.0f));\n"
               "}\n\n");
  text = planted(text, "int in_channels, int out_channels, int pixels, float eps) {",
                 "int in_channels, int out_channels, int pixels, float eps, float* conv_global) {");
  text = planted(text, "  conv_layer_norm_kernel<<<",
                 "  float* conv = nullptr;\n"
                 "  cudaMallocAsync(&conv, shape.y_elements() * sizeof(float), stream);\n"
                 "  conv_layer_norm_kernel<<<");
  return planted(text, "pixels, shape.eps);",
                 "pixels, shape.eps, conv);\n"
                 "  const int all = shape.batch * pixels;\n"
                 "  norm_kernel<<<(all + kThreads - 1) / kThreads, kThreads, 0, stream>>>(\n"
                 "      conv, gamma, beta, y, shape.out_channels, pixels, all, shape.eps);\n"
                 "  cudaFreeAsync(conv, stream);");
}

}  // namespace

TEST_CASE("exercise 8: points") {
  const std::string solution = source("chapters/08_fused_conv_norm/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  // 10 problems, output channels (pixels of an image): 1 (1), 16 (5), 128 (64), 33 (65), 100 (4),
  // 7 (129), 64 (63; around 1024), 48 (25; around -768), 112 (196), 128 (391; around 512).
  check_points(
      "exercise8", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 5, 10, 5, 5, 5, 5}},
       {"starter", source("chapters/08_fused_conv_norm/exercise/exercise.cuh"), none},
       // Each value of conv is stored and loaded in fp32; all else is as it was.
       {"two kernels", unfused(solution), {30, 20, 0, 0, 10, 0, 5, 5, 5}},
       // Squares of 1024, 768 and 512 have no digits left for deviations of 1.
       {"mean of the squares minus square of the mean",
        planted(
            planted(planted(planted(solution, "(conv[c].x - mean.x) * (conv[c].x - mean.x)",
                                    "conv[c].x * conv[c].x"),
                            "(conv[c].y - mean.y) * (conv[c].y - mean.y)", "conv[c].y * conv[c].y"),
                    "squares.x / out_channels + eps",
                    "fmaxf(squares.x / out_channels - mean.x * mean.x, 0.0f) + eps"),
            "squares.y / out_channels + eps",
            "fmaxf(squares.y / out_channels - mean.y * mean.y, 0.0f) + eps"),
        {21, 20, 0, 0, 0, 0, 0, 0, 0}},
       // Right with 128 channels, and with one, whose distance from its mean is 0 in any case.
       {"channels that do not exist are in the variance",
        planted(solution, "    if (c < own_channels) {\n      squares", "    {\n      squares"),
        {9, 20, 0, 0, 0, 0, 0, 0, 0},
        "Are channels that do not exist in the sums"},
       {"variance of the sample",
        planted(planted(solution, "squares.x / out_channels", "squares.x / (out_channels - 1)"),
                "squares.y / out_channels", "squares.y / (out_channels - 1)"),
        none},
       // The first warp leaves its squares where the others still read sums. Up to 16 channels are
       // the first warp's own affair.
       {"barrier: sums are overwritten while they are read",
        planted(solution, "  __syncthreads();  // what was there has been read\n", ""),
        {9, 0, 0, 0, 0, 0, 0, 0, 0}},
       // Eight warps load the same pixels, beside the tile.
       {"x from global memory, each warp for itself",
        planted(
            solution, "const float left = tiles.x[k][lane], right = tiles.x[k][lane + 32];",
            "const auto at = [&](int pixel) {\n"
            "        return first_channel + k < in_channels && pixel < pixels\n"
            "                   ? __half2float(x[int64_t(first_channel + k) * pixels + pixel])\n"
            "                   : 0.0f;\n"
            "      };\n"
            "      const float left = at(first_pixel + lane),\n"
            "                  right = at(first_pixel + lane + 32);"),
        {30, 20, 15, 5, 0, 5, 5, 5, 5}},
       // Half a warp loads 16 rows of x, and stores to 16 rows of the tile: one bank.
       {"uncoalesced: neighbouring lanes load neighbouring channels",
        planted(solution, "const int k = i / kPixels, pixel = i % kPixels;",
                "const int k = i % kDepth, pixel = i / kDepth;"),
        {30, 20, 15, 5, 10, 5, 5, 0, 0}},
       // 16 lanes store to 16 rows of 128 floats: one bank.
       {"a tile of weights with the channels side by side",
        planted(planted(planted(solution, "float weight[kMaxChannels][kDepth];",
                                "float weight[kDepth][kMaxChannels];"),
                        "tiles.weight[channel][k]", "tiles.weight[k][channel]"),
                "tiles.weight[first_own + c][k]", "tiles.weight[k][first_own + c]"),
        {30, 20, 15, 5, 10, 5, 5, 5, 0}},
       // A block for 32 pixels instead of 64: its second half is computed twice.
       {"blocks that overlap",
        planted(planted(solution, "(pixels + kPixels - 1) / kPixels;",
                        "(pixels + kPixels / 2 - 1) / (kPixels / 2);"),
                "blockIdx.x % blocks * kPixels", "blockIdx.x % blocks * (kPixels / 2)"),
        {30, 20, 0, 5, 0, 5, 0, 5, 5}}});
}

TEST_CASE("exercise 8 from an empty function: points") {
  const std::string solution = source("chapters/08_fused_conv_norm/exercise/solution2.cuh");
  const std::string task = source("chapters/08_fused_conv_norm/exercise/task2.cuh");
  CHECK_FALSE(contains(task, "__global__"));
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // The same sums, from memory instead of shared memory: x 27 times.
  const std::string from_memory = planted(
      planted(planted(solution, "plane[mirrored", "x[mirrored"), "plane[i] = x[i]", "(void)i"),
      "  __shared__ half plane[kMaxPixels];\n", "");
  // Two launches: the convolution goes to memory of its own, where mean and variance find it.
  const std::string unfused = planted(
      planted(task, "// y = relu(gamma (conv",
              "__global__ void conv_kernel(const half* x, const half* weight, float* conv,\n"
              "                            int channels, int height, int width) {\n"
              "  const int pixels = height * width;\n"
              "  const int pixel = blockIdx.x * 256 + threadIdx.x;\n"
              "  if (pixel >= pixels) return;\n"
              "  float sum = 0;\n"
              "  for (int i = 0; i < 9; ++i) {\n"
              "    int row = abs(pixel / width + i / 3 - 1);\n"
              "    int column = abs(pixel % width + i % 3 - 1);\n"
              "    if (row >= height) row = 2 * height - 2 - row;\n"
              "    if (column >= width) column = 2 * width - 2 - column;\n"
              "    sum += __half2float(weight[blockIdx.y % channels * 9 + i]) *\n"
              "           __half2float(x[int64_t(blockIdx.y) * pixels + row * width + column]);\n"
              "  }\n"
              "  conv[int64_t(blockIdx.y) * pixels + pixel] = sum;\n"
              "}\n"
              "__global__ void norm_kernel(const float* conv, const float* gamma,\n"
              "                            const float* beta, half* y, int channels, int pixels,\n"
              "                            float eps) {\n"
              "  const int channel = blockIdx.x % channels;\n"
              "  conv += int64_t(blockIdx.x) * pixels;\n"
              "  float mean = 0, squares = 0;\n"
              "  for (int i = 0; i < pixels; ++i) mean += (conv[i] - conv[0]) / pixels;\n"
              "  for (int i = 0; i < pixels; ++i) {\n"
              "    const float distance = conv[i] - conv[0] - mean;\n"
              "    squares += distance * distance;\n"
              "  }\n"
              "  for (int i = threadIdx.x; i < pixels; i += 256)\n"
              "    y[int64_t(blockIdx.x) * pixels + i] = __float2half(fmaxf(\n"
              "        gamma[channel] * (conv[i] - conv[0] - mean) /\n"
              "                sqrtf(squares / pixels + eps) + beta[channel], 0.0f));\n"
              "}\n"
              "// y = relu(gamma (conv"),
      "  (void)x, (void)weight, (void)gamma, (void)beta, (void)y, (void)shape, (void)stream;",
      "  float* conv = nullptr;\n"
      "  const int pixels = shape.height * shape.width, planes = int(shape.planes());\n"
      "  cudaMallocAsync(&conv, shape.y_elements() * sizeof(float), stream);\n"
      "  conv_kernel<<<dim3((pixels + 255) / 256, planes), 256, 0, stream>>>(\n"
      "      x, weight, conv, shape.in_channels, shape.height, shape.width);\n"
      "  norm_kernel<<<planes, 256, 0, stream>>>(conv, gamma, beta, y, shape.in_channels,\n"
      "                                          pixels, shape.eps);\n"
      "  cudaFreeAsync(conv, stream);");
  // 12 problems, images x channels, pixels: 1x1 2x2, 1x2 2x5, 1x3 5x13, 2x1 7x3, 3x2 16x16, 1x5
  // 17x9, 1x2 9x33 and 2x1 30x41 (large means), 1x2 6x7 (all alike), 1x1 2x300, 1x2 128x128, 1x1
  // 127x129 (large mean).
  check_points(
      "exercise8", "task2.cuh",
      {{"solution", solution, {30, 20, 15, 5, 15, 5, 5, 5}},
       {"empty", task, none, "never written"},
       {"the convolution goes to memory", unfused, {30, 20, 0, 0, 0, 0, 0, 0}},
       {"no shared memory", from_memory, {30, 20, 15, 5, 0, 5, 0, 0}, "a plane in shared memory"},
       // The variance of small numbers is right either way; with the large means
       // two of three are wrong.
       {"E[x^2] - E[x]^2",
        planted(planted(solution, "conv(i) - middle - mean;", "conv(i);"),
                "sum_of_block(squares, of_warps) / float(pixels);",
                "sum_of_block(squares, of_warps) / float(pixels) -\n"
                "                         (middle + mean) * (middle + mean);"),
        {25, 20, 0, 0, 0, 0, 0, 0},
        "squares of the values themselves"},
       {"the edge twice",
        planted(solution, "i < 0 ? -i : i < size ? i : 2 * size - 2 - i",
                "i < 0 ? 0 : i < size ? i : size - 1"),
        {2, 20, 0, 0, 0, 0, 0, 0}},
       // Right where there are many pixels, and where all are alike.
       {"the variance of a sample",
        planted(solution, "sum_of_block(squares, of_warps) / float(pixels)",
                "sum_of_block(squares, of_warps) / float(pixels - 1)"),
        {12, 20, 0, 0, 0, 0, 0, 0}},
       {"eps forgotten",
        planted(solution, "variance + eps", "variance"),
        {27, 20, 0, 0, 0, 0, 0, 0},
        "the variance is 0, and y is relu(beta)"},
       {"no ReLU", planted(solution, "+ shift, 0.0f)", "+ shift, -1e30f)"), none},
       {"the first channel's weights for all",
        planted(solution, "weight[channel * 9 + i]", "weight[i]"),
        {15, 20, 0, 0, 0, 0, 0, 0}},
       {"barrier: the plane is read while it is loaded",
        planted(solution, "weight[channel * 9 + i]);\n  __syncthreads();\n",
                "weight[channel * 9 + i]);\n"),
        {7, 0, 0, 0, 0, 0, 0, 0}},
       {"barrier: sums of the next kind before all have read these",
        planted(solution, "  __syncthreads();  // the sums before have been read\n", ""),
        {10, 0, 0, 0, 0, 0, 0, 0}},
       {"uncoalesced: a thread loads a part of the plane",
        planted(solution, "for (int i = threadIdx.x; i < pixels; i += kThreads) plane[i] = x[i];",
                "const int part = (pixels + kThreads - 1) / kThreads;\n"
                "  for (int i = threadIdx.x * part; i < min(pixels, int(threadIdx.x + 1) * part); "
                "++i)\n"
                "    plane[i] = x[i];"),
        {30, 20, 15, 5, 15, 5, 0, 5}}});
  const auto included =
      check_points("exercise8", "task2.cuh", {{"include", "#include \"solution2.cuh\"\n", {}}});
  CHECK(contains(included[0], "is not for an exercise"));
}
