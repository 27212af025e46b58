// Values in registers that are undefined: they come from memory that nobody wrote or from a variable
// that nothing was assigned to (check/init.cpp), or from a lane that a shuffle does not have
// (check/sync.cpp).
//
// To load such a value is no mistake: nvcc reads the padding of structs, a merge reads past its end
// and selects the other value. Use is the mistake. So each bit of a register may be undefined, and
// so is each result computed from it, until one decides something: an address, a branch or a guard,
// an atomic, a vote, a value stored to global memory. Bits that a mask, a shift or a selection
// drops are gone.
//
// Only registers that hold undefined bits take room and time here.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "../core/block.h"

namespace vgpu {

// One executed load, some of whose lanes got bytes that nobody wrote; or a shuffle; or, with no
// bytes, the first read of a variable that nothing was assigned to.
struct Origin {
  std::uint32_t references = 0;
  const Instr* instr = nullptr;
  std::uint32_t bytes = 0;
  Space space = Space::global;
  std::uint64_t block = 0;  // whose shared memory, as Block::linear
  bool own_block = true;    // that of the warp
  std::uint64_t first[kWarpSize] =
      {};  // the first such byte of each lane: address, offset; or a lane
  std::uint8_t copied[kWarpSize] = {};  // its flag: 0, or what it was copied from (check/init.cpp)
  std::uint32_t computed = 0;           // lanes whose bytes are a result computed from such ones
  std::uint32_t whole = 0;              // lanes of which all bytes are such
  std::uint32_t told = 0;               // lanes that are in the findings
};

class UndefinedValues {
 public:
  // What `lane` has loaded at `origin` is used.
  using Use = std::function<void(Warp&, Origin& origin, int lane)>;
  explicit UndefinedValues(Use use) : use_(std::move(use)) {}

  // Before an instruction: reports the undefined bits that it uses, and marks its results.
  void instruction(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t on);
  void warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask);

  // Can what this instruction loads be followed into registers?
  static bool follows(const Instr& instr);
  // Such an instruction brings `lane` bytes of which those in `undefined` (bit i: byte i) are.
  void loaded(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes,
              std::uint32_t undefined, const Ref<Origin>& origin);
  // These lanes have not assigned to a register of `bits` a lane; `origin`: its first read.
  void unassigned(Warp& warp, std::uint32_t lanes, Slot slot, int bits, const Ref<Origin>& origin);

  // What the store that is being executed writes: lanes with undefined bytes, and which bytes.
  struct Stored {
    std::uint32_t lanes = 0;
    std::uint32_t bytes[kWarpSize] = {};
    std::uint32_t computed = 0;  // lanes of which all undefined bytes are results of arithmetic
    Ref<Origin> origin[kWarpSize];
    std::uint8_t from[kWarpSize] = {};  // the lane that loaded it
  };
  const Stored& stored() const { return stored_; }

  void forget(const Block& block);
  void clear() { frames_.clear(), last_ = nullptr; }

 private:
  // Which bits of a register are undefined, laid out as the register is.
  struct Register {
    std::uint32_t lanes = 0;     // lanes with undefined bits; a predicate has nothing else
    std::uint32_t width = 0;     // bytes of a lane; 0: a predicate
    std::uint32_t computed = 0;  // lanes whose value is a result of arithmetic, no copy
    alignas(64) std::uint8_t raw[kWarpSize * 16] = {};
    Ref<Origin> origin[kWarpSize];
    std::uint8_t from[kWarpSize] = {};  // the lane that loaded it
    std::uint64_t bits(int lane) const;
  };
  struct Registers {
    Ref<Frame> frame;  // kept, so that no other one gets its address
    const Block* block = nullptr;
    std::unordered_map<std::uint32_t, Register> of;  // by Slot::bits
  };
  struct Source {
    const Register* of = nullptr;
    int lane = 0;
  };

  Registers* registers(const Warp& warp);
  Registers& registers_or_new(const Warp& warp);
  static Register* find(Registers& registers, Slot slot);
  static void put(Registers& registers, Slot slot, int lane, const std::uint8_t* raw,
                  std::uint32_t width, Source source);
  static void put_all(Registers& registers, Slot slot, int lane, int width_bits, Source source);
  static void define(Registers& registers, Slot slot, std::uint32_t lanes);
  static void define_results(const Instr& instr, Registers& registers, std::uint32_t lanes);
  void consume(Warp& warp, Registers& registers, Slot slot, std::uint32_t lanes);
  void consume_all(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t lanes);

  void store(const Instr& instr, Registers& registers, std::uint32_t on);
  static void mix(const Instr& instr, Registers& registers, std::uint32_t on);
  static void compare(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t on);
  static void select(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t on);
  static void logic(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t on,
                    bool is_and);
  static void rearrange(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t on);
  static void shuffle(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t mask);

  Use use_;
  std::unordered_map<const Frame*, Registers> frames_;
  const Frame* last_ = nullptr;  // the frame looked up last, and what was found
  Registers* last_registers_ = nullptr;
  Stored stored_;
};

}  // namespace vgpu
