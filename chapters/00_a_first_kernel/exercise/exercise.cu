// Grades exercise 0, a histogram.
#include <algorithm>

#include "../../../common/grader/grader.h"
#include "../host/problem.h"

namespace {

using namespace lab::grader;

std::vector<double> counts_of(const std::vector<unsigned char>& grey, size_t pixels) {
  std::vector<double> counts(256);
  for (size_t i = 0; i < pixels; ++i) ++counts[grey[i]];
  return counts;
}

Case of_grey(const std::string& name, const PhotoShape& shape,
             const std::vector<unsigned char>& grey) {
  Case result;
  result.name = name;
  result.dims = {256};
  result.axes = {"brightness"};
  result.sizes = {{"pixels", shape.pixels()}};
  result.arguments = {input("grey", grey), float_output("counts"), value(shape)};
  result.tolerance = {};  // whole numbers
  result.expected = counts_of(grey, grey.size());
  result.hint_not_finite =
      "counts is full of NaN when the function is called, and NaN + 1 is NaN: what sets it to 0 "
      "before the first addition?";
  result.hint =
      shape.pixels() < 256
          ? "fewer pixels than a block has threads: do those without a pixel count one?"
      : shape.pixels() % 256 != 0
          ? "the pixels are no multiple of 256: does the last block count all that are "
            "left, and no more?"
          : "does each pixel add 1 to the count of its brightness, as an atomic operation, "
            "and is each count 0 before?";
  result.alternatives = [grey] {
    std::vector<Case::Alternative> likely;
    likely.push_back({counts_of(grey, grey.size() / 256 * 256),
                      "these are the counts of whole blocks of 256 pixels: pixels / 256 blocks are "
                      "one too few where it is rounded down"});
    return likely;
  };
  return result;
}

Case random_grey(const PhotoShape& shape, uint64_t seed) {
  return of_grey(describe(shape), shape,
                 lab::expected_results(lab::random_photo(shape, seed)).grey);
}
Case flat(const PhotoShape& shape, unsigned char grey) {
  return of_grey(describe(shape) + ", all of it " + std::to_string(grey), shape,
                 std::vector<unsigned char>(size_t(shape.pixels()), grey));
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      random_grey({1, 1}, 1),    random_grey({1, 7}, 2),    random_grey({31, 33}, 3),
      random_grey({16, 16}, 4),  random_grey({197, 45}, 5), random_grey({300, 1}, 6),
      random_grey({1, 2049}, 7), random_grey({64, 96}, 8),  flat({20, 30}, 0),
      flat({45, 61}, 255),       random_grey({90, 91}, 9),  random_grey({333, 150}, 10)};
  return all;
}

constexpr double kSide = 256, kPixels = kSide * kSide;
Case measured() { return random_grey({int(kSide), int(kSide)}, 11); }

// 256 counts of 4 bytes.
constexpr double kCounts = 256 * 4;
const std::vector<Aim> kAims = {
    {"bytes of grey that are loaded: once", 10, Aim::exactly, kPixels,
     [](const Counters& c) { return c.bytes("grey", "load"); },
     "a thread needs each of its pixels once, and no one else's", Aim::bytes},
    {"sectors of grey: those that hold it", 10, Aim::at_most, kPixels / 32,
     [](const Counters& c) { return c.sectors("grey", "load"); },
     "which bytes do the 32 lanes of a warp ask for at one time? Neighbours share a sector of 32 "
     "bytes",
     Aim::number, kPixels / 32},
    {"bytes added or stored to global memory: one a pixel at most", 20, Aim::at_most, kPixels,
     [](const Counters& c) { return c.stored(); },
     "a block can count its pixels in shared memory, and add 256 counts at its end; the more "
     "pixels a block has, the fewer additions",
     Aim::bytes, kCounts},
    {"blocks: enough for many SMs", 10, Aim::at_least, 16,
     [](const Counters& c) { return c.sum("/blocks"); },
     "one block runs on one SM, and the others have nothing to do"},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 0, from an empty function: a histogram",
        .folder = "chapters/00_a_first_kernel",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const unsigned char*, float*, const PhotoShape&, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "histogram",
        .unwritten_hint = "is each of the 256 counts set, also where no pixel is so bright? "
                          "cudaMemsetAsync sets them to 0 before the kernel"}});
}
