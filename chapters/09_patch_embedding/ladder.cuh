// The six steps as the program and the tests run them: with their memory and streams.
#pragma once

#include <memory>

#include "1_channel_launches.cuh"
#include "3_streams.cuh"
#include "5_graph.cuh"
#include "6_one_product.cuh"
#include "host/problem.h"

namespace patch_embedding {

using Memory = lab::DeviceArray<uint4>;

// Device memory of that many bytes that lives as long as those who hold it.
inline std::shared_ptr<Memory> allocated(size_t bytes) {
  return std::make_shared<Memory>((bytes + 15) / 16, "patch embedding's memory");
}
inline Inputs inputs_of(const HostArrays& arrays) {
  return {arrays.image.data(), arrays.weight.data(), arrays.bias.data(), arrays.class_token.data(),
          arrays.position.data()};
}

// Streams that live as long as those who hold them.
inline std::shared_ptr<std::vector<cudaStream_t>> streams_of(int count) {
  const auto destroy = [](std::vector<cudaStream_t>* streams) {
    for (const cudaStream_t stream : *streams) cudaStreamDestroy(stream);
    delete streams;
  };
  std::shared_ptr<std::vector<cudaStream_t>> streams(new std::vector<cudaStream_t>, destroy);
  for (int i = 0; i < count; ++i) {
    cudaStream_t stream = nullptr;
    lab::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams->push_back(stream);
  }
  return streams;
}

constexpr int kAtOnce = 128;  // grids that a GPU runs at a time, since sm_75

inline Step streams_step(int count) {
  return {count == 1 ? "1 stream" : std::to_string(count) + " streams",
          [count](HostArrays& a, const Shape& shape, const Part& part) {
            const auto memory = allocated(size_t(count) * kDotBytes);
            const auto all = streams_of(count);
            return [=, &a] {
              streams(inputs_of(a), a.tokens.data(), shape, part, a.patches.data(), memory->data(),
                      *all);
            };
          },
          [count](const Shape&, const Part& part) { return streams_traffic(part, count); }};
}

// stream_count: of the step in between one stream and as many as a GPU runs at once.
inline std::vector<Step> steps_of(int stream_count) {
  std::vector<Step> steps;
  steps.push_back({"channel launches",
                   [](HostArrays& a, const Shape& shape, const Part& part) {
                     const auto memory = allocated(kChannelLaunchesBytes);
                     return [=, &a] {
                       channel_launches(inputs_of(a), a.tokens.data(), shape, part, memory->data());
                     };
                   },
                   [](const Shape&, const Part& part) { return channel_launches_traffic(part); }});
  steps.push_back({"unified",
                   [](HostArrays& a, const Shape& shape, const Part& part) {
                     const auto memory = allocated(kDotBytes);
                     return [=, &a] {
                       unified(inputs_of(a), a.tokens.data(), shape, part, a.patches.data(),
                               memory->data());
                     };
                   },
                   [](const Shape&, const Part& part) { return unified_traffic(part); }});
  steps.push_back(streams_step(1));
  if (stream_count != 1) steps.push_back(streams_step(stream_count));
  if (stream_count != kAtOnce) steps.push_back(streams_step(kAtOnce));
  steps.push_back({"resident",
                   [](HostArrays& a, const Shape& shape, const Part& part) {
                     const auto memory = allocated(resident_bytes(part));
                     const auto stream = streams_of(1);
                     return [=, &a] {
                       resident(inputs_of(a), a.tokens.data(), shape, part, a.patches.data(),
                                a.answers.data(), memory->data(), stream->front());
                     };
                   },
                   [](const Shape&, const Part& part) { return resident_traffic(part); }});
  steps.push_back({"graph",
                   [](HostArrays& a, const Shape& shape, const Part& part) {
                     const auto memory = allocated(resident_bytes(part));
                     const auto stream = streams_of(1);
                     const auto graph =
                         std::make_shared<Graph>(inputs_of(a), shape, part, a.patches.data(),
                                                 a.answers.data(), memory->data(), stream->front());
                     return [=, &a] {
                       (void)memory, (void)stream;  // which the graph uses
                       graph->replay(a.tokens.data());
                     };
                   },
                   [](const Shape&, const Part& part) { return graph_traffic(part); }});
  steps.push_back(
      {"one product",
       [](HostArrays& a, const Shape& shape, const Part&) {
         const auto memory = allocated(one_product_bytes(shape));
         const auto stream = streams_of(1);
         return [=, &a] {
           one_product(inputs_of(a), a.tokens.data(), shape, memory->data(), stream->front());
         };
       },
       [](const Shape& shape, const Part&) { return one_product_traffic(shape); }, true});
  return steps;
}

}  // namespace patch_embedding
