// CPU oracles of the three steps: plain loops, straight from what PhotoShape says.
#pragma once

#include "../shape.h"

namespace reference {

// Arrays as PhotoShape has them.
void grey(const unsigned char* photo, const PhotoShape& shape, unsigned char* grey);
uint64_t sum(const unsigned char* grey, const PhotoShape& shape);
void blur(const unsigned char* grey, const PhotoShape& shape, unsigned char* blurred);

}  // namespace reference
