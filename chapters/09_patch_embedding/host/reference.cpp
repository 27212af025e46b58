#include "reference.h"

namespace reference {

void patch_embedding(const float* image, const float* weight, const float* bias,
                     const float* class_token, const float* position,
                     const patches_of_photos::Shape& shape, const patches_of_photos::Part& part,
                     double* tokens) {
  using namespace patches_of_photos;
  const int rows = 1 + part.patches;
#pragma omp parallel for collapse(2)
  for (int i = 0; i < part.images; ++i)
    for (int row = 0; row < rows; ++row)
      for (int c = 0; c < part.channels; ++c) {
        double sum = position[int64_t(row) * shape.channels + c];
        if (row == 0) {
          sum += class_token[c];
        } else {
          sum += bias[c];
          const int p = row - 1;
          const int top = p / shape.patch_columns() * kSide,
                    left = p % shape.patch_columns() * kSide;
          for (int color = 0; color < kColors; ++color)
            for (int y = 0; y < kSide; ++y)
              for (int x = 0; x < kSide; ++x)
                sum += double(image[((int64_t(i) * kColors + color) * shape.height + top + y) *
                                        shape.width +
                                    left + x]) *
                       weight[((int64_t(c) * kColors + color) * kSide + y) * kSide + x];
        }
        tokens[(int64_t(i) * rows + row) * part.channels + c] = sum;
      }
}

}  // namespace reference
