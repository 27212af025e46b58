// Patch embedding in plain C++: what a step, a reference and a report must agree on and nothing else.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

// (Not in the chapter's namespace, since planted bugs have copies of that one.)
namespace patches_of_photos {

inline constexpr int kSide = 16;  // pixels of a patch's side
inline constexpr int kColors = 3;
inline constexpr int kPatchValues = kColors * kSide * kSide;  // 768, of a patch and of a filter

// A convolution of 16 x 16 pixels with stride 16, as a Vision Transformer begins:
//   image        [batch, 3, height, width]
//   weight       [channels, 3, 16, 16], a filter for each channel
//   bias, class_token   [channels]
//   position     [1 + patches, channels]
//   tokens       [batch, 1 + patches, channels]; row 0 is class_token + position[0], row 1 + p of
//                channel c the filter c on patch p, plus bias[c] + position[1 + p, c]
// All of them in fp16, sums in fp32. Patches are numbered row by row.
struct Shape {
  int batch = 1, height = 224, width = 224, channels = 192;

  int patch_columns() const { return width / kSide; }
  int patches() const { return (height / kSide) * (width / kSide); }
  int rows() const { return 1 + patches(); }  // tokens of an image
  int64_t image_values() const { return int64_t(batch) * kColors * height * width; }
  int64_t weight_values() const { return int64_t(channels) * kPatchValues; }
  int64_t token_values() const { return int64_t(batch) * rows() * channels; }
};

// A part of all tokens: of the first images the first patches, of each the first channels, and of each
// such image the class token's row, as many channels. What lies outside is not written.
struct Part {
  int images = 1, patches = 1, channels = 1;
  int64_t outputs() const { return int64_t(images) * patches * channels; }
};
inline Part whole(const Shape& shape) { return {shape.batch, shape.patches(), shape.channels}; }

inline std::string describe(const Shape& shape) {
  return "[batch " + std::to_string(shape.batch) + ", " + std::to_string(shape.height) + " x " +
         std::to_string(shape.width) + " pixels, " + std::to_string(shape.channels) + " channels]";
}

// What a step does for a part, by formula.
struct Traffic {
  int64_t launches = 0, waits = 0;  // waits: how often the host waits for the device
  int64_t copies_in = 0, bytes_in = 0, copies_out = 0, bytes_out = 0;
  int64_t device_bytes = 0;  // memory on the device
};

// Throws std::invalid_argument that names the shape and what would be right.
inline void require_shape(const Shape& shape, const Part& part) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("patch embedding of shape " + describe(shape) + ": " + why);
  };
  if (shape.batch < 1 || shape.channels < 1) refuse("batch and channels must be at least 1");
  if (shape.height < kSide || shape.width < kSide || shape.height % kSide || shape.width % kSide)
    refuse("height and width must be multiples of 16 pixels, at least 16");
  if (shape.token_values() > INT32_MAX || shape.image_values() > INT32_MAX)
    refuse("image and tokens have at most 2147483647 values each");
  if (part.images < 1 || part.images > shape.batch || part.patches < 1 ||
      part.patches > shape.patches() || part.channels < 1 || part.channels > shape.channels)
    refuse("a part has 1 to all of its images, patches and channels, not " +
           std::to_string(part.images) + ", " + std::to_string(part.patches) + " and " +
           std::to_string(part.channels));
}

}  // namespace patches_of_photos

namespace patch_embedding {
using namespace patches_of_photos;
}
