// What the chapter's program runs, step by step, and what its tests call besides.
#include "kernels.h"

#include <map>
#include <memory>

#include "1_wmma.cuh"
#include "2_registers.cuh"
#include "4_swizzle.cuh"
#include "6_graph.cuh"

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

// A step whose product is one launch and what stands behind it another.
template <class Element>
MlpStep separate(const std::string& name, mlp::Product<Element> product, mlp::Layer<Element> layer,
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
                     {"parts/block_tile.cuh", "3_pipeline.cuh", "parts/finish.cuh"});
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
          {"parts/block_tile.cuh", "3_pipeline.cuh", "5_epilogue.cuh"}};
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
          {"parts/block_tile.cuh", "3_pipeline.cuh", "5_epilogue.cuh", "6_graph.cuh"}};
}

// All steps on arrays of such numbers.
template <class Element>
std::vector<MlpStep> steps_on() {
  return {
      separate<Element>("wmma", mlp::wmma_product, mlp::wmma, {"1_wmma.cuh", "parts/finish.cuh"}),
      separate<Element>("registers", mlp::registers_product, mlp::registers,
                        {"parts/block_tile.cuh", "2_registers.cuh", "parts/finish.cuh"}),
      separate<Element>("pipeline", mlp::pipeline_product<tile::Padded>, mlp::pipeline,
                        {"parts/block_tile.cuh", "3_pipeline.cuh", "parts/finish.cuh"}),
      separate<Element>(
          "swizzle", mlp::swizzle_product, mlp::swizzle,
          {"parts/block_tile.cuh", "3_pipeline.cuh", "4_swizzle.cuh", "parts/finish.cuh"}),
      epilogue_step<Element>(),
      graph_step<Element>()};
}

// ---- For tests ----------------------------------------------------------------------------------

__global__ void gelu_kernel(const float* v, float* y, int count) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = mlp::gelu(v[i]);
}
template <class Element>
void by_graph(const Element* x, const Element* weight, const Element* bias, const Element* residual,
              Element* y, const mlp::Shape& shape, cudaStream_t stream) {
  const mlp::Graph graph([&](cudaStream_t recorded) {
    mlp::epilogue<Element>(x, weight, bias, residual, y, shape, recorded);
  });
  graph.replay(stream);
  lab::check(cudaDeviceSynchronize());
}
template <class Element, class Tile>
mlp::EpilogueTile<Element> tile_of(const char* name, bool (*has_code)()) {
  return {name, Tile::kRows, mlp::kEpilogueBytes<Element, Tile>,
          mlp::launch_epilogue<Element, Tile>, has_code};
}

}  // namespace

namespace mlp {

std::vector<lab::MlpStep> steps() {
  std::vector<MlpStep> all = steps_on<half>();
  all.insert(all.begin() + 3, {variant<tile::Padded, true>("copies first"),
                               variant<tile::Plain, false>("no padding")});
  for (MlpStep& step : steps_on<float>()) all.push_back(std::move(step));
  return all;
}

template <class Element>
const std::vector<LayerStep<Element>>& layer_steps() {
  static const std::vector<LayerStep<Element>> all = {
      {"wmma", wmma, wmma_product},
      {"registers", registers, registers_product},
      {"pipeline", pipeline, pipeline_product<tile::Padded>},
      {"swizzle", swizzle, swizzle_product},
      {"epilogue", epilogue},
      {"graph", by_graph<Element>}};
  return all;
}
template <class Element>
const std::vector<EpilogueTile<Element>>& epilogue_tiles() {
  const auto always = [] { return true; };
  static const std::vector<EpilogueTile<Element>> all = {
      tile_of<Element, WideTile>("wide", has_wide_tile<Element>),
      tile_of<Element, LargeTile>("large", always), tile_of<Element, SmallTile>("small", always)};
  return all;
}
template const std::vector<LayerStep<half>>& layer_steps();
template const std::vector<LayerStep<float>>& layer_steps();
template const std::vector<EpilogueTile<half>>& epilogue_tiles();
template const std::vector<EpilogueTile<float>>& epilogue_tiles();
template std::string lacking<half>();
template std::string lacking<float>();

std::string chosen_tile(const Shape& shape, int sms, int shared_bytes, bool with_wide) {
  const TileName name = choose_tile<half>(shape, sms, shared_bytes, with_wide);
  return name == TileName::kWide ? "wide" : name == TileName::kLarge ? "large" : "small";
}

void gelu_of(const float* v, float* y, int count) {
  gelu_kernel<<<unsigned(count / 128 + 1), 128>>>(v, y, count);
}

}  // namespace mlp
