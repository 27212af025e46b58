#include "reference.h"

namespace reference {

void grey(const unsigned char* photo, const PhotoShape& shape, unsigned char* grey) {
#pragma omp parallel for
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    const unsigned char *red = photo, *green = red + shape.pixels(), *blue = green + shape.pixels();
    const int thousandths = 299 * red[i] + 587 * green[i] + 114 * blue[i];
    grey[i] = static_cast<unsigned char>(thousandths / 1000 + (thousandths % 1000 >= 500));
  }
}

uint64_t sum(const unsigned char* grey, const PhotoShape& shape) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < shape.pixels(); ++i) sum += grey[i];
  return sum;
}

void blur(const unsigned char* grey, const PhotoShape& shape, unsigned char* blurred) {
  constexpr int kRadius = PhotoShape::kRadius;
#pragma omp parallel for
  for (int y = 0; y < shape.height; ++y)
    for (int x = 0; x < shape.width; ++x) {
      int sum = 0, count = 0;
      for (int dy = -kRadius; dy <= kRadius; ++dy)
        for (int dx = -kRadius; dx <= kRadius; ++dx) {
          if (y + dy < 0 || y + dy >= shape.height || x + dx < 0 || x + dx >= shape.width) continue;
          sum += grey[int64_t(y + dy) * shape.width + x + dx];
          ++count;
        }
      // Half of the divisor and more is rounded up.
      blurred[int64_t(y) * shape.width + x] =
          static_cast<unsigned char>(sum / count + (2 * (sum % count) >= count));
    }
}

}  // namespace reference
