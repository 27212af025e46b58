// Where q, k and v come from. Three kernels that a net has in place of `product, then split`:
//
//   by heads   the product qkv stores q, k and v where attention wants them
//   inside     attention's own kernel multiplies x with the head's weights, tile by tile: q, k and v
//              are in shared memory and nowhere else
//   stored     the same kernel, but q, k and v come from memory: what `inside` is held against
//
// Numbers in memory are half or float, all arithmetic is in fp32.
//
//   for one head and 64 of its queries:        for each 64 keys:
//     q_tile = x · Wqᵀ                           k_tile = x · Wkᵀ      again in each block
//                                                p = exp(q_tile · k_tileᵀ - maximum)
//                                                v_tile = x · Wvᵀ      again in each block
//                                                o += p · v_tile
#pragma once

// (With its folder, so that bugs planted here leave it alone.)
#include "1_simple.cuh"

namespace vision_transformer::projection {

using vision_transformer::HeadsShape;
namespace simple = vision_transformer::simple;

constexpr int kTile = simple::kTile;  // queries of a block, keys at a time, columns of a group
constexpr int kThreads = simple::kThreads;  // 4 x 4 elements of such a tile each
constexpr int kPitch = kTile + 4;           // floats from a row of a tile to the next
constexpr int kMaxHeadDim = 256;

__device__ inline float4 load4(const half* from) { return simple::load_half4(from); }
__device__ inline float4 load4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ inline float number(half value) { return __half2float(value); }
__device__ inline float number(float value) { return value; }
template <class Element>
__device__ Element stored(float value) {
  return Element(value);
}

// Rows [first, first + 64) of an array of `rows` rows; zero beyond the last.
template <class Element>
struct Rows {
  const Element* array;
  int first, rows, stride;

  __device__ float4 operator()(int row, int column) const {
    return first + row < rows ? load4(array + int64_t(first + row) * stride + column)
                              : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
};

// The thread's place in a tile of 64 x 64: 4 rows and 4 columns from here on.
__device__ inline int own_row() { return int(threadIdx.x) / 16 * 4; }
__device__ inline int own_column() { return int(threadIdx.x) % 16 * 4; }

// ---- By heads -----------------------------------------------------------------------------------

// One block: 64 rows of x and 64 columns of qkv. Column j of qkv is number j % head_dim of head
// j / head_dim % heads, of q, k or v.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    by_heads_kernel(const Element* x,                    // [batch, tokens, width]
                    const Element* weight,               // [3 width, width]
                    const Element* bias,                 // [3 width], or null
                    Element* q, Element* k, Element* v,  // [batch, heads, tokens, head_dim]
                    HeadsShape shape) {
  const int width = shape.heads * shape.head_dim, rows = shape.batch * shape.tokens;
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  float sum[4][4] = {};
  simple::tile_product(Rows<Element>{x, first_row, rows, width},
                       Rows<Element>{weight, first_column, 3 * width, width}, width, sum);

  for (int i = 0; i < 4; ++i) {
    const int row = first_row + own_row() + i;
    if (row >= rows) break;
    for (int j = 0; j < 4; ++j) {
      const int column = first_column + own_column() + j;
      if (column >= 3 * width) break;
      const int head = column % width / shape.head_dim;
      Element* const to = column < width ? q : column < 2 * width ? k : v;
      const int64_t token =
          int64_t(row / shape.tokens * shape.heads + head) * shape.tokens + row % shape.tokens;
      to[token * shape.head_dim + column % shape.head_dim] =
          stored<Element>(sum[i][j] + (bias ? number(bias[column]) : 0.0f));
    }
  }
}

// ---- Attention, q, k and v inside or stored -----------------------------------------------------

// Part 0, 1 or 2 (q, k or v) of one head, as products of x. The weights of a head's part are
// head_dim rows of weight.
template <class Element>
struct Projected {
  const Element* x;       // [batch, tokens, width]
  const Element* weight;  // [3 width, width]
  const Element* bias;    // [3 width], or null

