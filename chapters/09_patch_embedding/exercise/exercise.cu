// Grades exercise 9, photos to patches.
#include "../../../common/grader/grader.h"
#include "../../../common/lab/random.h"
#include "../shape.h"

namespace {

using namespace lab::grader;
using patch_embedding::Shape;

struct Tensors {
  Shape shape;
  std::vector<unsigned char> photos;  // [batch, height, width, 3]
  std::vector<float> colors;          // means, deviations
};

// Every byte is some pixel's; colours have means and deviations far from each other.
Tensors random_problem(int batch, int height, int width, uint64_t seed) {
  Tensors t{{batch, height, width, 1}, {}, {0.485f, 0.25f, 0.75f, 0.229f, 0.5f, 1.75f}};
  const int64_t bytes = int64_t(batch) * height * width * 3;
  for (int64_t i = 0; i < bytes; ++i)
    t.photos.push_back(static_cast<unsigned char>(lab::random_bits(seed, i) & 255));
  return t;
}

std::vector<double> expected_of(const Tensors& t) {
  const Shape& s = t.shape;
  std::vector<double> patches;
  for (int image = 0; image < s.batch; ++image)
    for (int p = 0; p < s.patches(); ++p)
      for (int color = 0; color < 3; ++color)
        for (int row = 0; row < 16; ++row)
          for (int column = 0; column < 16; ++column) {
            const int y = p / s.patch_columns() * 16 + row, x = p % s.patch_columns() * 16 + column;
            const double byte =
                t.photos[((int64_t(image) * s.height + y) * s.width + x) * 3 + color];
            patches.push_back((byte / 255 - double(t.colors[color])) / double(t.colors[3 + color]));
          }
  return patches;
}

Case photos(int batch, int height, int width, uint64_t seed) {
  const Tensors t = random_problem(batch, height, width, seed);
  Case result;
  result.name = "[batch " + std::to_string(batch) + ", " + std::to_string(height) + " x " +
                std::to_string(width) + " pixels]";
  result.dims = {batch, t.shape.patches(), 3, 16, 16};
  result.axes = {"image", "patch", "colour", "row", "column"};
  result.sizes = {{"batch", batch}, {"height", height}, {"width", width}};
  result.arguments = {input("photos", t.photos), input("colors", t.colors), output("patches"),
                      value(t.shape)};
  // Rounded to fp16 by up to 2^-11 of itself; the difference in fp32 before is off by 2^-24, divided by a
  // deviation of at least 0.2. Twice all of it is allowed.
  result.tolerance = {.atol = 0x1p-20, .rtol = 0x1p-10, .relative_l2 = 5e-4};
  result.expected = expected_of(t);
  result.hint = batch > 1 ? "several images: where does the second one begin, among the photos and "
                            "among the patches?"
                : width == 16 ? "patches below each other: a row of patches has one here"
                : height == 16
                    ? "patches beside each other: two rows of a patch are width · 3 bytes "
                      "apart"
                    : "patches are numbered row by row, and each has first all of red, then "
                      "green, then blue";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {photos(1, 16, 16, 1), photos(1, 48, 16, 2),  photos(1, 16, 80, 3),
                           photos(1, 32, 48, 4), photos(3, 16, 32, 5),  photos(2, 64, 48, 6),
                           photos(5, 80, 16, 7), photos(1, 112, 96, 8), photos(2, 224, 224, 9)};
  return all;
}

constexpr double kPixels = 128 * 128, kBytes = kPixels * 3;
Case measured() { return photos(1, 128, 128, 10); }

const std::vector<Aim> kAims = {
    {"kernels that are launched: one", 5, Aim::exactly, 1,
     [](const Counters& c) { return c.launches(); }, "all photos and colours fit into one grid"},
    {"bytes of all stores: the patches, once", 10, Aim::exactly, 2 * kBytes,
     [](const Counters& c) { return c.stored(); }, "nothing is stored in between", Aim::bytes},
    {"bytes of photos that are loaded: once", 10, Aim::at_most, kBytes,
     [](const Counters& c) { return c.bytes("photos", "load"); },
     "a thread that has a pixel has all three of its colours", Aim::bytes, kBytes},
    {"requests for photos", 10, Aim::at_most, kBytes / 256,
     [](const Counters& c) { return c.requests("photos", "load"); },
     "a lane can load 8 bytes at once, as uint2: 8 pixels are three such loads", Aim::number,
     kBytes / 512},
    {"sectors of patches written over those needed", 15, Aim::at_most, 1,
     [](const Counters& c) { return c.moved_over_needed("patches", "store", 2 * 2 * kBytes); },
     "do the lanes of a warp store side by side, 16 bytes each?", Aim::number, 1},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 9, from an empty function: photos to patches",
        .folder = "chapters/09_patch_embedding",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const unsigned char*, const float*, half*, const patch_embedding::Shape&, "
                      "cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "photos_to_patches",
        .unwritten_hint =
            "has each patch of each image somebody who stores it, all three colours?"}});
}
