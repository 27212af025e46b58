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
MlpOf<Element>& arrays_of(MlpOnDevice& arrays) {
  if constexpr (std::is_same_v<Element, half>)
    return arrays.fp16.value();
  else
    return arrays.fp32.value();
}
template <class Element>
mlp::MlpArrays<Element> pointers(MlpOnDevice& arrays) {
  MlpOf<Element>& a = arrays_of<Element>(arrays);
  return {a.x.data(),  a.w1.data(),     a.b1.data(), a.w2.data(),
          a.b2.data(), a.hidden.data(), a.y.data()};
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
    return {{name + " fc1",
             [=](MlpOnDevice& arrays) {
               const auto a = pointers<Element>(arrays);
               product(a.x, a.w1, a.hidden, s.first(), nullptr);
             }},
            {name + " GELU",
             [=](MlpOnDevice& arrays) {
               const auto a = pointers<Element>(arrays);
               mlp::finish<Element>(a.b1, nullptr, a.hidden, s.first(), nullptr);
             }},
            {name + " fc2",
             [=](MlpOnDevice& arrays) {
               const auto a = pointers<Element>(arrays);
               product(a.hidden, a.w2, a.y, s.second(), nullptr);
             }},
            {name + " residual", [=](MlpOnDevice& arrays) {
               const auto a = pointers<Element>(arrays);
               mlp::finish<Element>(a.b2, a.x, a.y, s.second(), nullptr);
             }}};
  };
  return {name, run, stages, kStorage<Element>, mlp::lacking<Element>, variant};
}

template <class Element>
void first_layer(MlpOnDevice& arrays, const MlpSizes& s, cudaStream_t stream) {
  const auto a = pointers<Element>(arrays);
  mlp::epilogue<Element>(a.x, a.w1, a.b1, nullptr, a.hidden, s.first(), stream);
}
template <class Element>
void second_layer(MlpOnDevice& arrays, const MlpSizes& s, cudaStream_t stream) {
  const auto a = pointers<Element>(arrays);
  mlp::epilogue<Element>(a.hidden, a.w2, a.b2, a.x, a.y, s.second(), stream);
}
template <class Element>
MlpStep epilogue_step() {
  const auto run = [](MlpOnDevice& arrays, const MlpSizes& s, cudaStream_t stream) {
    mlp::mlp_by_epilogue(pointers<Element>(arrays), s.rows(), s.width, s.hidden, stream);
  };
  const auto stages = [](const MlpSizes& s) -> std::vector<MlpStep::Stage> {
    return {
        {"epilogue fc1", [=](MlpOnDevice& arrays) { first_layer<Element>(arrays, s, nullptr); }},
        {"epilogue fc2", [=](MlpOnDevice& arrays) { second_layer<Element>(arrays, s, nullptr); }}};
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
               replay(*first, arrays, nullptr,
                      [&](cudaStream_t recorded) { first_layer<Element>(arrays, s, recorded); });
             }},
            {"graph fc2", [=](MlpOnDevice& arrays) {
               replay(*second, arrays, nullptr,
                      [&](cudaStream_t recorded) { second_layer<Element>(arrays, s, recorded); });
             }}};
  };
  return {"graph", run, stages, kStorage<Element>, mlp::lacking<Element>};
}

}  // namespace lab
