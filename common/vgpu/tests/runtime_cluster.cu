// Clusters as programs use them: launch attributes, limits, occupancy, cooperative groups, graphs.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

namespace cg = cooperative_groups;

namespace {

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

struct Ints {
  int* p = nullptr;
  std::size_t n;
  explicit Ints(std::size_t count, int value = 0) : n(count) {
    CHECK_OK(cudaMalloc(&p, n * sizeof(int)));
    const std::vector<int> values(n, value);
    CHECK_OK(cudaMemcpy(p, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  }
  explicit Ints(const std::vector<int>& values) : n(values.size()) {
    CHECK_OK(cudaMalloc(&p, n * sizeof(int)));
    CHECK_OK(cudaMemcpy(p, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  }
  ~Ints() { cudaFree(p); }
  std::vector<int> values() const {
    std::vector<int> v(n);
    CHECK_OK(cudaMemcpy(v.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost));
    return v;
  }
};

struct Config {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[3]{};
  Config(dim3 grid, dim3 block, std::size_t shared = 0) {
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.attrs = attributes;
  }
  Config& cluster(unsigned x, unsigned y = 1, unsigned z = 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {x, y, z};
    return *this;
  }
  Config& cooperative() {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
    return *this;
  }
  Config& spread() {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
    attributes[config.numAttrs++].val.clusterSchedulingPolicyPreference =
        cudaClusterSchedulingPolicySpread;
    return *this;
  }
};

// One line of 16 numbers for each thread.
__global__ void describe(int* out) {
  const cg::cluster_group cluster = cg::this_cluster();
  __shared__ int word;
  int* line = out + 16 * cg::this_grid().thread_rank();
  int i = 0;
  line[i++] = cluster.num_blocks();
  line[i++] = cluster.block_rank();
  line[i++] = cluster.dim_blocks().x * 100 + cluster.dim_blocks().y * 10 + cluster.dim_blocks().z;
  line[i++] =
      cluster.block_index().x * 100 + cluster.block_index().y * 10 + cluster.block_index().z;
  line[i++] = cluster.num_threads();
  line[i++] = cluster.thread_rank();
  line[i++] = cluster.query_shared_rank(cluster.map_shared_rank(&word, cluster.num_blocks() - 1));
  line[i++] = cluster.query_shared_rank(&word);
  line[i++] = __clusterDimIsSpecified();
  line[i++] = __clusterGridDimInClusters().x * 100 + __clusterGridDimInClusters().y;
  line[i++] = __clusterIdx().x * 100 + __clusterIdx().y;
  line[i++] = gridDim.x * 100 + gridDim.y;
  line[i++] = __isClusterShared(cluster.map_shared_rank(&word, 0));
  cluster.sync();
}
__global__ void __cluster_dims__(2, 3, 1) fixed(int* out) {
  out[blockIdx.y * gridDim.x + blockIdx.x] = cg::this_cluster().block_rank();
}
__global__ void __cluster_dims__() open(int* out) {
  out[blockIdx.x] = cg::this_cluster().num_blocks();
}
__global__ void __launch_bounds__(64, 1, 4) bounded(int* out) {
  out[blockIdx.x] = cg::this_cluster().num_blocks();
}
__global__ void __block_size__((32, 1, 1), (2, 1, 1)) counted_in_clusters(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = gridDim.x * 10 + cg::this_cluster().block_rank();
}

// Sums the cluster's values: each block its own, then rank 0 those of all.
__global__ void cluster_sum(const int* in, int* out) {
  __shared__ int partial;
  const auto cluster = cg::this_cluster();
  const auto block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  if (threadIdx.x == 0) partial = 0;
  block.sync();
  const int sum = cg::reduce(warp, in[cg::this_grid().thread_rank()], cg::plus<int>());
  if (warp.thread_rank() == 0) atomicAdd(&partial, sum);
  auto token = cluster.barrier_arrive();
  cluster.barrier_wait(std::move(token));
  if (cluster.block_rank() == 0 && threadIdx.x < cluster.num_blocks()) {
    const auto active = cg::coalesced_threads();
    const int all =
        cg::reduce(active, *cluster.map_shared_rank(&partial, threadIdx.x), cg::plus<int>());
    if (threadIdx.x == 0) out[blockIdx.x / cluster.num_blocks()] = all;
  }
  cluster.sync();
}

// A histogram whose bins are spread over the blocks of a cluster.
__global__ void histogram(const int* in, int n, int bins, int* out) {
  extern __shared__ int part[];
  const auto cluster = cg::this_cluster();
  const int each = bins / cluster.num_blocks();
  for (int i = threadIdx.x; i < each; i += blockDim.x) part[i] = 0;
  cluster.sync();
  const int first = cg::this_grid().thread_rank(), step = cg::this_grid().num_threads();
  for (int i = first; i < n; i += step)
    atomicAdd(cluster.map_shared_rank(part, in[i] / each) + in[i] % each, 1);
  cluster.sync();
  for (int i = threadIdx.x; i < each; i += blockDim.x)
    atomicAdd(out + cluster.block_rank() * each + i, part[i]);
}

// Grid-wide and cluster-wide barriers in one kernel: each round every block adds what the cluster's
// next block had.
__global__ void two_barriers(int* values, int rounds) {
  __shared__ int mine;
  const auto cluster = cg::this_cluster();
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x == 0) mine = values[blockIdx.x];
    cluster.sync();
    const int next =
        *cluster.map_shared_rank(&mine, (cluster.block_rank() + 1) % cluster.num_blocks());
    cg::this_grid().sync();
    if (threadIdx.x == 0) values[blockIdx.x] = mine + next;
    cg::this_grid().sync();
  }
}

}  // namespace

TEST_CASE("cluster: cooperative groups, from a launch attribute and as the kernel says") {
  const dim3 grid(4, 6);
  Ints out(16 * 24 * 2);
  Config config(grid, 2);
  config.cluster(2, 3).spread();
  CHECK_OK(cudaLaunchKernelEx(&config.config, describe, out.p));
  const std::vector<int> got = out.values();
  for (int b = 0; b < 24; ++b)
    for (int t = 0; t < 2; ++t) {
      const int x = b % 4, y = b / 4, rank = y % 3 * 2 + x % 2;
      const std::vector<int> want = {6,
                                     rank,
                                     231,
                                     x % 2 * 100 + y % 3 * 10,
                                     12,
                                     rank * 2 + t,
                                     5,
                                     rank,
                                     1,
                                     202,
                                     x / 2 * 100 + y / 3,
                                     406,
                                     1};
      const int* line = got.data() + 16 * (2 * b + t);
      CHECK(std::vector<int>(line, line + 13) == want);
    }
  Ints ranks(24, -1);
  fixed<<<grid, 1>>>(ranks.p);
  const std::vector<int> r = ranks.values();
  for (int b = 0; b < 24; ++b) CHECK(r[b] == b / 4 % 3 * 2 + b % 4 % 2);
  // Without clusters a block is one of its own.
  Ints alone(32);
  describe<<<1, 2>>>(alone.p);
  const std::vector<int> a = alone.values();
  CHECK(std::vector<int>(a.begin() + 16, a.begin() + 29) ==
        std::vector<int>{1, 0, 111, 0, 2, 1, 0, 0, 0, 101, 0, 101, 1});
  Ints clusters(8, -1);
  counted_in_clusters<<<4, 32>>>(clusters.p);
  CHECK(clusters.values() == std::vector<int>{80, 81, 80, 81, 80, 81, 80, 81});
}

TEST_CASE("cluster: sums, a histogram in distributed shared memory, both barriers") {
  std::vector<int> in(16 * 96);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 7 % 101);
  const Ints data(in);
  for (const unsigned blocks : {1u, 2u, 8u}) {
    Ints sums(16 / blocks);
    Config config(16, 96);
    config.cluster(blocks);
    CHECK_OK(
        cudaLaunchKernelEx(&config.config, cluster_sum, static_cast<const int*>(data.p), sums.p));
    const std::vector<int> got = sums.values();
    for (std::size_t c = 0; c < got.size(); ++c)
      CHECK(got[c] ==
            std::accumulate(in.begin() + c * blocks * 96, in.begin() + (c + 1) * blocks * 96, 0));
  }
  const int n = 3000, bins = 64;
  std::vector<int> values(n), want(bins);
  for (int i = 0; i < n; ++i) ++want[values[i] = (i * 7919u >> 3) % bins];
  const Ints samples(values);
  Ints counts(bins);
  Config config(8, 128, bins / 4 * sizeof(int));
  config.cluster(4);
  CHECK_OK(cudaLaunchKernelEx(&config.config, histogram, static_cast<const int*>(samples.p), n,
                              bins, counts.p));
  CHECK(counts.values() == want);

