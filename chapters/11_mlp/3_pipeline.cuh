// Step 3, pipeline: slices come by asynchronous copies, two ahead of the one that is multiplied,
// and the operands of a step come from shared memory while the step before is multiplied.
//
//   copy      slice 2 . . .  slice 3 . . .  slice 4 . . .      in shared memory
//   load      0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 2.1 ...          in registers
//   multiply  0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 ...          one __syncthreads() a slice
//
// A copy needs no registers, and no thread waits for its own: wait_for_copies() lets the newest
// group be under way. A slice's copies are asked for piecemeal, behind each step's loads, or the
// first step's loads would wait behind all of them. Tiles and products are those of step 2.
#pragma once

#include "parts/block_tile.cuh"
#include "parts/finish.cuh"

namespace mlp {

constexpr int kStages = 3;  // slices in shared memory: one is multiplied, two are on their way

// The sums of a block's tile, slice by slice. Order: of weight's rows in shared memory.
template <class Order, class Element, class T, template <int> class Layout>
__device__ void multiply_all(const Element* x, const Element* weight, int m, int n, int k,
                             Stage<Element, T, Layout>* memory, const Place<T>& place,
                             WarpSums<T>& sums) {
  constexpr int kSlice = T::template kSlice<Element>, kSteps = decltype(memory->x)::kPieces / 2;
  static_assert(kSteps % 2 == 0, "operands change places at each step");
  const RowPieces<T::kThreads, decltype(memory->x)> of_x(place.first_row, m, k);
  const RowPieces<T::kThreads, decltype(memory->weight), Order> of_weight(place.first_column, n, k);
  const auto copy = [&](int slice, int stage, int part, int parts) {
    if (slice * kSlice >= k) return;
    of_x.copy(x, slice * kSlice, k, memory[stage].x, part, parts);
    of_weight.copy(weight, slice * kSlice, k, memory[stage].weight, part, parts);
  };
  tile::Stages<kStages> stages;
  for (int slice = 0; slice < stages.kAhead; ++slice) {
    copy(slice, slice, 0, 1);
    tile::end_copies();
  }
  stages.wait();
  Operands<T, Element> operands[2];  // this step's and the next one's
  operands[0].load(memory[0], 0, place);
  for (int slice = 0; slice * kSlice < k; ++slice) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool last = step + 1 == kSteps;
      if (last) {
        tile::end_copies();
        stages.next();
        stages.wait();
      }
      if (!last || (slice + 1) * kSlice < k)
        operands[(step + 1) % 2].load(memory[stages.read], (step + 1) % kSteps, place);
      if (!last) copy(slice + stages.kAhead, stages.write, step, kSteps - 1);
      operands[step % 2].multiply(sums);
    }
  }
}

template <class Element, class T, template <int> class Layout>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    pipeline_kernel(const Element* __restrict__ x,       // [m, k]
                    const Element* __restrict__ weight,  // [n, k]
                    Element* __restrict__ y,             // [m, n]
                    int m, int n, int k) {
  extern __shared__ uint4 shared[];
  auto* const memory = reinterpret_cast<Stage<Element, T, Layout>*>(shared);
  const Place<T> place(n);
  WarpSums<T> sums;
  multiply_all<InOrder>(x, weight, m, n, k, memory, place, sums);
  store_sums<T>(sums, y, m, n, place);
}

// The same for halves and floats: a slice is as many bytes of either.
template <class T, template <int> class Layout>
constexpr int kPipelineBytes = kStages* int(sizeof(Stage<half, T, Layout>));

template <class Element, class T, template <int> class Layout>
void launch_pipeline(const Element* x, const Element* weight, Element* y, const Shape& shape,
                     cudaStream_t stream) {
  constexpr int kBytes = kPipelineBytes<T, Layout>;
  static_assert(kBytes == kStages * int(sizeof(Stage<Element, T, Layout>)));
  const auto kernel = pipeline_kernel<Element, T, Layout>;
  require_launched(
      shape, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<blocks_of<T>(shape), T::kThreads, kBytes, stream>>>(x, weight, y, shape.m, shape.n,
                                                               shape.k);
  require_launched(shape);
}

// y = x weightᵀ with slices in that layout. Any m and n; rows of x and weight whole pieces of 16
// bytes, at multiples of that.
template <template <int> class Layout, class Element>
void pipeline_product(const Element* x, const Element* weight, Element* y, const Shape& shape,
                      cudaStream_t stream) {
  require_product(shape, x, weight, y);
  require_pieces(shape, x, weight, tile::kOfPiece<Element>);
  require_element<Element>();
  const bool fits = shared_limit() >= kPipelineBytes<LargeTile, Layout>;
  (fits ? launch_pipeline<Element, LargeTile, Layout>
        : launch_pipeline<Element, SmallTile, Layout>)(x, weight, y, shape, stream);
}

// y = act(x weightᵀ + bias) + residual. x [m, k], weight [n, k], bias [n] or null, residual [m, n]
// or null, y [m, n]; sums in fp32, floats are multiplied in tf32. Throws std::invalid_argument
// naming shape and limit when it cannot, std::runtime_error where the device has no tf32.
template <class Element>
void pipeline(const Element* x, const Element* weight, const Element* bias, const Element* residual,
              Element* y, const Shape& shape, cudaStream_t stream) {
  pipeline_product<tile::Padded>(x, weight, y, shape, stream);
  finish(bias, residual, y, shape, stream);
}

}  // namespace mlp
