#include "data.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "../../../common/lab/files.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"

namespace training {
namespace {

using lab::format;
using lab::UsageError;

constexpr int kPixels = kSide * kSide;
constexpr int kExcerptTraining = 400;
// Mean and deviation of the 60,000 training images, in shares of 255.
constexpr double kMean = 0.286, kDeviation = 0.353;
// Streams of random numbers beside those of the parameters, which are 0, 1, ...
constexpr uint64_t kStreams = 4096, kOrderStream = 2000, kAugmentStream = 3000;

struct Idx {
  std::vector<int64_t> sizes;
  std::string content;
  size_t data = 0;  // first byte behind the header
};

// The header's dimensions must be `rank`, and the file as long as they say.
Idx read_one(const std::string& path, int rank) {
  Idx idx;
  idx.content = lab::read_file(path);
  const auto fail = [&](const std::string& reason) { throw UsageError(path + ": " + reason); };
  const auto byte = [&](size_t at) { return int(uint8_t(idx.content[at])); };
  if (idx.content.size() >= 2 && byte(0) == 0x1f && byte(1) == 0x8b)
    fail("is compressed by gzip: unpack it first (gunzip --keep FILE)");
  idx.data = 4 + 4 * size_t(rank);
  if (idx.content.size() < idx.data)
    fail(format("is truncated: %zu bytes, the header alone has %zu", idx.content.size(), idx.data));
  if (byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) != rank)
    fail(format(
        "begins with the bytes %02x %02x %02x %02x, an IDX file of bytes in %d dimensions with "
        "00 00 08 %02x",
        byte(0), byte(1), byte(2), byte(3), rank, rank));
  double expected = double(idx.data), elements = 1;
  for (int i = 0; i < rank; ++i) {
    const size_t at = 4 + 4 * size_t(i);
    idx.sizes.push_back(int64_t(byte(at)) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 |
                        byte(at + 3));
    elements *= double(idx.sizes.back());
  }
  expected += elements;
  if (rank == 3 && (idx.sizes[1] != kSide || idx.sizes[2] != kSide))
    fail(format("has images of %lld x %lld pixels, must be %d x %d",
                static_cast<long long>(idx.sizes[1]), static_cast<long long>(idx.sizes[2]), kSide,
                kSide));
  if (double(idx.content.size()) != expected)
    fail(format("is %s: %zu bytes, its header says %.0f",
                double(idx.content.size()) < expected ? "truncated" : "too long",
                idx.content.size(), expected));
  if (idx.sizes[0] < 1) fail("has no images: must have at least 1");
  return idx;
}

// `count` images from number `first` on.
Dataset slice_of_data(const Dataset& data, int first, int count) {
  const auto image = data.images.begin() + int64_t(first) * kPixels;
  return {count,
          {image, image + int64_t(count) * kPixels},
          {data.labels.begin() + first, data.labels.begin() + first + count}};
}

}  // namespace

const char* class_name(int label) {
  static const char* const names[kClasses] = {"T-shirt", "trousers",  "pullover", "dress",
                                              "coat",    "sandal",    "shirt",    "sneaker",
                                              "bag",     "ankle boot"};
  return names[label];
}

Dataset read_idx(const std::string& images_path, const std::string& labels_path) {
  const Idx images = read_one(images_path, 3), labels = read_one(labels_path, 1);
  if (images.sizes[0] != labels.sizes[0])
    throw UsageError(format("%s has %lld labels, must have %lld as %s has images",
                            labels_path.c_str(), static_cast<long long>(labels.sizes[0]),
                            static_cast<long long>(images.sizes[0]), images_path.c_str()));
  Dataset data;
  data.count = int(images.sizes[0]);
  data.images.assign(images.content.begin() + int64_t(images.data), images.content.end());
  for (int i = 0; i < data.count; ++i) {
    data.labels.push_back(uint8_t(labels.content[labels.data + size_t(i)]));
    if (data.labels.back() >= kClasses)
      throw UsageError(format("%s: label %d of image %d, must be from 0 to %d", labels_path.c_str(),
                              data.labels.back(), i, kClasses - 1));
  }
  return data;
}

