#include "random.h"

#include <random>

namespace vgpu {

struct Random::Engine {
  std::mt19937_64 numbers;
};

Random::Random() = default;
Random::Random(std::uint64_t seed) : engine_(new Engine{std::mt19937_64(seed)}) {}
Random::Random(Random&&) noexcept = default;
Random& Random::operator=(Random&&) noexcept = default;
Random::~Random() = default;

Random::result_type Random::operator()() { return engine_->numbers(); }

}  // namespace vgpu
