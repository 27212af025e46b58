// Problems of the convolutional projection, what is expected of them, and how near.
#pragma once

#include <array>

#include "../../../common/lab.cuh"
#include "../operations/operations.h"
#include "operation.h"
#include "reference.h"

namespace lab {

enum class Storage { kFp16, kFp32 };  // x, the maps and their gradients; weights are fp32

struct ProjectionProblem {
  cvt::ProjectionShape shape;
  Storage storage = Storage::kFp32;
  cvt::reference::ProjectionInputs in;    // each number one that its array holds
  std::array<std::vector<double>, 3> dy;  // what arrives on the way back, as the maps
  std::array<std::vector<double>, 3> running_mean, running_variance;  // [channels], before the step
  cvt::reference::ProjectionSizes sizes() const {
    return {shape.batch, shape.height, shape.width, shape.channels, shape.class_tokens};
  }
};

// Seeded and normal; each channel has a mean and a deviation of its own. Where `mean` is not 0 it
// is added to x, and of the weights all but the middle ones are so small that it does not show at
// borders: then the maps' means are that large beside their deviations.
ProjectionProblem random_projection(const cvt::ProjectionShape& shape, Storage storage,
                                    uint64_t seed, double mean = 0);

// With u = 2^-24, and 2^-11 for what fp16 stores: a map is a sum of 9 products. A sum over N
// positions rounds as often as a number meets others on its way, kMeetings at most. A normalized
// number n is off by what its map is, over the deviation.
struct ExpectedProjection {
  cvt::reference::ProjectionOutputs out;
  cvt::reference::ProjectionDerivatives back;
  std::array<std::vector<double>, 3> inverse_deviation, running_mean, running_variance;
  struct OfMap {
    Tolerance map, mean, inverse_deviation, factor, offset, running_mean, running_variance;
    Tolerance dw, dscale, dshift;
  };
  std::array<OfMap, 3> near;
  Tolerance dx;
};
// What a step computes on with as it is stored, which is off by that much more: moments of the
// stored map; on the way back dmap, and dx as it stands after q's share and after k's.
struct OfStored {
  bool maps = false, gradients = false;
};
ExpectedProjection expected_projection(const ProjectionProblem& problem, OfStored of_stored = {});

// What forward and backward steps wrote.
struct ProjectionResults {
  std::array<std::vector<double>, 3> maps, mean, inverse_deviation, factor, offset, running_mean,
      running_variance;
  std::vector<double> dx;
  std::array<std::vector<double>, 3> dw, dscale, dshift;
};
// The first comparison that fails, else the one of q's map; its name in front.
NamedComparison compare_forward(const ProjectionResults& got, const ExpectedProjection& expected,
                                const cvt::ProjectionShape& shape);
// The same for gradients: the first that fails, else the one of dx.
NamedComparison compare_backward(const ProjectionResults& got, const ExpectedProjection& expected,
                                 const cvt::ProjectionShape& shape);

// ---- Bytes --------------------------------------------------------------------------------------

// What must move, with s bytes a number and tokens as they are counted in sequences, Tq of q and Tk
// of k and of v:
//   forward:  x in, three maps out                               s batch channels (2 Tq + 2 Tk)
//   backward: dy and maps twice, because dmap needs sums of all
//             of them first; x in, dx out                       s batch channels (6 Tq + 8 Tk)
// BatchNorm's statistics force that second reading; in the forward pass they would force one more
// reading and writing of the maps (2 Tq + 4 Tk) if the linear layer did not take factor and offset.
double forward_bytes(const cvt::ProjectionShape& shape, Storage storage);
double backward_bytes(const cvt::ProjectionShape& shape, Storage storage);
// Operations: 9 multiply-adds an output forward; backward as many for dx and for dw.
Cost forward_cost(const cvt::ProjectionShape& shape, Storage storage);
Cost backward_cost(const cvt::ProjectionShape& shape, Storage storage);

}  // namespace lab
