// Images and labels: IDX files, batches in a seeded order, seeded augmentation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace training {

constexpr int kSide = 28;     // pixels of an image
constexpr int kClasses = 10;  // classes of Fashion-MNIST
const char* class_name(int label);

struct Dataset {
  int count = 0;
  std::vector<uint8_t> images;  // [count, 28, 28]
  std::vector<int> labels;      // [count], 0 to 9
};

// A pair of IDX files (unsigned bytes, three dimensions and one). Throws lab::UsageError that names
// file, value and what would be right: no IDX file, another type or rank, another size than 28 x
// 28, more or fewer bytes than the header says, another number of labels than of images, a label
// beyond 9, gzip.
Dataset read_idx(const std::string& images, const std::string& labels);

struct Split {
  Dataset training, held_out;
};
// data/fashion_mnist: 400 images to train, 100 held out.
Split read_excerpt();
// train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-... in that folder. Only the first
// `held_out` of the held-out images are taken.
Split read_folder(const std::string& folder, int held_out);
// The checksum of all images and labels, which tells data sets apart but for chance.
uint64_t checksum(const Dataset& data);

// How images of a batch are changed: mirrored half the time, turned, scaled, shifted.
struct Augmentation {
  double turn = 8;     // degrees to either side
  double scale = 0.1;  // up to that share larger or smaller
  double shift = 1;    // pixels in either direction
  bool mirror = true;
};

// Numbers of the images of step `step` (from 0): each epoch in an order of its own, without the
// images left over when the batch does not divide their number.
std::vector<int> batch_of_step(const Dataset& data, int batch, int64_t step, uint64_t seed);
// Pixels of these images [numbers, 28, 28], mean 0 and deviation 1 over Fashion-MNIST.
std::vector<float> pixels(const Dataset& data, const std::vector<int>& numbers);
// The same augmented; black comes in from outside. `step` chooses the random numbers.
std::vector<float> augmented(const Dataset& data, const std::vector<int>& numbers,
                             const Augmentation& how, int64_t step, uint64_t seed);
// One pixel, 0 to 255, as the net sees it.
float normalized(double pixel);

}  // namespace training
