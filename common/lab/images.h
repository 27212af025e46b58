// Photos and pictures.
#pragma once

#include <string>
#include <vector>

namespace lab {

struct Image {
  int width = 0, height = 0;       // pixels
  std::vector<unsigned char> rgb;  // [height, width, 3]
};

// PNG or JPEG. Throws UsageError that names the file and the reason: missing, a folder, empty, no
// image, truncated, too large.
Image load_image(const std::string& path);
// By the name's ending .png, .jpg or .jpeg; atomically. Throws UsageError.
void save_image(const std::string& path, const Image& image);
// The largest centred square, resized to size x size pixels.
Image square(const Image& image, int size);

// Throws UsageError for a photo of one colour: what filters answer to it is nothing but rounding.
void require_not_flat(const Image& photo);

}  // namespace lab