Split read_excerpt() {
  const std::string folder = lab::repository_path("data/fashion_mnist/");
  const Dataset all =
      read_idx(folder + "t10k-500-images-idx3-ubyte", folder + "t10k-500-labels-idx1-ubyte");
  if (all.count <= kExcerptTraining)
    throw UsageError(
        format("%s: %d images, must be more than %d", folder.c_str(), all.count, kExcerptTraining));
  return {slice_of_data(all, 0, kExcerptTraining),
          slice_of_data(all, kExcerptTraining, all.count - kExcerptTraining)};
}

Split read_folder(const std::string& folder, int held_out) {
  const std::string path = folder + "/";
  Split split;
  split.training = read_idx(path + "train-images-idx3-ubyte", path + "train-labels-idx1-ubyte");
  const Dataset test = read_idx(path + "t10k-images-idx3-ubyte", path + "t10k-labels-idx1-ubyte");
  split.held_out = slice_of_data(test, 0, std::min(held_out, test.count));
  return split;
}

// FNV-1a of 64 bits.
uint64_t checksum(const Dataset& data) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const uint8_t pixel : data.images) add(pixel);
  for (const int label : data.labels) add(uint8_t(label));
  return hash;
}

std::vector<int> batch_of_step(const Dataset& data, int batch, int64_t step, uint64_t seed) {
  if (batch < 1 || batch > data.count)
    throw std::invalid_argument(format(
        "a batch of %d images, must be from 1 to %d, the training images", batch, data.count));
  const int64_t steps = data.count / batch, epoch = step / steps;
  std::vector<int> order(data.count);
  std::iota(order.begin(), order.end(), 0);
  // Fisher and Yates; the remainder prefers no image by more than 2^-32.
  for (int i = data.count - 1; i > 0; --i)
    std::swap(order[i],
              order[lab::random_bits(seed * kStreams + kOrderStream,
                                     uint64_t(epoch) * uint64_t(data.count) + uint64_t(i)) %
                    uint64_t(i + 1)]);
  const auto first = order.begin() + step % steps * batch;
  return {first, first + batch};
}

float normalized(double pixel) { return float((pixel / 255 - kMean) / kDeviation); }

std::vector<float> pixels(const Dataset& data, const std::vector<int>& numbers) {
  std::vector<float> result;
  result.reserve(numbers.size() * kPixels);
  for (const int number : numbers)
    for (int i = 0; i < kPixels; ++i)
      result.push_back(normalized(data.images[size_t(number) * kPixels + size_t(i)]));
  return result;
}

std::vector<float> augmented(const Dataset& data, const std::vector<int>& numbers,
                             const Augmentation& how, int64_t step, uint64_t seed) {
  std::vector<float> result;
  result.reserve(numbers.size() * kPixels);
  constexpr double kCentre = (kSide - 1) / 2.0;
  for (size_t j = 0; j < numbers.size(); ++j) {
    const uint8_t* image = data.images.data() + size_t(numbers[j]) * kPixels;
    const auto draw = [&](uint64_t which) {  // [-1, 1)
      return 2 * lab::uniform(seed * kStreams + kAugmentStream,
                              (uint64_t(step) * numbers.size() + j) * 8 + which) -
             1;
    };
    const double angle = how.turn * std::numbers::pi / 180 * draw(0),
                 size = 1 + how.scale * draw(1);
    const double cosine = std::cos(angle) * size, sine = std::sin(angle) * size;
    const double across = how.shift * draw(2), down = how.shift * draw(3);
    const double mirror = how.mirror && draw(4) < 0 ? -1 : 1;
    const auto pixel = [&](int y, int x) {  // black outside
      return y < 0 || y >= kSide || x < 0 || x >= kSide ? 0.0 : double(image[y * kSide + x]);
    };
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        const double u = mirror * (x - kCentre), v = y - kCentre;
        const double from_x = cosine * u - sine * v + across + kCentre;
        const double from_y = sine * u + cosine * v + down + kCentre;
        const int left = int(std::floor(from_x)), top = int(std::floor(from_y));
        const double a = from_x - left, b = from_y - top;
        result.push_back(
            normalized((1 - b) * ((1 - a) * pixel(top, left) + a * pixel(top, left + 1)) +
                       b * ((1 - a) * pixel(top + 1, left) + a * pixel(top + 1, left + 1))));
      }
  }
  return result;
}

}  // namespace training
