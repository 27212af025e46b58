// Step 2, fused: one launch and one store. Each block keeps the values of its tiles on the chip
// while all blocks work out their moments; after one barrier of the whole grid it normalizes what
// it kept. An output that does not fit on the chip takes two passes.
#pragma once

#include <cooperative_groups.h>

#include <map>

#include "parts/convolve.cuh"
#include "parts/plane_moments.cuh"
#include "parts/two_passes.cuh"

namespace fused_conv_norm {

template <TileName kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, Tile<kName>::kBlocks)
    fused_kernel(const Element<kName>* x,         // [batch, in_channels, height, width]
                 const Element<kName>* weight,    // [out_channels, in_channels, kernel, kernel]
                 const float* gamma,              // [out_channels]
                 const float* beta,               // [out_channels]
                 const Element<kName>* residual,  // as y, or null
                 Element<kName>* y,               // [batch, out_channels, out_height, out_width]
                 float4* moments,                 // [runs, tile channels]
                 int working_floats, const __grid_constant__ typename Tile<kName>::Plan problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  float* const working = reinterpret_cast<float*>(memory);
  Moments* const of_run = reinterpret_cast<Moments*>(working + working_floats);
  float* const parked = working + working_floats + kMomentFloats<T>;
  constexpr int kOwnValues = T::kOwn * T::kRows;

  // This block's tiles follow one another. Each but the last is parked in shared memory:
  // [tiles of a block - 1, own values, threads].
  const int first = first_tile(blockIdx.x, gridDim.x, problem.tiles);
  const int last = first_tile(blockIdx.x + 1, gridDim.x, problem.tiles) - 1;
  float value[T::kOwn][T::kRows];
#pragma unroll 1
  for (int tile = first; tile <= last; ++tile) {
    if (tile > first) {
#pragma unroll
      for (int e = 0; e < kOwnValues; ++e)
        parked[((tile - 1 - first) * kOwnValues + e) * T::kThreads + threadIdx.x] =
            value[e / T::kRows][e % T::kRows];
    }
    const Place place = place_of(tile, problem, T::kRows, T::kColumns);
    convolve<T, kStride>(x, weight, place, problem, working, value);
    const bool begins = tile == first || tile % problem.plane_tiles == 0;
    const bool ends = tile == last || (tile + 1) % problem.plane_tiles == 0;
    add_to_run<T>(value, tile, begins, ends, of_run, moments, problem);
  }

  // The only barrier of the grid: from here on all moments are there.
  cooperative_groups::this_grid().sync();

  // Normalize what was kept, the tile in the registers first.
  Norm* const norms = reinterpret_cast<Norm*>(working);
  Moments* const of_slices = reinterpret_cast<Moments*>(norms + T::kTileChannels);
  const Thread<T> me;
  int plane_group = -1;  // the group whose norms are in shared memory
#pragma unroll 1
  for (int tile = last; tile >= first; --tile) {
    if (tile < last) {
#pragma unroll
      for (int e = 0; e < kOwnValues; ++e)
        value[e / T::kRows][e % T::kRows] =
            parked[((tile - first) * kOwnValues + e) * T::kThreads + threadIdx.x];
    }
    const Place place = place_of(tile, problem, T::kRows, T::kColumns);
    if (tile / problem.plane_tiles != plane_group) {
      plane_group = tile / problem.plane_tiles;
      merge_moments<T>(moments, gamma, beta, place, gridDim.x, problem, of_slices, norms);
    }
    Norm own[T::kOwn];  // read once, not again behind each store
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i)
      own[i] = place.group * T::kTileChannels + me.channel(i) < problem.out_channels
                   ? norms[me.channel(i)]
                   : Norm{};
    for_each_output<T>(place, problem, [&](int i, int j, int, int64_t index) {
      const float add = residual ? float(residual[index]) : 0.0f;
      y[index] = normalized(value[i][j], own[i], add, problem.relu);
    });
  }
}

// ---- The plan of a launch -----------------------------------------------------------------------

// How a shape is done on the current device.
struct LaunchPlan {
  TileName tile = kLarge;
  bool fits = false;     // on the chip
  bool refused = false;  // it should fit, but the device has refused the launch
  int blocks = 0, blocks_of_sm = 0, tiles_of_block = 0;
  int shared_bytes = 0;  // shared memory per block
};