  // The thread's elements of 64 tokens from `first` on and of 64 columns of the head: sum. Zero
  // beyond the head's columns.
  __device__ void tile(int part, int first, int column, const HeadsShape& shape,
                       float (&sum)[4][4]) const {
    const int width = shape.heads * shape.head_dim, batch = blockIdx.z;
    const int of_head = part * width + int(blockIdx.y) * shape.head_dim;
    simple::tile_product(
        Rows<Element>{x + int64_t(batch) * shape.tokens * width, first, shape.tokens, width},
        Rows<Element>{weight + int64_t(of_head) * width, column, shape.head_dim, width}, width,
        sum);
    if (!bias) return;
    for (int j = 0; j < 4; ++j) {
      const int own = column + own_column() + j;
      const float more = own < shape.head_dim ? number(bias[of_head + own]) : 0.0f;
      for (int i = 0; i < 4; ++i) sum[i][j] += more;
    }
  }
};

// The same from arrays [batch, heads, tokens, head_dim].
template <class Element>
struct Stored {
  const Element *q, *k, *v;

  __device__ void tile(int part, int first, int column, const HeadsShape& shape,
                       float (&sum)[4][4]) const {
    const Element* const from = part == 0 ? q : part == 1 ? k : v;
    const int64_t matrix = int64_t(blockIdx.z) * shape.heads + blockIdx.y;
    const Rows<Element> rows{from + matrix * shape.tokens * shape.head_dim, first, shape.tokens,
                             shape.head_dim};
    column += own_column();
    for (int i = 0; i < 4; ++i) {
      const float4 four = column < shape.head_dim ? rows(own_row() + i, column)
                                                  : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      sum[i][0] = four.x, sum[i][1] = four.y, sum[i][2] = four.z, sum[i][3] = four.w;
    }
  }
};

// What the block has in shared memory: [column][token] of q and k, so that a thread's four tokens
// are neighbours; then the weights of the values, [key][query], in k's place.
template <int kGroups>
struct Tiles {
  float q[kGroups * kTile][kPitch];
  float k[kGroups * kTile][kPitch];
  float v[kTile][kGroups * kTile + 4];  // [key][column]
};

// sum += Σ left[d][row] · right[d][column] over d < depth, for the thread's 4 x 4.
template <int kLeft, int kRight>
__device__ void add_product(const float (*left)[kLeft], const float (*right)[kRight],
                            int first_column, int depth, float (&sum)[4][4]) {
#pragma unroll 4
  for (int d = 0; d < depth; ++d) {
    const float4 a = reinterpret_cast<const float4&>(left[d][own_row()]);
    const float4 b = reinterpret_cast<const float4&>(right[d][first_column + own_column()]);
    const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(as[i], bs[j], sum[i][j]);
  }
}

// The 16 threads that share four rows are half a warp.
template <class Combine>
__device__ float over_row(float value, const Combine& combine) {
  for (int step = 8; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// Scores of 64 keys become weights relative to the largest score so far; returns in `factor` what
// the sums before are worth now.
__device__ inline void online_softmax(float (&scores)[4][4], int keys_left, float (&row_max)[4],
                                      float (&row_sum)[4], float (&factor)[4]) {
  for (int i = 0; i < 4; ++i) {
    float largest = row_max[i];
    for (int j = 0; j < 4; ++j) {
      if (own_column() + j >= keys_left) scores[i][j] = -INFINITY;
      largest = fmaxf(largest, scores[i][j]);
    }
    largest = over_row(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int j = 0; j < 4; ++j) sum += scores[i][j] = exp2f(scores[i][j] - largest);
    factor[i] = exp2f(row_max[i] - largest);
    row_sum[i] = row_sum[i] * factor[i] + over_row(sum, [](float a, float b) { return a + b; });
    row_max[i] = largest;
  }
}

// One block: 64 queries of one head. kGroups: of 64 columns that head_dim has, the last one perhaps
// in part. scale_log2: the scores' factor times log2(e).
template <class Element, class Source, int kGroups>
__global__ void __launch_bounds__(kThreads)
    head_kernel(Source source,
                Element* o,  // [batch, tokens, heads, head_dim]
                HeadsShape shape, float scale_log2) {
  extern __shared__ __align__(16) unsigned char shared[];
  Tiles<kGroups>& tiles = *reinterpret_cast<Tiles<kGroups>*>(shared);
  const int first_query = blockIdx.x * kTile;
  // Load: 64 rows of q or k, transposed.
  const auto load = [&](int part, int first, float factor, float(*to)[kPitch]) {
    for (int group = 0; group < kGroups; ++group) {
      float sum[4][4] = {};
      source.tile(part, first, group * kTile, shape, sum);
      for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 4; ++i)
          to[group * kTile + own_column() + j][own_row() + i] = factor * sum[i][j];
    }
  };
  load(0, first_query, scale_log2, tiles.q);

  float out[kGroups][4][4] = {}, row_max[4], row_sum[4] = {};
  for (float& most : row_max) most = -INFINITY;
  for (int first = 0; first < shape.tokens; first += kTile) {
    load(1, first, 1.0f, tiles.k);
    __syncthreads();

    // Compute: scores, and weights in place of the keys.
    float scores[4][4] = {}, factor[4];
    add_product(tiles.q, tiles.k, 0, shape.head_dim, scores);
    online_softmax(scores, shape.tokens - first, row_max, row_sum, factor);
    __syncthreads();  // before the keys are overwritten
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 4; ++i) tiles.k[own_column() + j][own_row() + i] = scores[i][j];
    for (int group = 0; group < kGroups; ++group) {
      float sum[4][4] = {};
      source.tile(2, first, group * kTile, shape, sum);
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          tiles.v[own_row() + i][group * kTile + own_column() + j] = sum[i][j];
    }
    __syncthreads();

    // Update.
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) out[group][i][j] *= factor[i];
      add_product(tiles.k, tiles.v, group * kTile, kTile, out[group]);
    }
    __syncthreads();  // before the next keys and values
  }

  // Write: the head's columns of its tokens, where the output projection reads them.
  for (int i = 0; i < 4; ++i) {
    const int query = first_query + own_row() + i;
    if (query >= shape.tokens) break;
    Element* const row =
        o +
        ((int64_t(blockIdx.z) * shape.tokens + query) * shape.heads + blockIdx.y) * shape.head_dim;
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      for (int j = 0; j < 4; ++j)
        if (const int column = group * kTile + own_column() + j; column < shape.head_dim)
          row[column] = stored<Element>(out[group][i][j] / row_sum[i]);
  }
}

