// What the parts of the fuzzer share: its random numbers, and who makes and who eats inputs.
#pragma once
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace vgpu::fuzz {

struct Random {
  std::mt19937_64 engine;
  explicit Random(std::uint64_t seed) : engine(seed) {}
  std::uint64_t below(std::uint64_t n) { return n ? engine() % n : 0; }  // 0 .. n-1
  bool chance(int one_in) { return below(static_cast<std::uint64_t>(one_in)) == 0; }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(std::size(list))];
  }
};

// mutate.cc: one to a few changes. `other` is what pieces are taken from.
std::string mutate_bytes(std::string bytes, const std::string& other, Random& random);
std::string mutate_text(const std::string& text, const std::string& other, Random& random);

// generate.cc: a module whose kernel "k" is made of random instructions of the table of forms, most
// operands of the right kind, some not.
std::string generate_ptx(Random& random);

// targets.cc: the readers, and execution. Each has seeds of its own; PTX and cubins may be added.
// What became of the PTX.
struct Counts {
  std::uint64_t loaded = 0, launched = 0, finished = 0;
};
extern Counts counts;

struct Target {
  const char* name;
  std::vector<std::string> seeds;
  bool text = false;  // mutated by tokens, mostly
  void (*run)(const std::string& input);
};
std::vector<Target> targets(const std::vector<std::string>& files);

}  // namespace vgpu::fuzz