// The plan with the fewest tiles a block with which all blocks are on the device at once, as a
// barrier of the grid needs it. fits is false where no number of tiles does.
template <TileName kName, int kStride>
LaunchPlan plan_of(const typename Tile<kName>::Plan& problem, const DeviceLimits& limits,
                   const ConvNormShape& shape) {
  using T = Tile<kName>;
  const auto kernel = fused_kernel<kName, kStride>;
  allow_shared_memory(kernel, limits.shared_bytes, shape);
  LaunchPlan plan{kName};
  for (int tiles = 1;; ++tiles) {
    const int64_t bytes =
        T::bytes(problem) + 4 * (kMomentFloats<T> + int64_t(tiles - 1) * T::kTileFloats);
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

// The same with the best kind of tile whose outputs all fit on the chip. Which arrays begin at
// multiples of 16 bytes is left open.
template <class Tiles = Fp32Tiles>
LaunchPlan plan_of(const ConvNormShape& shape) {
  const DeviceLimits limits = device_limits();
  LaunchPlan best;
  for (const TileName name : Tiles::by_cost(shape, limits)) {
    Tiles::with(name, shape.stride, [&]<TileName kName, int kStride>() {
      best = plan_of<kName, kStride>(Tile<kName>::plan(shape, nullptr, nullptr, limits), limits,
                                     shape);
    });
    if (best.fits) break;
  }
  return best;
}

// The same, worked out once: the queries of occupancy take longer than a launch of a small shape.
// What is known of a shape outlives cudaDeviceReset(), so it is sizes alone.
template <class Tiles>
LaunchPlan& known_plan_of(const ConvNormShape& s) {
  std::array<int, 14> key = {0,          s.batch,      s.in_channels, s.out_channels, s.height,
                             s.width,    s.kernel,     s.stride,      s.upsample,     s.pad_top,
                             s.pad_left, s.pad_bottom, s.pad_right,   int(s.padding)};
  cudaGetDevice(&key[0]);
  thread_local std::map<std::array<int, 14>, LaunchPlan> known;
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, plan_of<Tiles>(s)).first->second;
}

// ---- The launch ---------------------------------------------------------------------------------

// Launches the kernel where the output fits on the chip. False where it does not, and where the
// device refuses the launch as too large in spite of what it said of occupancy: nothing was done,
// and later calls do not try again.
template <class Tiles>
bool fused_in_one_launch(const typename Tiles::Element* x, const typename Tiles::Element* weight,
                         const float* gamma, const float* beta,
                         const typename Tiles::Element* residual, typename Tiles::Element* y,
                         const ConvNormShape& shape, cudaStream_t stream) {
  LaunchPlan& plan = known_plan_of<Tiles>(shape);
  if (!plan.fits) return false;
  Tiles::with(plan.tile, shape.stride, [&]<TileName kName, int kStride>() {
    using T = Tile<kName>;
    const auto kernel = fused_kernel<kName, kStride>;
    typename T::Plan problem = T::plan(shape, x, weight, device_limits());
    Workspace workspace(moments_floats<T>(plan.blocks, problem), shape, stream);
    float4* moments = reinterpret_cast<float4*>(workspace.data());
    int working_floats = T::bytes(problem) / 4;
    void* arguments[] = {&x, &weight,  &gamma,          &beta,   &residual,
                         &y, &moments, &working_floats, &problem};
    allow_shared_memory(kernel, plan.shared_bytes, shape);
    const cudaError_t error = cudaLaunchCooperativeKernel(
        kernel, plan.blocks, T::kThreads, arguments, size_t(plan.shared_bytes), stream);
    plan.refused = error == cudaErrorCooperativeLaunchTooLarge;
    plan.fits = !plan.refused;
    if (plan.fits) return require_done(error, shape);
    cudaGetLastError();
  });
  return plan.fits;
}

// As three_passes(), with the same sums, but in one cooperative launch where the output fits on the chip,
// else in two passes; also where the device refuses that launch as too large in spite of what it said of
// occupancy. bias is not even read: the mean takes it away again. Two runs give the same bits.
template <class Tiles = Fp32Tiles>
void fused(const float* x, const float* weight, const float* bias, const float* gamma,
           const float* beta, const float* residual, float* y, const ConvNormShape& shape,
           cudaStream_t stream) {
  require_arguments(x, weight, gamma, beta, y, shape);
  if (!fused_in_one_launch<Tiles>(x, weight, gamma, beta, residual, y, shape, stream))
    two_passes<Tiles>(x, weight, bias, gamma, beta, residual, y, shape, stream);
}

}  // namespace fused_conv_norm