// y = x weightᵀ + bias: the output projection. 1_simple.cuh's product is of fp16 alone.
template <class Element>
__global__ void __launch_bounds__(kThreads) output_kernel(const Element* x,       // [rows, width]
                                                          const Element* weight,  // [width, width]
                                                          const Element* bias,  // [width], or null
                                                          Element* y,           // [rows, width]
                                                          int rows, int width) {
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  float sum[4][4] = {};
  simple::tile_product(Rows<Element>{x, first_row, rows, width},
                       Rows<Element>{weight, first_column, width, width}, width, sum);
  for (int i = 0; i < 4; ++i) {
    const int row = first_row + own_row() + i;
    for (int j = 0; j < 4; ++j) {
      const int column = first_column + own_column() + j;
      if (row < rows && column < width)
        y[int64_t(row) * width + column] =
            stored<Element>(sum[i][j] + (bias ? number(bias[column]) : 0.0f));
    }
  }
}

// ---- Launches -----------------------------------------------------------------------------------

inline std::string describe(const HeadsShape& shape) {
  return "projection and attention of [batch " + std::to_string(shape.batch) + ", tokens " +
         std::to_string(shape.tokens) + ", heads " + std::to_string(shape.heads) + ", head_dim " +
         std::to_string(shape.head_dim) + "]";
}

