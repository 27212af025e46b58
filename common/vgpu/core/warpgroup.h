// Warpgroups: four warps with consecutive numbers whose tensor cores multiply together (wgmma).
//
// Each of the four computes 16 of the 64 rows. They execute the same products in the same order, which is
// compared here, and a product is complete for all of them at once: a thread of one warp may tell others
// that its operands are free.
#pragma once
#include <cstdint>

#include "queue.h"
#include "warp.h"

namespace vgpu {

inline constexpr std::uint32_t kWarpsOfGroup = 4;

// The products of one warpgroup that not all of its warps have executed yet.
class WarpgroupLog {
 public:
  struct Entry {
    const Function* function = nullptr;
    const Instr* instr = nullptr;
    std::uint64_t a = 0, b = 0;
    bool accumulates = false;
    std::uint32_t warp = 0;  // the warp that executed it first
  };
  // A warp executes product `number`. Returns what the first of the warps has executed as that number.
  const Entry& note(std::uint64_t number, const Entry& entry) {
    if (number - first_ == entries_.size()) entries_.push(entry);
    return entries_[number - first_];
  }
  // All warps have executed the products before this one.
  void forget_before(std::uint64_t number) {
    for (; first_ < number; ++first_) entries_.pop();
  }
  std::uint64_t complete = 0;  // products that a warp has waited for

 private:
  std::uint64_t first_ = 0;  // number of the oldest entry
  Queue<Entry> entries_;
};

// Lanes of a warp end: faults when another warp of its warpgroup has executed more products.
void finish_products(Warp& warp, std::uint32_t lanes);

}  // namespace vgpu
