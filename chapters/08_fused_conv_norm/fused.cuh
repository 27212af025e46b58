// Step 2, fused: one launch and one store. Each block keeps the values of its tiles on the chip
// while all blocks work out their moments; after one barrier of the whole grid it normalizes what
// it kept. An output that does not fit on the chip takes two passes.
#pragma once

#include <map>

#include "fused_kernels.cuh"
#include "three_passes.cuh"

namespace fused_conv_norm {

// ---- How a shape is done ------------------------------------------------------------------------

// The kinds of tile that a step may choose from, best first. (tensor.cuh has others.)
struct Fp32Tiles {
  using Element = float;
  static auto by_cost(const ConvNormShape& shape, const DeviceLimits& limits) {
    return tiles_by_cost(shape, limits.sm_count);
  }
  template <class Use>
  static void with(TileName name, int stride, const Use& use) {
    with_tile(name, stride, use);
  }
};

// How fused() does a shape on the current device.
struct Plan {
  TileName tile = kLarge;
  bool fits = false;     // on the chip
  bool refused = false;  // it should fit, but the device has refused the launch
  int blocks = 0, blocks_of_sm = 0, tiles_of_block = 0;
  int shared_bytes = 0;  // of a block
};

// The fewest tiles a block with which all blocks are on the device at once; fits is false where
// there is no such number.
template <int kName, int kStride>
Plan plan_of(const Problem& problem, const DeviceLimits& limits, const ConvNormShape& shape) {
  using T = Tile<kName>;
  const auto kernel = fused_kernel<kName, kStride>;
  require_done(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    limits.shared_bytes),
               shape);
  Plan plan{TileName(kName)};
  for (int tiles = 1;; ++tiles) {
    const int64_t bytes =
        tile_bytes<kName>(problem) + 4 * (kMomentFloats<T> + int64_t(tiles - 1) * T::kTileFloats);
    if (bytes > limits.shared_bytes) return plan;
    require_done(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&plan.blocks_of_sm, kernel,
                                                               T::kThreads, size_t(bytes)),
                 shape);
    plan.blocks = (problem.tiles - 1) / tiles + 1;
    plan.tiles_of_block = tiles;
    plan.shared_bytes = int(bytes);
    plan.fits = plan.blocks <= int64_t(plan.blocks_of_sm) * limits.sm_count;
    if (plan.fits) return plan;
  }
}

// ---- Launches -----------------------------------------------------------------------------------

// Calls use.operator()<kName, kStride>(problem, limits) for the kind of tile that suits the shape.
template <class Tiles, class Use>
void with_problem(const void* x, const void* weight, const ConvNormShape& shape, const Use& use) {
  const DeviceLimits limits = device_limits();
  Tiles::with(Tiles::by_cost(shape, limits)[0], shape.stride, [&]<int kName, int kStride>() {
    use.template operator()<kName, kStride>(problem_of<kName>(shape, x, weight, limits), limits);
  });
}

// How fused() does the shape on the current device: with the best kind of tile whose outputs all
// fit on the chip. Which arrays begin at multiples of 16 bytes is left open.
template <class Tiles = Fp32Tiles>
Plan plan_of(const ConvNormShape& shape) {
  const DeviceLimits limits = device_limits();
  Plan best;
  for (const TileName name : Tiles::by_cost(shape, limits)) {
    Tiles::with(name, shape.stride, [&]<int kName, int kStride>() {
      best = plan_of<kName, kStride>(problem_of<kName>(shape, nullptr, nullptr, limits), limits,
                                     shape);
    });
    if (best.fits) break;
  }
  return best;
}

// The same, worked out once: the queries of occupancy take longer than a launch of a small shape.
// What is known of a shape outlives cudaDeviceReset(), so it is sizes alone.
template <class Tiles>
Plan& known_plan_of(const ConvNormShape& s) {
  std::array<int, 14> key = {0,          s.batch,      s.in_channels, s.out_channels, s.height,
                             s.width,    s.kernel,     s.stride,      s.upsample,     s.pad_top,
                             s.pad_left, s.pad_bottom, s.pad_right,   int(s.padding)};
  cudaGetDevice(&key[0]);
  thread_local std::map<std::array<int, 14>, Plan> known;
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, plan_of<Tiles>(s)).first->second;
}