// Throws std::invalid_argument naming the shape and the limit, and for arrays that are null or do not
// start at a multiple of 16 bytes.
inline void require(const HeadsShape& shape, std::initializer_list<const void*> arrays) {
  const auto fail = [&](const std::string& limit) {
    throw std::invalid_argument(describe(shape) + ": " + limit);
  };
  if (shape.batch < 1 || shape.tokens < 1 || shape.heads < 1)
    fail("batch, tokens and heads must be at least 1");
  if (shape.batch > 65535 || shape.heads > 65535) fail("batch and heads must be at most 65535");
  if (shape.head_dim < 8 || shape.head_dim > kMaxHeadDim || shape.head_dim % 8 != 0)
    fail("head_dim must be a multiple of 8, and at most " + std::to_string(kMaxHeadDim));
  if (int64_t(shape.batch) * shape.tokens > 65535 * int64_t(kTile))
    fail("batch x tokens must be at most 4194240");
  for (const void* array : arrays)
    if (!array || reinterpret_cast<uintptr_t>(array) % 16 != 0)
      fail("all arrays must be there and start at a multiple of 16 bytes");
}

inline unsigned tiles_of(int64_t count) { return unsigned((count + kTile - 1) / kTile); }

// q, k, v = x weightᵀ + bias, each [batch, heads, tokens, head_dim]. bias may be null.
template <class Element>
void by_heads(const Element* x, const Element* weight, const Element* bias, Element* q, Element* k,
              Element* v, const HeadsShape& shape, cudaStream_t stream) {
  require(shape, {x, weight, q, k, v});
  const dim3 grid(tiles_of(3 * shape.heads * shape.head_dim),
                  tiles_of(int64_t(shape.batch) * shape.tokens));
  by_heads_kernel<Element><<<grid, kThreads, 0, stream>>>(x, weight, bias, q, k, v, shape);
  simple::require_launched("qkv by heads");
}

template <class Element, class Source, int kGroups>
void launch_heads(const Source& source, Element* o, const HeadsShape& shape, float scale,
                  cudaStream_t stream) {
  const auto kernel = head_kernel<Element, Source, kGroups>;
  constexpr int kBytes = int(sizeof(Tiles<kGroups>));
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int all = kBytes + 2 * simple::kDepth * kPitch * int(sizeof(float));
  if (all > most)
    throw std::invalid_argument(describe(shape) + ": a block needs " + std::to_string(all) +
                                " bytes of shared memory for heads of that size, this device has " +
                                std::to_string(most));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const dim3 grid(tiles_of(shape.tokens), shape.heads, shape.batch);
  kernel<<<grid, kThreads, kBytes, stream>>>(source, o, shape, scale * 1.44269504f);
  simple::require_launched("projection and attention");
}

// o [batch, tokens, heads, head_dim] = attention of the heads that the source has.
template <class Element, class Source>
void heads(const Source& source, Element* o, const HeadsShape& shape, float scale,
           cudaStream_t stream) {
  const auto launch = shape.head_dim <= kTile       ? launch_heads<Element, Source, 1>
                      : shape.head_dim <= 2 * kTile ? launch_heads<Element, Source, 2>
                                                    : launch_heads<Element, Source, 4>;
  launch(source, o, shape, scale, stream);
}

// softmax(q kᵀ scale) v, where q, k, v = x weightᵀ + bias are never stored. bias may be null.
template <class Element>
void inside(const Element* x, const Element* weight, const Element* bias, Element* o,
            const HeadsShape& shape, float scale, cudaStream_t stream) {
  require(shape, {x, weight, o});
  heads(Projected<Element>{x, weight, bias}, o, shape, scale, stream);
}

// The same with q, k, v from memory.
template <class Element>
void apart(const Element* q, const Element* k, const Element* v, Element* o,
           const HeadsShape& shape, float scale, cudaStream_t stream) {
  require(shape, {q, k, v, o});
  heads(Stored<Element>{q, k, v}, o, shape, scale, stream);
}

// y [rows, width] = x weightᵀ + bias. bias may be null.
template <class Element>
void output(const Element* x, const Element* weight, const Element* bias, Element* y,
            const HeadsShape& shape, cudaStream_t stream) {
  require(shape, {x, weight, y});
  const int rows = shape.batch * shape.tokens, width = shape.heads * shape.head_dim;
  output_kernel<Element><<<dim3(tiles_of(width), tiles_of(rows)), kThreads, 0, stream>>>(
      x, weight, bias, y, rows, width);
  simple::require_launched("output projection");
}

}  // namespace vision_transformer::projection
