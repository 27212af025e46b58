// Problems of multi-scale deformable attention, their arrays on the device, and a step's type.
#pragma once

#include "../../../common/lab.cuh"
#include "../../../common/lab/images.h"
#include "../shape.h"

namespace lab {

// ---- Problems -----------------------------------------------------------------------------------

struct DeformableProblem {
  DeformableShape shape;
  std::vector<half> value, locations, weights;  // as DeformableShape says
  std::string source;                           // "random, seed 1, local", for people
  Image photo;                                  // whose pyramid it is; empty otherwise
};

// Where a random problem samples.
//   local    the queries are a raster over the picture; around its place each has samples with
//            normal offsets of 2 pixels of each level in x and in y
//   uniform  anywhere, each sample for itself
enum class Distribution { kLocal, kUniform };
const char* distribution_name(Distribution distribution);
// What --json says of the shape.
std::vector<std::pair<std::string, int64_t>> problem_sizes(const DeformableShape& shape);

// The levels of the course's problem: 92x160, 46x80, 23x40 and 12x20 pixels.
DeformableShape course_deformable_shape(int batch, int queries);

// Seeded, normal values with mean zero; weights are a softmax of normal numbers. A mean over the
// values, a wrong pixel, level, head or image is far off.
DeformableProblem random_deformable(const DeformableShape& shape, Distribution distribution,
                                    uint64_t seed);

// A photo seen by 32 oriented filters (16 directions; edges and lines) in four levels, size x size
// pixels and three times half of it; size is a multiple of 8. One query for each pixel, its 8
// samples a level stand on a ring of 1.5 pixels around it. So an output says which directions there
// are around a pixel, fine and coarse.
DeformableProblem photo_deformable(const Image& photo, int size);

// The photo and beside it what came out of photo_deformable(): colour is direction, brightness how
// much, saturation how clearly. out: [pixels of level 0, 32].
Image draw_directions(const Image& photo, int size, const std::vector<half>& out);

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
struct DeformableArrays {
  DeviceArray<half> value, locations, weights, out;
};
// With `watched` the host sees out while a kernel fills it (managed memory).
std::vector<DeformableArrays> upload(const DeformableProblem& problem, int copies,
                                     bool watched = false);
// Least traffic, each of the four arrays once, and a multiply-add for each channel of each of a
// sample's four pixels.
Cost deformable_cost(const DeformableShape& shape);

// ---- Steps --------------------------------------------------------------------------------------

// The type of every step.
using DeformableFunction = void (*)(const half* value, const half* locations, const half* weights,
                                    half* out, const DeformableShape& shape, cudaStream_t stream);

struct DeformableStep {
  std::string name;
  DeformableFunction function;
  std::string (*lacks)() = nullptr;  // why this device or build cannot run it; "" when it can
  std::string before = "";           // the step to compare with; empty: the one in front of it
  bool variant = false;              // tried and not kept: run only where --step asks for it
};

}  // namespace lab
