// Seeded numbers, the same on every machine and in any order.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace lab {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): number `index` of stream `seed`, in any order.
inline uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95 + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// [0, 1).
inline double uniform(uint64_t seed, uint64_t index) {
  return double(random_bits(seed, index) >> 11) * 0x1p-53;
}

// Box-Muller; the standard library's distributions differ from one to the next.
inline double normal(uint64_t seed, uint64_t index) {
  const double u = (double(random_bits(seed, 2 * index) >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double angle = double(random_bits(seed, 2 * index + 1) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * angle);
}

// So many of stream `seed`, times size, plus middle.
inline std::vector<float> normals(size_t count, uint64_t seed, double size = 1, double middle = 0) {
  std::vector<float> values(count);
#pragma omp parallel for
  for (size_t i = 0; i < count; ++i) values[i] = float(middle + size * normal(seed, i));
  return values;
}

}  // namespace lab
