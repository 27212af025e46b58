// What tests call besides the steps, compiled with their kernels in kernels.cu.
#pragma once

#include "../1_simple.cuh"
#include "../2_vectorized.cuh"
#include "../4_persistent.cuh"
#include "../5_cluster.cuh"
#include "../parts/boxes.cuh"
#include "internals.h"

namespace persistent_deformable_attention {

namespace {

template <class... Arguments>
void launch(const void* kernel, unsigned blocks, int threads, size_t shared_bytes,
            Arguments... arguments) {
  void* pointers[] = {&arguments...};
  lab::check(cudaLaunchKernel(kernel, blocks, threads, pointers, shared_bytes, nullptr));
}

// Two blocks, or two clusters of two, with a counter of their own.
void launch_persistent_mutant(const std::string& step, const void* kernel, const half* value,
                              const half* locations, const half* weights, half* out,
                              const DeformableShape& shape) {
  lab::DeviceArray<unsigned> fetched(std::vector<unsigned>{0}, "fetched");
  Problem problem = problem_of(shape);
  Work work = work_of(shape);
  if (step == "cluster") {
    Staging staging = plan_staging(shape, 24 * 1024, 2);
    unsigned* const counter = fetched.data();
    const ClusterLaunch launch(4, 2, staging, nullptr);
    const void* arguments[] = {&value,   &locations, &weights, &out,
                               &counter, &problem,   &staging, &work};
    lab::check(cudaLaunchKernelExC(&launch.config, kernel, const_cast<void**>(arguments)));
  } else {
    const Staging staging = plan_staging(shape, (step == "bulk" ? 32 : 48) * 1024);
    launch(kernel, 2, kPersistentThreads, size_t(staging.bytes), value, locations, weights, out,
           fetched.data(), problem, staging, work);
  }
  lab::check(cudaDeviceSynchronize());
}

Clusters cluster_numbers(const ClusterPlan& plan) {
  return {plan.blocks, plan.clusters, plan.staging.bytes};
}

}  // namespace

void launch_mutant(const std::string& step, const void* kernel, const half* value,
                   const half* locations, const half* weights, half* out,
                   const DeformableShape& shape) {
  if (step == "simple")
    launch(kernel, blocks_for(shape.out_elements(), kSimpleThreads, shape), kSimpleThreads, 0,
           value, locations, weights, out, problem_of(shape), shape.channels);
  else if (step == "vectorized")
    launch(kernel, blocks_for(shape.rows(), kVectorizedThreads / (shape.channels / 4), shape),
           kVectorizedThreads, 0, value, locations, weights, out, problem_of(shape));
  else
    launch_persistent_mutant(step, kernel, value, locations, weights, out, shape);
}

StagedLevels staged_levels(const DeformableShape& shape, int capacity, int blocks) {
  const Staging staging = plan_staging(shape, capacity, blocks);
  return {{std::begin(staging.first_pixel), std::end(staging.first_pixel)},
          staging.levels,
          staging.bytes};
}
StagedLevels staged_levels(const DeformableShape& shape) {
  return staged_levels(shape, shared_memory().of_block);
}
unsigned blocks_of_persistent(const DeformableShape& shape, int bytes) {
  return persistent_blocks<32>(persistent_kernel<32>, shape, bytes);
}
int dealt_in_advance(const DeformableShape& shape) { return work_of(shape).fixed; }

Clusters planned_clusters(const DeformableShape& shape) {
  return cluster_numbers(shape.channels == 32 ? plan_clusters(cluster_kernel<32>, shape)
                                              : plan_clusters(cluster_kernel<64>, shape));
}
Clusters known_clusters(const DeformableShape& shape) {
  return cluster_numbers(shape.channels == 32 ? known_clusters<32>(shape)
                                              : known_clusters<64>(shape));
}

std::pair<int, int> box_and_room(int pixels) { return {box_of(pixels), pixels_in_boxes(pixels)}; }

unsigned* fetch_counter(cudaStream_t stream, const DeformableShape& shape) {
  return counter_of(stream, shape);
}
std::vector<unsigned> fetch_counters() {
  std::vector<unsigned> values(kCounters);
  lab::check(cudaMemcpyFromSymbol(values.data(), fetched_chunks, values.size() * sizeof(unsigned)));
  return values;
}

}  // namespace persistent_deformable_attention
