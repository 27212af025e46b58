// Tests of chapter 10's way back: gradients against PyTorch, the formula and central differences; same
// bits where they are promised; planted bugs; counters by formula.
#include <doctest/doctest.h>

#include <cmath>

#include "../../../common/lab/device.h"
#include "../../../common/testing/checks.h"
#include "../kernels.h"
#include "test_support.h"

namespace steps = layer_norm;
using namespace lab::testing;
using lab::Storage;

namespace {

// dscale and dbias by two stages, with partial sums of its own.
template <class T>
void two_stages(const T* dy, const T* x, const LayerNormMoments* moments, float* dscale,
                float* dbias, const LayerNormShape& shape, cudaStream_t stream) {
  const lab::LayerNormKernels<T> kernels = steps::kernels<T>();
  lab::DeviceArray<float> partials(size_t(kernels.partial_count(shape)), "partials");
  partials.fill_nan();
  kernels.slab_sums(dy, x, moments, partials.data(), shape, stream);
  kernels.column_sums(partials.data(), dscale, dbias, shape, stream);
  lab::check(cudaStreamSynchronize(stream));
}

template <class T>
void check_backward(const LayerNormCase& problem, const Shift& shift = {}) {
  CAPTURE(problem.name);
  CAPTURE(shift.elements);
  CAPTURE(shift.only);
  const lab::LayerNormKernels<T> kernels = steps::kernels<T>();
  for (const bool atomics : {false, true}) {
    CAPTURE(atomics);
    const auto outcome =
        run_backward<T>(kernels.backward_dx,
                        atomics ? ColumnStep<T>(kernels.atomics) : two_stages<T>, problem, shift);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

}  // namespace

TEST_CASE("backward: right on every kind of shape, both storages") {
  if (skipped("backward")) return;
  for (const LayerNormShape& shape : layer_norm_shapes()) {
    check_backward<half>(layer_norm_case(shape, Storage::kFp16));
    check_backward<float>(layer_norm_case(shape, Storage::kFp32));
  }
}

TEST_CASE("backward: arrays from PyTorch") {
  if (skipped("backward: PyTorch")) return;
  for (const LayerNormCase& problem : layer_norm_golden_cases())
    problem.problem.storage == Storage::kFp16 ? check_backward<half>(problem)
                                              : check_backward<float>(problem);
}

TEST_CASE("backward: large means, and arrays off 16 bytes") {
  if (skipped("backward: large means")) return;
  check_backward<half>(layer_norm_case({19, 768, 1e-6f}, Storage::kFp16, 3, 1000));
  check_backward<float>(layer_norm_case({19, 768, 1e-6f}, Storage::kFp32, 3, -3000));
  for (int only = -1; only < 4; ++only)  // all arrays, or one of four
    check_backward<half>(layer_norm_case({70, 256, 1e-6f}, Storage::kFp16), {1, only});
}

TEST_CASE("backward: replayed from a graph") {
  if (skipped("backward: graph")) return;
  const LayerNormCase problem = layer_norm_case({150, 192, 1e-6f}, Storage::kFp16, 4);
  const lab::LayerNormKernels<half> kernels = steps::kernels<half>();
  lab::DeviceArray<float> partials(size_t(kernels.partial_count(problem.problem.shape)),
                                   "partials");
  partials.fill_nan();
  const ColumnStep<half> stages = [&](const half* dy, const half* x,
                                      const LayerNormMoments* moments, float* dscale, float* dbias,
                                      const LayerNormShape& shape, cudaStream_t stream) {
    kernels.slab_sums(dy, x, moments, partials.data(), shape, stream);
    kernels.column_sums(partials.data(), dscale, dbias, shape, stream);
  };
  for (const ColumnStep<half>& columns : {stages, ColumnStep<half>(kernels.atomics)}) {
    const auto outcome = run_backward<half>(in_a_graph(kernels.backward_dx),
                                            ColumnStep<half>(in_a_graph(columns)), problem);
    CHECK_MESSAGE(outcome.caught_by == "", outcome.details);
  }
}

TEST_CASE("backward: two stages give the same bits in every order, atomics need not") {
  if (skipped("backward: bits")) return;
  const LayerNormCase problem = layer_norm_case({517, 192, 1e-6f}, Storage::kFp16, 2);
  const lab::LayerNormKernels<half> kernels = steps::kernels<half>();
  // (More slabs of rows than a block of the second stage has warps.)
  REQUIRE(kernels.partial_count(problem.problem.shape) > 8 * 2 * 192);
  const auto run = [&](const ColumnStep<half>& columns) {
    const auto outcome = run_backward<half>(kernels.backward_dx, columns, problem);
    CHECK_MESSAGE(outcome.caught_by == "", outcome.details);
    return outcome.columns;
  };
  const std::vector<float> first = run(two_stages<half>), added = run(kernels.atomics);
  int differ = 0;
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> again = run(two_stages<half>);
    CHECK(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)) == 0);
    const std::vector<float> now = run(kernels.atomics);
    for (size_t k = 0; k < now.size(); ++k) {
      differ += now[k] != added[k];
      CHECK(now[k] == doctest::Approx(added[k]).epsilon(1e-4).scale(30));
    }
  }
  MESSAGE(differ << " of " << 3 * first.size() << " sums by atomics came out otherwise");
}