  std::vector<int> state(12);
  std::iota(state.begin(), state.end(), 1);
  const Ints both(state);
  Config barriers(12, 32);
  barriers.cluster(3).cooperative();
  CHECK_OK(cudaLaunchKernelEx(&barriers.config, two_barriers, both.p, 3));
  for (int r = 0; r < 3; ++r) {
    const std::vector<int> old = state;
    for (int b = 0; b < 12; ++b) state[b] = old[b] + old[b / 3 * 3 + (b + 1) % 3];
  }
  CHECK(both.values() == state);
}

TEST_CASE("cluster: what a launch refuses") {
  Ints out(64 * 16);
  const auto launch = [&](void (*kernel)(int*), const Config& config) {
    const cudaError_t error = cudaLaunchKernelEx(&config.config, kernel, out.p);
    CHECK(cudaGetLastError() == error);
    return error;
  };
  CHECK(launch(describe, Config(4, 1).cluster(3)) == cudaErrorInvalidConfiguration);     // 4 % 3
  CHECK(launch(describe, Config(4, 1).cluster(2, 2)) == cudaErrorInvalidConfiguration);  // 1 % 2
  CHECK(launch(describe, Config(4, 1).cluster(0)) == cudaErrorInvalidConfiguration);
  CHECK(launch(describe, Config(16, 1).cluster(16)) == cudaErrorInvalidClusterSize);
  CHECK_OK(cudaFuncSetAttribute(describe, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CHECK(launch(describe, Config(16, 1).cluster(16)) == cudaSuccess);
  CHECK(out.values()[16 * 15 + 1] == 15);
  CHECK(launch(describe, Config(32, 1).cluster(32)) == cudaErrorInvalidClusterSize);
  CHECK_OK(cudaFuncSetAttribute(describe, cudaFuncAttributeNonPortableClusterSizeAllowed, 0));
  // The kernel's own word counts.
  CHECK(launch(fixed, Config(dim3(4, 6), 1).cluster(2, 3)) == cudaSuccess);
  CHECK(launch(fixed, Config(dim3(4, 6), 1).cluster(2)) == cudaErrorInvalidClusterSize);
  fixed<<<4, 1>>>(out.p);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(launch(open, Config(4, 1)) == cudaErrorInvalidClusterSize);
  CHECK(launch(open, Config(4, 1).cluster(2)) == cudaSuccess);
  CHECK(out.values()[3] == 2);
  CHECK(launch(bounded, Config(8, 1).cluster(4)) == cudaSuccess);
  CHECK(launch(bounded, Config(8, 1).cluster(8)) == cudaErrorInvalidClusterSize);
  // More blocks than fit at once.
  CHECK(launch(describe, Config(132 * 32 + 2, 1).cluster(2).cooperative()) ==
        cudaErrorCooperativeLaunchTooLarge);
  CHECK_OK(cudaDeviceSynchronize());
}

TEST_CASE("cluster: attributes of functions and occupancy") {
  cudaFuncAttributes a{};
  CHECK_OK(cudaFuncGetAttributes(&a, fixed));
  CHECK(a.clusterDimMustBeSet == 1);
  CHECK(a.requiredClusterWidth == 2);
  CHECK(a.requiredClusterHeight == 3);
  CHECK(a.requiredClusterDepth == 1);
  CHECK(a.nonPortableClusterSizeAllowed == 0);
  CHECK(cudaFuncSetAttribute(fixed, cudaFuncAttributeRequiredClusterWidth, 1) ==
        cudaErrorNotPermitted);
  CHECK(cudaGetLastError() == cudaErrorNotPermitted);
  CHECK_OK(cudaFuncGetAttributes(&a, describe));
  CHECK(a.clusterDimMustBeSet == 0);
  CHECK(a.requiredClusterWidth == 0);
  int n = 0;
  Config config(64, 128);
  CHECK_OK(cudaOccupancyMaxPotentialClusterSize(&n, describe, &config.config));
  CHECK(n == 8);
  CHECK_OK(cudaFuncSetAttribute(describe, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CHECK_OK(cudaFuncGetAttributes(&a, describe));
  CHECK(a.nonPortableClusterSizeAllowed == 1);
  CHECK_OK(cudaOccupancyMaxPotentialClusterSize(&n, describe, &config.config));
  CHECK(n == 16);
  CHECK_OK(cudaFuncSetAttribute(describe, cudaFuncAttributeNonPortableClusterSizeAllowed, 0));
  Config small(64, 32);
  CHECK_OK(cudaOccupancyMaxPotentialClusterSize(&n, bounded, &small.config));
  CHECK(n == 4);
  // 16 blocks of 128 threads on each of 132 SMs; with 100 KiB of shared memory two.
  config.cluster(4);
  CHECK_OK(cudaOccupancyMaxActiveClusters(&n, describe, &config.config));
  CHECK(n == 16 * 132 / 4);
  config.config.dynamicSmemBytes = 100 << 10;
  CHECK_OK(cudaFuncSetAttribute(describe, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  CHECK_OK(cudaOccupancyMaxActiveClusters(&n, describe, &config.config));
  CHECK(n == 2 * 132 / 4);
  Config none(64, 32);
  CHECK_OK(cudaOccupancyMaxActiveClusters(&n, fixed, &none.config));
  CHECK(n == 32 * 132 / 6);
  none.cluster(16);
  CHECK(cudaOccupancyMaxActiveClusters(&n, describe, &none.config) == cudaErrorInvalidClusterSize);
  CHECK(cudaGetLastError() == cudaErrorInvalidClusterSize);
  // A size that is set at run time holds for launches that do not say one.
  CHECK_OK(cudaFuncSetAttribute(bounded, cudaFuncAttributeRequiredClusterWidth, 2));
  CHECK_OK(cudaFuncSetAttribute(bounded, cudaFuncAttributeRequiredClusterHeight, 1));
  CHECK_OK(cudaFuncSetAttribute(bounded, cudaFuncAttributeRequiredClusterDepth, 1));
  CHECK_OK(cudaFuncGetAttributes(&a, bounded));
  CHECK(a.requiredClusterWidth == 2);
  Ints out(4);
  bounded<<<4, 1>>>(out.p);
  CHECK(out.values() == std::vector<int>(4, 2));
}

TEST_CASE("cluster: kernel nodes of graphs keep their clusters, captured and added") {
  Ints out(8);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_OK(cudaStreamCreate(&stream));
  CHECK_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Config config(8, 1);
  config.cluster(4);
  config.config.stream = stream;
  CHECK_OK(cudaLaunchKernelEx(&config.config, open, out.p));
  CHECK_OK(cudaStreamEndCapture(stream, &graph));
  std::size_t count = 1;
  cudaGraphNode_t node;
  CHECK_OK(cudaGraphGetNodes(graph, &node, &count));
  cudaLaunchAttributeValue value{};
  CHECK_OK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
  CHECK(value.clusterDim.x == 4);
  CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK(out.values() == std::vector<int>(8, 4));
  CHECK_OK(cudaGraphExecDestroy(exec));
  value.clusterDim = {2, 1, 1};
  CHECK_OK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
  value.clusterDim = {3, 1, 1};
  CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK(out.values() == std::vector<int>(8, 2));
  CHECK_OK(cudaGraphExecDestroy(exec));
  CHECK_OK(cudaGraphDestroy(graph));
  CHECK_OK(cudaStreamDestroy(stream));
}
