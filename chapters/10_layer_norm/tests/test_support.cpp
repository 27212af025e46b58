#include "test_support.h"

#include "../../../common/json/json.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"

namespace lab::testing {

LayerNormCase layer_norm_case(const LayerNormShape& shape, Storage storage, uint64_t seed,
                              double mean) {
  LayerNormCase result;
  result.problem = random_layer_norm(shape, storage, seed, mean);
  result.expected = expected_layer_norm(result.problem);
  result.name = describe(shape) + (storage == Storage::kFp16 ? ", fp16" : ", fp32") +
                format(", mean %g", mean);
  return result;
}

std::vector<LayerNormCase> layer_norm_golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const json::Value manifest = json::parse(read_file(folder + "layer_norm.json"));
  std::vector<LayerNormCase> cases;
  for (const json::Value& entry : manifest.at("cases")) {
    LayerNormCase result;
    result.name = entry.at("name").get<std::string>() + " (PyTorch)";
    LayerNormProblem& p = result.problem;
    p.shape = {entry.at("rows").get<int>(), entry.at("columns").get<int>(), 1e-6f};
    p.storage = entry.at("storage").get<std::string>() == "fp16" ? Storage::kFp16 : Storage::kFp32;
    p.source = result.name;
    const int64_t elements = p.shape.elements(), columns = p.shape.columns;
    // The arrays of a file, one after the other.
    const auto read = [&](const char* which, const std::vector<std::vector<double>*>& arrays,
                          size_t whole) {
      const Array file = read_npy(folder + entry.at(which).at("file").get<std::string>());
      size_t at = 0;
      for (size_t i = 0; i < arrays.size(); ++i) {
        const size_t count = size_t(i < whole ? elements : columns);
        if (at + count > file.values.size())
          throw UsageError(folder + ": " + result.name + ": " + which + " and manifest differ");
        arrays[i]->assign(file.values.begin() + ptrdiff_t(at),
                          file.values.begin() + ptrdiff_t(at + count));
        at += count;
      }
      if (at != file.values.size())
        throw UsageError(folder + ": " + result.name + ": " + which + " and manifest differ");
    };
    read("inputs", {&p.x, &p.residual, &p.dy, &p.scale, &p.bias}, 3);
    LayerNormExpected& e = result.expected = expected_layer_norm(p);
    read("outputs", {&e.y, &e.y_of_sum, &e.dx, &e.dscale, &e.dbias}, 3);
    cases.push_back(std::move(result));
  }
  return cases;
}

std::vector<LayerNormShape> layer_norm_shapes() {
  std::vector<LayerNormShape> shapes;
  for (const int columns :
       {64, 65, 100, 128, 256, 264, 512, 768, 1000, 1024, 1500, 2048, 3072, 4095, 4096})
    shapes.push_back({columns < 1000 ? 35 : 5, columns, 1e-6f});
  for (const int rows : {1, 2, 7, 8, 9, 15, 16, 17, 64, 65, 197})
    shapes.push_back({rows, 192, 1e-5f});
  return shapes;
}

}  // namespace lab::testing
