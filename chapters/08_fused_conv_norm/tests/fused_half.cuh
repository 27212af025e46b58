// The fused kernel and tiles in fp16, for planted mistakes. (4_half.cuh would also compile what it launches.)
#pragma once

#include "../2_fused.cuh"
#include "../parts/half_tile.cuh"
