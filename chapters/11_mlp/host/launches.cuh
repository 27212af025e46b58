// The launches of each step, one by one, with the program's arrays.
#pragma once

#include <map>
#include <memory>

#include "../6_graph.cuh"
#include "../kernels.h"
#include "../parts/finish.cuh"
#include "problem.h"

namespace lab {

template <class Element>
mlp::MlpArrays<Element> pointers(MlpOnDevice& arrays) {
  const auto data = [](auto& a) -> mlp::MlpArrays<Element> {
    return {a.x.data(),  a.w1.data(),     a.b1.data(), a.w2.data(),
            a.b2.data(), a.hidden.data(), a.y.data()};
  };
  if constexpr (std::is_same_v<Element, half>)
    return data(arrays.fp16.value());
  else
    return data(arrays.fp32.value());
}

// A launch with a line of its own; run(a) has the arrays' pointers.
template <class Element, class Run>
MlpStep::Stage stage(const std::string& name, const Run& run) {
  return {name, [run](MlpOnDevice& arrays) { run(pointers<Element>(arrays)); }};
}

template <class Element>
constexpr Storage kStorage = std::is_same_v<Element, half> ? Storage::kFp16 : Storage::kFp32;

// A step whose product is one launch and what stands behind it another.
template <class Element>
MlpStep separate_launches(const mlp::LayerStep<Element>& step, bool variant = false) {
  const std::string name = step.name;
  const auto run = [layer = step.layer](MlpOnDevice& arrays, const MlpSizes& s,
                                        cudaStream_t stream) {
    const mlp::MlpArrays<Element> a = pointers<Element>(arrays);
    layer(a.x, a.w1, a.b1, nullptr, a.hidden, s.first(), stream);
    layer(a.hidden, a.w2, a.b2, a.x, a.y, s.second(), stream);
  };
  const auto stages = [name,
                       product = step.product](const MlpSizes& s) -> std::vector<MlpStep::Stage> {
    return {
        stage<Element>(name + " fc1",
                       [=](const auto& a) { product(a.x, a.w1, a.hidden, s.first(), nullptr); }),
        stage<Element>(name + " GELU",
                       [=](const auto& a) {
                         mlp::finish<Element>(a.b1, nullptr, a.hidden, s.first(), nullptr);
                       }),
        stage<Element>(name + " fc2",
                       [=](const auto& a) { product(a.hidden, a.w2, a.y, s.second(), nullptr); }),
        stage<Element>(name + " residual", [=](const auto& a) {
          mlp::finish<Element>(a.b2, a.x, a.y, s.second(), nullptr);
        })};
  };
  return {name, run, stages, kStorage<Element>, mlp::lacking<Element>, variant};
}

template <class Element>
void first_layer(const mlp::MlpArrays<Element>& a, const MlpSizes& s, cudaStream_t stream) {
  mlp::epilogue<Element>(a.x, a.w1, a.b1, nullptr, a.hidden, s.first(), stream);
}
template <class Element>
void second_layer(const mlp::MlpArrays<Element>& a, const MlpSizes& s, cudaStream_t stream) {
  mlp::epilogue<Element>(a.hidden, a.w2, a.b2, a.x, a.y, s.second(), stream);
}
template <class Element>
MlpStep epilogue_step() {
  const auto run = [](MlpOnDevice& arrays, const MlpSizes& s, cudaStream_t stream) {
    mlp::mlp_by_epilogue(pointers<Element>(arrays), s.rows(), s.width, s.hidden, stream);
  };
  const auto stages = [](const MlpSizes& s) -> std::vector<MlpStep::Stage> {
    return {stage<Element>("epilogue fc1", [=](const auto& a) { first_layer(a, s, nullptr); }),
            stage<Element>("epilogue fc2", [=](const auto& a) { second_layer(a, s, nullptr); })};
  };
  return {"epilogue", run, stages, kStorage<Element>, mlp::lacking<Element>};
}

// Its lines are graphs of one product each, so that each has a time of its own.
template <class Element>
MlpStep graph_step() {
  using Graphs = std::map<MlpOnDevice*, mlp::Graph>;  // one for each copy of the arrays
  const auto replay = [](Graphs& graphs, MlpOnDevice& arrays, cudaStream_t stream,
                         const auto& launch) {
    auto found = graphs.find(&arrays);
    if (found == graphs.end()) found = graphs.emplace(&arrays, mlp::Graph(launch)).first;
    found->second.replay(stream);
  };
  const auto both = std::make_shared<Graphs>(), first = std::make_shared<Graphs>(),
             second = std::make_shared<Graphs>();
  const auto run = [=](MlpOnDevice& arrays, const MlpSizes& s, cudaStream_t stream) {
    replay(*both, arrays, stream, [&](cudaStream_t recorded) {
      mlp::mlp_by_epilogue(pointers<Element>(arrays), s.rows(), s.width, s.hidden, recorded);
    });
  };
  const auto stages = [=](const MlpSizes& s) -> std::vector<MlpStep::Stage> {
    return {{"graph fc1",
             [=](MlpOnDevice& arrays) {
               replay(*first, arrays, nullptr, [&](cudaStream_t recorded) {
                 first_layer(pointers<Element>(arrays), s, recorded);
               });
             }},
            {"graph fc2", [=](MlpOnDevice& arrays) {
               replay(*second, arrays, nullptr, [&](cudaStream_t recorded) {
                 second_layer(pointers<Element>(arrays), s, recorded);
               });
             }}};
  };
  return {"graph", run, stages, kStorage<Element>, mlp::lacking<Element>};
}

}  // namespace lab