TEST_CASE("backward counters: bytes, requests, atomics and partial sums") {
  if (skipped_without_counters("backward counters")) return;
  const LayerNormShape shape{197, 768, 1e-6f};
  const double rows = shape.rows, columns = shape.columns, bytes = 2 * double(shape.elements()),
               slabs = std::ceil(rows / 64);
  const lab::LayerNormKernels<half> kernels = steps::kernels<half>();
  const std::vector<half> ones(size_t(shape.elements()), half(1.0f));
  const lab::DeviceArray<half> x(ones, "x"), dy(ones, "dy"),
      scale(std::vector<half>(size_t(shape.columns), half(1.0f)), "scale");
  lab::DeviceArray<half> dx(ones.size(), "dx");
  lab::DeviceArray<LayerNormMoments> moments(size_t(shape.rows), "moments");
  lab::DeviceArray<float> partials(size_t(kernels.partial_count(shape)), "partials"),
      dscale(size_t(shape.columns), "dscale"), dbias(size_t(shape.columns), "dbias");

  kernels.backward_dx(dy.data(), x.data(), scale.data(), dx.data(), moments.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  for (const char* array : {"x", "dy"}) {
    CHECK(counted(array, "load/bytes_asked") == bytes);
    CHECK(counted(array, "load/requests") == rows * 3);
  }
  CHECK(counted("dx", "store/bytes_asked") == bytes);
  CHECK(counted("moments", "store/bytes_asked") == rows * 8);
  CHECK(lab::vgpu::counter("/local/store/requests") == 0);

  kernels.slab_sums(dy.data(), x.data(), moments.data(), partials.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  for (const char* array : {"x", "dy"}) {
    CHECK(counted(array, "load/bytes_asked") == bytes);
    CHECK(counted(array, "load/requests") == rows * 3);
  }
  CHECK(counted("partials", "store/bytes_asked") == slabs * 2 * columns * 4);
  CHECK(counted("partials", "store/sectors") == slabs * 2 * columns * 4 / 32);
  CHECK(shared_conflicts() == 0);
  kernels.column_sums(partials.data(), dscale.data(), dbias.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(counted("partials", "load/bytes_asked") == slabs * 2 * columns * 4);
  CHECK(counted("dscale", "store/bytes_asked") == columns * 4);
  CHECK(counted("dbias", "store/bytes_asked") == columns * 4);

  kernels.atomics(dy.data(), x.data(), moments.data(), dscale.data(), dbias.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  // A lane an addition: for each slab each sum once.
  CHECK(counted("dscale", "atomic/bytes_asked") == slabs * columns * 4);
  CHECK(counted("dbias", "atomic/bytes_asked") == slabs * columns * 4);
  CHECK(counted("dbias", "atomic/sectors") == slabs * columns * 4 / 32);
}

TEST_CASE("planted bugs on the way back: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs on the way back*")) return;
  const std::vector<Mutant> bugs = planted_bugs("10_layer_norm", "backward");
  const Mutants mutants(
      "chapters/10_layer_norm/7_backward.cuh", "layer_norm", bugs,
      "template __global__ void dx_kernel<float, 4, 2>(const float*, const float*, const float*, "
      "float*, Moments*, const Shape);\n"
      "template __global__ void slab_kernel<float, 4, Sums::kStored>(const float*, const float*, "
      "const Moments*, float*, float*, const Shape);\n"
      "template __global__ void slab_kernel<float, 4, Sums::kAdded>(const float*, const float*, "
      "const Moments*, float*, float*, const Shape);\n",
      Mutants::kKernelsOnly);
  // The instance of an enumerator: L, the type's name, its number.
  const auto slab_of = [&](size_t number, int sums) {
    return mutants.kernel(number, "slab_kernel", {},
                          "fLi4ELNS_4SumsE" + std::to_string(sums) + "E");
  };
  const LayerNormCase problem = layer_norm_case({517, 200, 1e-6f}, Storage::kFp32);
  // Trial 0 takes the two stages, trial 1 atomics.
  check_each_bug(bugs, 2, [&](size_t number, size_t trial) {
    const bool atomics = trial == 1;
    const DxStep<float> dx = [&](const float* dy, const float* x, const float* scale, float* out,
                                 LayerNormMoments* moments, const LayerNormShape& shape,
                                 cudaStream_t stream) {
      const steps::Grid grid = steps::grid_of("dx", shape);
      launch(mutants.kernel(number, "dx_kernel", {4, 2}, "f"), grid.blocks, grid.threads, 0, stream,
             dy, x, scale, out, moments, shape);
    };
    const ColumnStep<float> columns =
        [&](const float* dy, const float* x, const LayerNormMoments* moments, float* dscale,
            float* dbias, const LayerNormShape& shape, cudaStream_t stream) {
          const steps::Grid slabs = steps::grid_of("slab", shape),
                            finish = steps::grid_of("finish", shape);
          if (atomics) {
            lab::check(cudaMemset(dscale, 0, size_t(shape.columns) * sizeof(float)));
            lab::check(cudaMemset(dbias, 0, size_t(shape.columns) * sizeof(float)));
            launch(slab_of(number, 1), slabs.blocks, slabs.threads, 0, stream, dy, x, moments,
                   dscale, dbias, shape);
            lab::check(cudaDeviceSynchronize());
            return;
          }
          lab::DeviceArray<float> partials(size_t(steps::kernels<float>().partial_count(shape)),
                                           "partials");
          launch(slab_of(number, 0), slabs.blocks, slabs.threads, 0, stream, dy, x, moments,
                 partials.data(), partials.data() + shape.columns, shape);
          launch(mutants.kernel(number, "finish_kernel"), finish.blocks, finish.threads, 0, stream,
                 static_cast<const float*>(partials.data()), dscale, dbias, int(slabs.blocks.x),
                 shape.columns);
          lab::check(cudaDeviceSynchronize());
        };
    return named(atomics ? "atomics" : "two stages", run_backward<float>(dx, columns, problem));
  });
}

TEST_CASE("checked backward: without a finding") {
  if (rerun_with_checks("checked backward*")) return;
  const int findings = lab::vgpu::findings();
  for (const int columns : {64, 100, 768})
    check_backward<half>(layer_norm_case({70, columns, 1e-6f}, Storage::kFp16));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("backward on a T4") { check_twin_on_t4("backward: arrays from*,backward: large*"); }