// Floats of the moments when that many blocks compute the tiles.
template <int kName>
int64_t moments_floats(int blocks, const Problem& problem) {
  return runs_of(blocks, problem) * Tile<kName>::kTileChannels * 4;
}
// The same for two passes, with a block for each tile.
template <class Tiles = Fp32Tiles>
int64_t moments_floats(const ConvNormShape& shape) {
  int64_t floats = 0;
  with_problem<Tiles>(nullptr, nullptr, shape,
                      [&]<int kName, int>(const Problem& problem, const DeviceLimits&) {
                        floats = moments_floats<kName>(problem.tiles, problem);
                      });
  return floats;
}

// The two passes, each alone; moments: moments_floats(); conv: fp32, as y, may be y itself.
template <class Tiles = Fp32Tiles>
void first_pass(const typename Tiles::Element* x, const typename Tiles::Element* weight,
                float* conv, float* moments, const ConvNormShape& shape, cudaStream_t stream) {
  with_problem<Tiles>(
      x, weight, shape, [&]<int kName, int kStride>(const Problem& problem, const DeviceLimits&) {
        const auto kernel = first_pass_kernel<kName, kStride>;
        const int bytes = tile_bytes<kName>(problem);
        require_done(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
            shape);
        kernel<<<problem.tiles, Tile<kName>::kThreads, bytes, stream>>>(
            x, weight, conv, reinterpret_cast<float4*>(moments), problem);
        require_done(cudaGetLastError(), shape);
      });
}
template <class Tiles = Fp32Tiles>
void second_pass(const float* moments, const float* gamma, const float* beta,
                 const typename Tiles::Element* residual, const float* conv,
                 typename Tiles::Element* y, const ConvNormShape& shape, cudaStream_t stream) {
  constexpr int kBytes = 4 * sizeof(*y);  // of a load or store
  const bool wide = shape.plane() % 4 == 0 && is_aligned(conv, 16) && is_aligned(y, kBytes) &&
                    is_aligned(residual, kBytes);
  const int64_t blocks = shape.planes() * ((shape.plane() - 1) / kPassPixels + 1);
  with_problem<Tiles>(
      nullptr, nullptr, shape, [&]<int kName, int>(const Problem& problem, const DeviceLimits&) {
        const auto kernel = wide ? second_pass_kernel<kName, 4> : second_pass_kernel<kName, 1>;
        kernel<<<unsigned(blocks), kNormThreads, 0, stream>>>(
            reinterpret_cast<const float4*>(moments), gamma, beta, residual, conv, y, problem);
        require_done(cudaGetLastError(), shape);
      });
}

// The steps on tiles of whatever kinds.
template <class Tiles>
void two_passes_on(const typename Tiles::Element* x, const typename Tiles::Element* weight,
                   const float* gamma, const float* beta, const typename Tiles::Element* residual,
                   typename Tiles::Element* y, const ConvNormShape& shape, cudaStream_t stream) {
  Workspace moments(moments_floats<Tiles>(shape), shape, stream);
  const auto both = [&](float* conv) {
    first_pass<Tiles>(x, weight, conv, moments.data(), shape, stream);
    second_pass<Tiles>(moments.data(), gamma, beta, residual, conv, y, shape, stream);
  };
  if constexpr (sizeof(*y) == 4) {
    both(y);
  } else {  // fp16 would round what the norm is still to magnify
    Workspace conv(shape.y_elements(), shape, stream);
    both(conv.data());
  }
}
template <class Tiles>
void fused_on(const typename Tiles::Element* x, const typename Tiles::Element* weight,
              const float* gamma, const float* beta, const typename Tiles::Element* residual,
              typename Tiles::Element* y, const ConvNormShape& shape, cudaStream_t stream) {
  Plan& plan = known_plan_of<Tiles>(shape);
  const auto launch = [&]<int kName, int kStride>() {
    const auto kernel = fused_kernel<kName, kStride>;
    Problem problem = problem_of<kName>(shape, x, weight, device_limits());
    Workspace workspace(moments_floats<kName>(plan.blocks, problem), shape, stream);
    float4* moments = reinterpret_cast<float4*>(workspace.data());
    int working_floats = tile_bytes<kName>(problem) / 4;
    void* arguments[] = {&x, &weight,  &gamma,          &beta,   &residual,
                         &y, &moments, &working_floats, &problem};
    // Each time: a reset of the device takes it back.
    require_done(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      plan.shared_bytes),
                 shape);
    const cudaError_t error =
        cudaLaunchCooperativeKernel(kernel, plan.blocks, Tile<kName>::kThreads, arguments,
                                    size_t(plan.shared_bytes), stream);
    plan.refused = error == cudaErrorCooperativeLaunchTooLarge;
    if (!plan.refused) return require_done(error, shape);
    cudaGetLastError();
    plan.fits = false;
  };
  if (plan.fits) Tiles::with(plan.tile, shape.stride, launch);
  if (!plan.fits) two_passes_on<Tiles>(x, weight, gamma, beta, residual, y, shape, stream);
}

