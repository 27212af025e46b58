// The instructions of a cubin's kernel as they lie in the file, and the line that each comes from.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "opcodes.h"

namespace vgpu::time {

// The kernel, then each other function of the cubin, one behind the other.
struct CubinCode {
  struct Reference {
    std::uint32_t from = 0;  // index of an instruction that the linker changes
    std::int32_t to = -1;    // index of the instruction that it names there; -1: another thing
  };
  std::vector<Word128> words;
  std::vector<std::uint32_t> lines;   // by instruction; 0: none
  std::vector<Reference> references;  // ordered by `from`
  std::uint32_t kernel_words = 0;     // those of the kernel itself
  std::int32_t registers = 0;
};

// The code of `kernel` and of all other functions; `alone`: only its own, without lines.
CubinCode read_cubin_code(std::string_view cubin, std::string_view kernel, bool alone,
                          std::string& why);

// ptxas's own words in a cubin: its version ("V13.0.88") and its options; empty where there are none.
struct CubinOrigin {
  std::string version, options;
};
CubinOrigin cubin_origin(std::string_view cubin);

// Whether both kernels have the same instructions. What a linker fills in does not count.
bool same_code(const CubinCode& a, const CubinCode& b);

}  // namespace vgpu::time
