// What bulk and tensor copies share with the rest: reductions, boxes of tensors, and the end of a thread.
#pragma once
#include <memory>

#include "instruction_set.h"
#include "observer.h"
#include "tensor_map.h"
#include "warp.h"

namespace vgpu {

// Combines `bytes` at `to` in global memory with those at `from`, each element atomically.
using BulkReduction = void (*)(std::byte* to, const std::byte* from, std::uint32_t bytes);
// Null where the ISA has no such operation on the type.
BulkReduction bulk_reduction(Type type, const Mods& mods);

// A box of a tensor that one lane wants to copy: ops/tensor_copy.cpp.
class TensorBox {
 public:
  // Reads the map and the coordinates of the instruction, and checks, shows and counts what the box
  // takes of global memory. Throws Fault.
  TensorBox(Warp& warp, const Instr& instr, int lane, std::uint64_t map, Access access,
            bool counts);
  std::uint32_t bytes() const { return bytes_; }
  std::uint64_t map_address() const { return map_address_; }  // generic
  // Aligned pieces of so many bytes of global memory that each of its rows lies in, added up.
  std::uint32_t pieces(std::uint32_t bytes) const;
  // The box as it lies in shared memory from `shared_offset` on, with what its rows hold now.
  std::vector<std::byte> image(std::uint32_t shared_offset) const;
  // Writes such an image to global memory, or combines it.
  void write(Warp& warp, const Instr& instr, int lane, const std::vector<std::byte>& image,
             std::uint32_t shared_offset) const;

 private:
  void find_rows(Warp& warp, const Instr& instr, int lane, Access access, bool counts);

  TensorMap map_;
  std::uint64_t map_address_;
  std::uint32_t bytes_ = 0;
  std::vector<TensorRow> rows_;
  std::vector<std::byte*> places_;  // where the rows lie on the host
};

// What lanes that end have asked for and not waited for.
void finish_bulk(Warp& warp, std::uint32_t lanes);

}  // namespace vgpu