// As three_passes(), with the same sums; bias is not even read: the mean takes it away again.
inline void two_passes(const float* x, const float* weight, const float* bias, const float* gamma,
                       const float* beta, const float* residual, float* y,
                       const ConvNormShape& shape, cudaStream_t stream) {
  (void)bias;
  require_arguments(x, weight, gamma, beta, y, shape);
  two_passes_on<Fp32Tiles>(x, weight, gamma, beta, residual, y, shape, stream);
}

// As two_passes(), but in one cooperative launch where the output fits on the chip; two passes also
// where the device refuses that launch as too large in spite of what it said of occupancy. Two runs
// give the same bits.
inline void fused(const float* x, const float* weight, const float* bias, const float* gamma,
                  const float* beta, const float* residual, float* y, const ConvNormShape& shape,
                  cudaStream_t stream) {
  (void)bias;
  require_arguments(x, weight, gamma, beta, y, shape);
  fused_on<Fp32Tiles>(x, weight, gamma, beta, residual, y, shape, stream);
}

// "one launch: 128 blocks ..." or "two passes: ...", for people; what this thread knows of it.
template <class Tiles>
std::string describe_plan_on(const ConvNormShape& shape) {
  const Plan plan = known_plan_of<Tiles>(shape);
  const DeviceLimits limits = device_limits();
  const auto text = [](int64_t number) { return std::to_string(number); };
  const auto kib = [&](int64_t bytes) { return text((bytes + 1023) / 1024) + " KiB"; };
  const int64_t output = shape.y_elements() * 4;
  if (plan.refused)
    return "two passes: the device refused one launch of " + text(plan.blocks) + " blocks with " +
           kib(plan.shared_bytes) + " of shared memory each,\nthough " + text(plan.blocks_of_sm) +
           " of them should be resident on each of " + text(limits.sm_count) + " SMs (" +
           cudaGetErrorName(cudaErrorCooperativeLaunchTooLarge) + ")";
  if (!plan.fits)
    return "two passes: the output's " + kib(output) + ", " + kib(output / limits.sm_count) +
           " for each of " + text(limits.sm_count) +
           " SMs, do not fit (shared: " + kib(limits.shared_bytes) + ")";
  std::string tile;
  Tiles::with(plan.tile, shape.stride, [&]<int kName, int>() {
    tile = text(Tile<kName>::kTileChannels) + " channels x " + text(Tile<kName>::kTilePixels) +
           " pixels)";
  });
  return "one launch: " + text(plan.blocks) + " blocks keep " + text(plan.tiles_of_block) +
         (plan.tiles_of_block == 1 ? " tile" : " tiles") + " each (" + tile + ", all " +
         kib(output) + " on chip";
}
inline std::string describe_plan(const ConvNormShape& shape) {
  return describe_plan_on<Fp32Tiles>(shape);
}

}  // namespace fused_conv_norm
