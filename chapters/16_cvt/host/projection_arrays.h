// A problem's arrays on the device, for the program and the tests.
#pragma once

#include <memory>

#include "../kernels/conv_projection.h"
#include "projection.h"

namespace lab {

template <class T>
std::vector<T> converted(const std::vector<double>& values) {
  std::vector<T> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = T(float(values[i]));
  return result;
}

// What steps write is NaN until they write it; running statistics are the problem's.
template <class T>
class ProjectionArrays {
 public:
  explicit ProjectionArrays(const ProjectionProblem& problem, bool running = true)
      : x(converted<T>(problem.in.x), "x"), dx(problem.in.x.size(), "dx") {
    dx.fill_nan();
    for (int i = 0; i < 3; ++i) {
      const std::string of = std::string("_") + "qkv"[i];
      const auto single = [&](auto& array, const std::vector<double>& values, const char* name) {
        array = std::make_unique<DeviceArray<float>>(converted<float>(values), name + of);
      };
      const auto empty = [&](auto& array, size_t count, const char* name) {
        using Array = typename std::remove_reference_t<decltype(array)>::element_type;
        array = std::make_unique<Array>(count, name + of);
        array->fill_nan();
      };
      const size_t channels = problem.in.scale[i].size();
      single(w[i], problem.in.w[i], "w");
      single(scale[i], problem.in.scale[i], "scale");
      single(shift[i], problem.in.shift[i], "shift");
      if (running) {
        single(running_mean[i], problem.running_mean[i], "running_mean");
        single(running_variance[i], problem.running_variance[i], "running_variance");
      }
      empty(map[i], problem.dy[i].size(), "map");
      dmap[i] = std::make_unique<DeviceArray<T>>(converted<T>(problem.dy[i]), "dmap" + of);
      empty(mean[i], channels, "mean");
      empty(inverse[i], channels, "inverse_deviation");
      empty(factor[i], channels, "factor");
      empty(offset[i], channels, "offset");
      empty(dw[i], channels * 9, "dw");
      empty(dscale[i], channels, "dscale");
      empty(dshift[i], channels, "dshift");
    }
  }

  // What a forward step writes, and what a backward one does, is NaN again.
  void clear_maps() {
    for (int i = 0; i < 3; ++i) {
      map[i]->fill_nan();
      for (auto* array : {&mean[i], &inverse[i], &factor[i], &offset[i]}) (*array)->fill_nan();
    }
  }
  void clear_gradients() {
    dx.fill_nan();
    for (int i = 0; i < 3; ++i)
      for (auto* array : {&dw[i], &dscale[i], &dshift[i]}) (*array)->fill_nan();
  }

  // Running statistics as they are before a step.
  void reset_running(const ProjectionProblem& problem) {
    for (int i = 0; i < 3 && running_mean[i]; ++i) {
      running_mean[i]->upload(converted<float>(problem.running_mean[i]));
      running_variance[i]->upload(converted<float>(problem.running_variance[i]));
    }
  }

  cvt::ProjectionWeights weights() const {
    cvt::ProjectionWeights p{};
    for (int i = 0; i < 3; ++i)
      p.w[i] = w[i]->data(), p.scale[i] = scale[i]->data(), p.shift[i] = shift[i]->data();
    return p;
  }
  cvt::BatchNormSaved saved() const {
    cvt::BatchNormSaved p{};
    for (int i = 0; i < 3; ++i) {
      p.mean[i] = mean[i]->data(), p.inverse_deviation[i] = inverse[i]->data();
      p.factor[i] = factor[i]->data(), p.offset[i] = offset[i]->data();
    }
    return p;
  }
  cvt::ProjectionGradients gradients() const {
    cvt::ProjectionGradients p{};
    for (int i = 0; i < 3; ++i)
      p.w[i] = dw[i]->data(), p.scale[i] = dscale[i]->data(), p.shift[i] = dshift[i]->data();
    return p;
  }

  conv_projection::ForwardArguments<T> forward() {
    conv_projection::ForwardArguments<T> a{x.data(), weights(), {}, saved(), {}, {}};
    for (int i = 0; i < 3; ++i) {
      a.maps[i] = map[i]->data();
      if (!running_mean[i]) continue;
      a.running_mean[i] = running_mean[i]->data();
      a.running_variance[i] = running_variance[i]->data();
    }
    return a;
  }
  conv_projection::BackwardArguments<T> backward() {
    conv_projection::BackwardArguments<T> a{x.data(), {},        {},         weights(),
                                            saved(),  dx.data(), gradients()};
    for (int i = 0; i < 3; ++i) a.maps[i] = map[i]->data(), a.dmaps[i] = dmap[i]->data();
    return a;
  }

  ProjectionResults download() const {
    ProjectionResults r;
    const auto doubles = [](const auto& array) {
      const auto values = array.download();
      std::vector<double> result(values.size());
      for (size_t i = 0; i < values.size(); ++i) result[i] = double(float(values[i]));
      return result;
    };
    r.dx = doubles(dx);
    for (int i = 0; i < 3; ++i) {
      r.maps[i] = doubles(*map[i]);
      r.mean[i] = doubles(*mean[i]);
      r.inverse_deviation[i] = doubles(*inverse[i]);
      r.factor[i] = doubles(*factor[i]);
      r.offset[i] = doubles(*offset[i]);
      r.dw[i] = doubles(*dw[i]);
      r.dscale[i] = doubles(*dscale[i]);
      r.dshift[i] = doubles(*dshift[i]);
      if (!running_mean[i]) continue;
      r.running_mean[i] = doubles(*running_mean[i]);
      r.running_variance[i] = doubles(*running_variance[i]);
    }
    return r;
  }

  DeviceArray<T> x, dx;
  std::unique_ptr<DeviceArray<T>> map[3], dmap[3];
  std::unique_ptr<DeviceArray<float>> w[3], scale[3], shift[3], running_mean[3],
      running_variance[3], mean[3], inverse[3], factor[3], offset[3], dw[3], dscale[3], dshift[3];
};

}  // namespace lab
