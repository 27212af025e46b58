// Chapter 11: the MLP of a Vision Transformer, from WMMA to one launch a product.
#include <map>
#include <memory>

#include "graph.cuh"
#include "problem.h"
#include "registers.cuh"
#include "swizzle.cuh"
#include "wmma.cuh"

namespace {

using lab::MlpOnDevice;
using lab::MlpSizes;
using lab::MlpStep;

template <class Element>
lab::MlpOf<Element>& arrays_of(MlpOnDevice& arrays) {
  if constexpr (std::is_same_v<Element, half>)
    return arrays.fp16.value();
  else
    return arrays.fp32.value();
}
template <class Element>
mlp::MlpArrays<Element> pointers(MlpOnDevice& arrays) {
  lab::MlpOf<Element>& a = arrays_of<Element>(arrays);
  return {a.x.data(),  a.w1.data(),     a.b1.data(), a.w2.data(),
          a.b2.data(), a.hidden.data(), a.y.data()};
}

template <class Element>
constexpr lab::Storage kStorage =
    std::is_same_v<Element, half> ? lab::Storage::kFp16 : lab::Storage::kFp32;

template <class Element>
using Product = void (*)(const Element* x, const Element* weight, Element* y,
                         const mlp::Shape& shape, cudaStream_t stream);
template <class Element>
using Layer = void (*)(const Element* x, const Element* weight, const Element* bias,
                       const Element* residual, Element* y, const mlp::Shape& shape,
                       cudaStream_t stream);

// A step whose product is one launch and what stands behind it another.
template <class Element>
MlpStep separate(const std::string& name, Product<Element> product, Layer<Element> layer,
                 const std::vector<std::string>& files) {
  const auto run = [layer](MlpOnDevice& arrays, const MlpSizes& s, cudaStream_t stream) {
    const mlp::MlpArrays<Element> a = pointers<Element>(arrays);
    layer(a.x, a.w1, a.b1, nullptr, a.hidden, s.first(), stream);
    layer(a.hidden, a.w2, a.b2, a.x, a.y, s.second(), stream);
  };
  const auto stages = [name, product](const MlpSizes& s) -> std::vector<MlpStep::Stage> {
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
  return {name, run, stages, kStorage<Element>, mlp::lacking<Element>, false, files};
}

// A variant of `pipeline` that failed, for --step alone.
template <template <int> class Layout, bool kCopiesFirst>
MlpStep variant(const std::string& name) {
  MlpStep step =
      separate<half>(name, mlp::pipeline_product<Layout, kCopiesFirst>,
                     [](const half* x, const half* weight, const half* bias, const half* residual,
                        half* y, const mlp::Shape& shape, cudaStream_t stream) {
                       mlp::pipeline_product<Layout, kCopiesFirst>(x, weight, y, shape, stream);
                       mlp::finish(bias, residual, y, shape, stream);
                     },
                     {"block_tile.cuh", "pipeline.cuh", "finish.cuh"});
  step.variant = true;
  return step;
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
  return {"epilogue",
          run,
          stages,
          kStorage<Element>,
          mlp::lacking<Element>,
          false,
          {"block_tile.cuh", "pipeline.cuh", "epilogue.cuh"}};
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
  return {"graph",
          run,
          stages,
          kStorage<Element>,
          mlp::lacking<Element>,
          false,
          {"block_tile.cuh", "pipeline.cuh", "epilogue.cuh", "graph.cuh"}};
}

// All steps on arrays of such numbers.
template <class Element>
std::vector<MlpStep> steps() {
  return {separate<Element>("wmma", mlp::wmma_product, mlp::wmma, {"wmma.cuh", "finish.cuh"}),
          separate<Element>("registers", mlp::registers_product, mlp::registers,
                            {"block_tile.cuh", "registers.cuh", "finish.cuh"}),
          separate<Element>("pipeline", mlp::pipeline_product<tile::Padded>, mlp::pipeline,
                            {"block_tile.cuh", "pipeline.cuh", "finish.cuh"}),
          separate<Element>("swizzle", mlp::swizzle_product, mlp::swizzle,
                            {"block_tile.cuh", "pipeline.cuh", "swizzle.cuh", "finish.cuh"}),
          epilogue_step<Element>(),
          graph_step<Element>()};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<MlpStep> all = steps<half>();
  all.insert(all.begin() + 3, {variant<tile::Padded, true>("copies first"),
                               variant<tile::Plain, false>("no padding")});
  for (MlpStep& step : steps<float>()) all.push_back(std::move(step));
  return lab::mlp_main(
      argc, argv, "11_mlp",
      "Chapter 11: the MLP of a Vision Transformer, y = x + W2 gelu(W1 x + b1) + b2, from\n"
      "WMMA with everything else in launches of its own to one launch a product.",
      all);
}
