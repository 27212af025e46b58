// Numbers that are none any more: the first infinity or NaN that a computation makes of operands that are
// neither, where it reaches memory.
//
// Correct programs make them on purpose, and drop them: x / (1 + exp(-x)) goes through an infinity, and
// nvcc computes both sides of a selection. So a value is followed from its birth through registers until
// it is stored to global memory, an atomic takes it, or other lanes get it by a shuffle. In shared memory
// it is followed word by word: tiles hold rows that nobody needs. A sum of halves that has
// gone beyond 65504 is told where it goes on as a float. What is loaded, or written as a constant, has no
// birth: masks are filled with -INFINITY. An instruction that names an infinity itself means it.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>

#include "../core/access.h"
#include "../core/instruction_set.h"
#include "../core/shuffle.h"
#include "checks.h"
#include "finite_words.h"
#include "floats.h"

namespace vgpu {
namespace {

// One execution of an instruction that made such values.
struct Birth {
  std::uint32_t references = 0;
  const Instr* instr = nullptr;
  const Function* function = nullptr;
  std::string words[kWarpSize];  // how each lane made it: "-inf - -inf is nan"
  const char* advice[kWarpSize] = {};
};

// Lanes of a register that hold one.
struct Held {
  std::uint32_t lanes = 0;
  Type format = Type::none;  // how its numbers are stored: f16, bf16, f32, f64
  std::uint32_t width = 0;   // bytes per lane
  Ref<Birth> birth[kWarpSize];
  std::uint8_t from[kWarpSize] = {};  // the lane that made it
};

class FiniteCheck final : public Observer {
 public:
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    frames_.clear();
    last_ = nullptr;
    findings_.take(findings);
  }
  void block_end(Block& block) override {
    std::erase_if(frames_, [&](const auto& entry) { return entry.second.block == &block; });
    for (const Warp& warp : block.warps) later_.erase(&warp);
    marks_.erase(&block);
    last_ = nullptr;
    product_.instr = computed_.instr = nullptr;
  }

  bool wants_instructions() const override { return true; }
  void instruction(Warp& warp, const Instr& instr, std::uint32_t, std::uint32_t on) override {
    if (computed_.instr) {
      const Computed last = std::exchange(computed_, {});
      look_at(*last.warp, *last.instr, last.on,
              last.warp->lanes<const std::byte>(last.instr->d[0]));
    }
    if (product_.instr) {
      const Asked last = std::exchange(product_, {});
      finish(*last.warp, last);
    }
    storing_ = nullptr;
    if (!on || instr.flow == Flow::warp_sync) return;
    switch (effects_[instr.form]) {
      case Effect::arithmetic:
        return arithmetic(warp, instr, on);
      case Effect::product:
        return begin_product(warp, instr);
      case Effect::later:
        later_[&warp].push_back(asked_for(warp, instr));
        return;
      case Effect::move:
        return move(warp, instr, on);
      case Effect::store:
        storing_ = &instr;
        break;
      case Effect::other:
        break;
    }
    if (Registers* const held = registers(warp)) clear_results(*held, instr, on);
  }
  void warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t) override {
    Registers* const held = registers(warp);
    if (!held || &instr != &warp.frame->function->code[instr.pc]) return;
    Held moved;
    if (const Held* const source = find(*held, instr.a);
        source && std::string_view(forms()[instr.form].opcode) == "shfl") {
      const std::uint32_t* b = warp.lanes<const std::uint32_t>(instr.b);
      const std::uint32_t* c = warp.lanes<const std::uint32_t>(instr.c);
      moved.format = source->format;
      leave(warp, instr, *held, instr.a, mask, "other lanes get it");
      each_lane(mask, [&](int lane) {
        const int from = shuffle_source(instr.variant, lane, b[lane], c[lane]).lane;
        if (source->lanes >> from & 1) take(moved, lane, *source, from);
      });
    }
    clear_results(*held, instr, mask);
    put(*held, instr.d[0], moved, 4);
  }

  // Where a store or an atomic goes is known here, and whether a load reads marked words.
  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places& places) override {
    Registers* const held = registers(warp);
    if (space == Space::shared && access != Access::atomic) {
      const Block* const of = places.owner ? places.owner : warp.block;
      const auto found = marks_.find(of);
      Marks* const marks = found == marks_.end() ? nullptr : &found->second;
      if (access == Access::load && marks) read_marks(warp, instr, mask, a, bytes, *marks);
      if (access == Access::store && (held || marks)) write_marks(warp, instr, mask, a, bytes, of);
      return;
    }
    if (!held || storing_ != &instr || access == Access::load) return;
    each_stored(instr, [&](Slot slot, std::uint32_t) {
      leave(warp, instr, *held, slot, mask, "it is stored");
    });
  }
  void copy_land(Warp&, int, Block& to, std::uint32_t offset, std::uint32_t bytes) override {
    if (const auto found = marks_.find(&to); found != marks_.end())
      erase(found->second, offset, bytes);
  }

  void operand_read(Warp& warp, const Instr& instr, std::span<const std::uint32_t> pieces,
                    Reading reading, std::uint64_t) override {
    const auto asked = later_.find(&warp);
    if (reading != Reading::begins || asked == later_.end() || asked->second.empty()) return;
    Asked& last = asked->second.back();
    const auto found = marks_.find(warp.block);
    for (const std::uint32_t piece : pieces) {
      last.excused |= floats::any_not_finite(warp.block->shared + piece, 16, instr.type);
      if (found == marks_.end() || last.cause.lanes) continue;
      if (const Mark* const mark = mark_in(found->second, piece, 16))
        last.cause.lanes = 1, last.cause.birth[0] = mark->birth, last.cause.from[0] = mark->from;
    }
  }
  void products_complete(Warp& warp, std::uint64_t product) override {
    const auto asked = later_.find(&warp);
    if (asked == later_.end()) return;
    while (!asked->second.empty() && asked->second.front().number <= product) {
      finish(warp, asked->second.front());
      asked->second.pop_front();
    }
  }

 private:
  struct Registers {
    Ref<Frame> frame;  // kept, so that no other one gets its address
    const Block* block = nullptr;
    std::unordered_map<std::uint32_t, Held> of;  // by Slot::bits
  };
  // A word of a block's shared memory that holds one.
  struct Mark {
    Ref<Birth> birth;
    std::uint8_t from = 0;
    Type format = Type::none;
  };
  using Marks = std::unordered_map<std::uint32_t, Mark>;  // by offset / 4
  // A product that is not complete yet.
  struct Asked {
    Warp* warp = nullptr;
    const Instr* instr = nullptr;
    Ref<Frame> frame;
    std::uint64_t number = 0;
    bool excused = false;  // an operand is not finite
    Held cause;            // why the operands are not finite, in lane 0
  };

  Registers* registers(const Warp& warp) {
    if (frames_.empty()) return nullptr;
    if (last_ == warp.frame) return last_registers_;
    last_ = warp.frame;
    const auto it = frames_.find(warp.frame);
    return last_registers_ = it == frames_.end() ? nullptr : &it->second;
  }
  Registers& registers_or_new(const Warp& warp) {
    if (Registers* const found = registers(warp)) return *found;
    Registers& fresh = frames_[warp.frame];
    fresh.frame = Ref<Frame>(warp.frame);
    fresh.block = warp.block;
    last_ = nullptr;
    return fresh;
  }
  static const Held* find(const Registers& registers, Slot slot) {
    if (!slot.valid() || slot.constant()) return nullptr;
    const auto it = registers.of.find(slot.bits);
    return it == registers.of.end() ? nullptr : &it->second;
  }
  static void take(Held& to, int lane, const Held& from, int source) {
    to.lanes |= 1u << lane;
    to.birth[lane] = from.birth[source];
    to.from[lane] = from.from[source];
  }
  static void put(Registers& registers, Slot slot, const Held& held, std::uint32_t width) {
    if (!held.lanes || !slot.valid() || slot.bits == 0) return;
    Held& to = registers.of[slot.bits];
    to.format = held.format;
    to.width = width;
    each_lane(held.lanes, [&](int lane) { take(to, lane, held, lane); });
  }
  static void clear(Registers& registers, Slot slot, std::uint32_t lanes) {
    if (!slot.valid()) return;
    const auto it = registers.of.find(slot.bits);
    if (it == registers.of.end()) return;
    it->second.lanes &= ~lanes;
    if (!it->second.lanes) registers.of.erase(it);
  }
  static void clear_results(Registers& registers, const Instr& instr, std::uint32_t lanes) {
    if (registers.of.empty()) return;
    clear(registers, instr.d[0], lanes);
    clear(registers, instr.d[1], lanes);
    for (int k = 0; k < instr.list_results; ++k) clear(registers, Slot{instr.list[k]}, lanes);
  }

  // ---- shared memory -------------------------------------------------------------------------

  // f(slot, bytes of it): what a store or an atomic takes.
  template <class F>
  static void each_stored(const Instr& instr, F f) {
    const bool plain = instr.op_class == OpClass::memory;
    const auto bytes = static_cast<std::uint32_t>(type_bits(instr.type)) / 8;
    for (int k = instr.list_results; k < instr.list_count; ++k) f(Slot{instr.list[k]}, bytes);
    if (instr.list) return;
    f(instr.a, bytes);
    if (!plain) f(instr.b, bytes), f(instr.c, bytes);
  }
  static bool is_plain(const Instr& instr) {  // a lane's own bytes, in the order of the registers
    const std::string_view opcode = forms()[instr.form].opcode;
    return opcode == "ld" || opcode == "ldu" || opcode == "st";
  }
  static const Mark* mark_in(const Marks& marks, std::uint64_t offset, std::uint32_t bytes) {
    for (std::uint64_t word = offset / 4; word * 4 < offset + bytes; ++word)
      if (const auto it = marks.find(static_cast<std::uint32_t>(word)); it != marks.end())
        return &it->second;
    return nullptr;
  }
  static void erase(Marks& marks, std::uint64_t offset, std::uint32_t bytes) {
    if (marks.empty()) return;
    for (std::uint64_t word = offset / 4; word * 4 < offset + bytes; ++word)
      marks.erase(static_cast<std::uint32_t>(word));
  }
  void read_marks(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                  std::uint32_t bytes, const Marks& marks) {
    const bool plain = is_plain(instr);
    const std::uint32_t elements = plain ? instr.elements : 1, each = bytes / elements;
    Held held[8];
    each_lane(mask, [&](int lane) {
      for (std::uint32_t k = 0; k < elements; ++k) {
        const Mark* const mark = mark_in(marks, a.v[lane] + k * each, each);
        if (!mark) continue;
        held[k].format = mark->format;
        // Matrices go to any lane.
        each_lane(plain ? 1u << lane : kFullMask, [&](int to) {
          held[k].lanes |= 1u << to;
          held[k].birth[to] = mark->birth;
          held[k].from[to] = mark->from;
        });
      }
    });
    const auto results = static_cast<std::uint32_t>(instr.list_results);
    const std::uint32_t width = instr.d_bits / 8u;
    for (std::uint32_t k = 0; k < (plain ? elements : results); ++k) {
      const Held& source = held[plain ? k : 0];
      if (source.lanes)
        put(registers_or_new(warp), results ? Slot{instr.list[k]} : instr.d[0], source, width);
    }
  }
  void write_marks(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                   std::uint32_t bytes, const Block* of) {
    Marks* marks = nullptr;
    if (const auto found = marks_.find(of); found != marks_.end()) {
      marks = &found->second;
      each_lane(mask, [&](int lane) { erase(*marks, a.v[lane], bytes); });
    }
    Registers* const held = registers(warp);
    if (!held || storing_ != &instr) return;
    std::uint32_t at = 0;
    each_stored(instr, [&](Slot slot, std::uint32_t each) {
      const Held* const source = find(*held, slot);
      const std::uint32_t offset = is_plain(instr) ? std::exchange(at, at + each) : 0;
      if (!source) return;
      each_lane(source->lanes & mask, [&](int lane) {
        if (!is_there(warp, *source, slot, lane, is_plain(instr) ? each : source->width)) return;
        const Mark mark{source->birth[lane], source->from[lane], source->format};
        if (!marks) marks = &marks_[of];
        const auto set = [&](std::uint64_t from, std::uint32_t count) {
          for (std::uint64_t word = from / 4; word * 4 < from + count; ++word)
            (*marks)[static_cast<std::uint32_t>(word)] = mark;
        };
        if (is_plain(instr))
          set(a.v[lane] + offset, each);
        else
          each_lane(mask, [&](int row) { set(a.v[row], bytes); });
      });
    });
  }

  // ---- arithmetic ----------------------------------------------------------------------------

  static Type result_type(const Instr& instr) {
    return instr.op_class == OpClass::conversion ? instr.dtype : instr.type;
  }
  // Results are there when the next instruction begins, and operands still are, unless a result has
  // taken the place of one. Then the instruction runs here already; it will once more, on the same operands.
  void arithmetic(Warp& warp, const Instr& instr, std::uint32_t on) {
    const Type type = result_type(instr);
    if (floats::element(type) == Type::none || !instr.d[0].valid()) return move(warp, instr, on);
    const std::uint32_t d = instr.d[0].bits;
    if (d != instr.a.bits && d != instr.b.bits && d != instr.c.bits) {
      computed_ = {&warp, &instr, on};
      return;
    }
    alignas(64) std::byte results[kWarpSize * 8], saved[kWarpSize * 8];
    const std::size_t bytes = static_cast<std::size_t>(type_bits(type)) / 8 * kWarpSize;
    std::byte* const place = warp.lanes<std::byte>(instr.d[0]);
    std::memcpy(saved, place, bytes);
    instr.run(warp, instr, on);
    std::memcpy(results, place, bytes);
    std::memcpy(place, saved, bytes);
    look_at(warp, instr, on, results);
  }
  void look_at(Warp& warp, const Instr& instr, std::uint32_t on, const std::byte* results) {
    const Type type = result_type(instr), format = floats::element(type);
    const std::uint32_t lanes = floats::lanes_not_finite(results, type) & on;
    Registers* held = registers(warp);
    if (!lanes && !held) return;
    Held fresh;
    if (held && lanes && is_half(floats::element(instr.type)) && !is_half(format))
      leave(warp, instr, *held, instr.a, lanes, "it goes on as a float", true);
    if (lanes) look(warp, instr, lanes, type, results, held, fresh);
    if (fresh.lanes && !held) held = &registers_or_new(warp);
    if (!held) return;
    clear_results(*held, instr, on);
    put(*held, instr.d[0], fresh, static_cast<std::uint32_t>(type_bits(type)) / 8);
  }

  // Which of these lanes' results are born here, and which have it from an operand.
  void look(Warp& warp, const Instr& instr, std::uint32_t lanes, Type type,
            const std::byte* results, const Registers* held, Held& fresh) {
    const bool converts = instr.op_class == OpClass::conversion;
    const bool from_number = floats::element(instr.type) != Type::none;
    const bool pair = converts && instr.b.valid();  // two floats become two halves, b the lower
    const int elements = floats::elements(type), given = floats::elements(instr.type);
    fresh.format = floats::element(type);
    Ref<Birth> birth;
    each_lane(lanes, [&](int lane) {
      for (const Slot slot : {instr.a, instr.b, instr.c})
        if (const Held* const source = held ? find(*held, slot) : nullptr)
          if (source->lanes >> lane & 1) return take(fresh, lane, *source, lane);
      for (int e = 0; e < elements; ++e) {
        const double result = floats::value(results, type, lane, e);
        if (std::isfinite(result)) continue;
        std::array<double, 3> operands = {};
        int count = 0;
        bool nan = false, infinite = false, meant = false;
        for (const Slot slot : {instr.a, instr.b, instr.c}) {
          if (!slot.valid() || (pair && slot.bits != (e ? instr.a : instr.b).bits)) continue;
          if (!from_number) break;
          const double x =
              floats::value(warp.lanes<const std::byte>(slot), instr.type, lane, given > 1 ? e : 0);
          operands[static_cast<std::size_t>(count++)] = x;
          nan |= std::isnan(x);
          infinite |= std::isinf(x);
          meant |= slot.constant() && !std::isfinite(x);
        }
        if (meant || nan || (infinite && std::isinf(result))) continue;
        if (!birth) {
          birth = Ref<Birth>(new Birth);
          birth->instr = &instr;
          birth->function = warp.frame->function;
        }
        birth->words[lane] = computation_words(instr, operands, count, result, fresh.format);
        birth->advice[lane] = computation_advice(instr, operands, result, fresh.format);
        fresh.lanes |= 1u << lane;
        fresh.birth[lane] = birth;
        fresh.from[lane] = static_cast<std::uint8_t>(lane);
        break;
      }
    });
  }

  void move(Warp& warp, const Instr& instr, std::uint32_t on) {
    Registers* const held = registers(warp);
    if (!held || held->of.empty()) return;
    Held moved;
    const auto from = [&](Slot slot, std::uint32_t lanes) {
      const Held* const source = find(*held, slot);
      if (!source) return;
      moved.format = source->format;
      each_lane(source->lanes & lanes & ~moved.lanes,
                [&](int lane) { take(moved, lane, *source, lane); });
    };
    if (std::string_view(forms()[instr.form].opcode) == "selp") {
      const std::uint32_t first = get_predicate(warp, instr.c, instr.c_not);
      from(instr.a, on & first);
      from(instr.b, on & ~first);
    } else {
      for (const Slot slot : {instr.a, instr.b, instr.c, instr.e}) from(slot, on);
      for (int k = instr.list_results; k < instr.list_count; ++k) from(Slot{instr.list[k]}, on);
    }
    clear_results(*held, instr, on);
    const std::uint32_t width = instr.d_bits / 8u;
    if (instr.list_results == 0) put(*held, instr.d[0], moved, width);
    for (int k = 0; k < instr.list_results; ++k) put(*held, Slot{instr.list[k]}, moved, width);
  }

  // ---- products ------------------------------------------------------------------------------

  // The types of D and of A and B. mma.sync names C's type last, and each of its rows has one kind of A.
  static Type sums_of(const Instr& instr) {
    return instr.dtype == Type::f16 ? Type::f16x2 : instr.dtype;
  }
  Type factors_of(const Instr& instr) const {
    if (effects_[instr.form] == Effect::later) return instr.type;
    const std::string_view pattern = forms()[instr.form].pattern;
    for (const Type type : {Type::bf16, Type::tf32, Type::e4m3, Type::f64})
      if (pattern.find(type_name(type)) != pattern.npos) return type;
    return Type::f16;
  }
  static std::uint32_t register_bytes(const Instr& i) { return i.dtype == Type::f64 ? 8 : 4; }

  // What the registers among the operands hold before.
  Asked asked_for(Warp& warp, const Instr& instr) {
    Asked asked{&warp, &instr, Ref<Frame>(warp.frame), 0, false, {}};
    asked.number = warp.products ? warp.products->issued + 1 : 1;
    const Registers* const held = registers(warp);
    const bool group = effects_[instr.form] == Effect::later;  // D is C, before A
    const int sums = instr.list_results;
    const int c_registers = group                                       ? 0
                            : instr.dtype == instr.type                 ? sums
                            : floats::element(instr.dtype) == Type::f16 ? 2 * sums
                                                                        : sums / 2;
    for (int k = group ? 0 : sums; k < instr.list_count; ++k) {
      const Slot slot{instr.list[k]};
      const bool sum = group ? k < sums : k >= instr.list_count - c_registers;
      const Type type = !sum ? factors_of(instr) : group ? instr.dtype : instr.type;
      asked.excused |= floats::any_not_finite(warp.lanes<const std::byte>(slot),
                                              kWarpSize * register_bytes(instr), type);
      const Held* const source = held ? find(*held, slot) : nullptr;
      if (source && !asked.cause.lanes)
        take(asked.cause, 0, *source, std::countr_zero(source->lanes));
    }
    return asked;
  }
  void begin_product(Warp& warp, const Instr& instr) {
    if (floats::element(sums_of(instr)) == Type::none) return;  // a product of integers
    product_ = asked_for(warp, instr);
  }
  void finish(Warp& warp, const Asked& asked) {
    const Instr& instr = *asked.instr;
    const Type type = sums_of(instr);
    if (warp.frame != asked.frame.get() || floats::element(type) == Type::none) return;
    Registers* held = registers(warp);
    Ref<Birth> birth;
    for (int k = 0; k < instr.list_results; ++k) {
      const Slot slot{instr.list[k]};
      const std::byte* const d = warp.lanes<const std::byte>(slot);
      const std::uint32_t lanes = floats::lanes_not_finite(d, type);
      if (held) clear(*held, slot, kFullMask);
      if (!lanes || (asked.excused && !asked.cause.lanes)) continue;
      Held fresh;
      fresh.format = floats::element(type);
      each_lane(lanes, [&](int lane) {
        if (asked.cause.lanes) return take(fresh, lane, asked.cause, 0);
        if (!birth) {
          birth = Ref<Birth>(new Birth);
          birth->instr = &instr;
          birth->function = warp.frame->function;
        }
        const bool half = fresh.format == Type::f16;
        birth->words[lane] = std::string("a sum of products goes beyond ") +
                             (half ? "65504, the largest half" : "3.4e38, the largest float");
        birth->advice[lane] = half ? "accumulate in float" : "scale the operands before";
        fresh.lanes |= 1u << lane;
        fresh.birth[lane] = birth;
        fresh.from[lane] = static_cast<std::uint8_t>(lane);
      });
      if (!held) held = &registers_or_new(warp);
      put(*held, slot, fresh, register_bytes(instr));
    }
  }

  // ---- uses ----------------------------------------------------------------------------------

  static bool is_half(Type format) { return format == Type::f16 || format == Type::bf16; }
  static bool adds_halves(const Instr& instr) {
    const std::string_view opcode = forms()[instr.form].opcode;
    return is_half(floats::element(instr.type)) &&
           (opcode == "add" || opcode == "sub" || opcode == "fma");
  }

  // Whether the first `stored` bytes of the lane still hold it: bits may have been dropped on the way.
  static bool is_there(Warp& warp, const Held& held, Slot slot, int lane, std::uint32_t stored) {
    const std::uint32_t each = floats::element_bytes(held.format);
    const std::byte* const value =
        warp.lanes<const std::byte>(slot) + static_cast<std::uint32_t>(lane) * held.width;
    bool there = false;
    for (std::uint32_t i = 0; i + each <= std::min(stored, held.width); i += each)
      there |= floats::not_finite_at(value + i, held.format);
    return there;
  }

  // What `slot` holds is used; `how`: "it is stored".
  void leave(Warp& warp, const Instr& instr, Registers& registers, Slot slot, std::uint32_t mask,
             const char* how, bool sums_alone = false) {
    const Held* const held = find(registers, slot);
    if (!held) return;
    const std::uint32_t stored =
        is_plain(instr) ? static_cast<std::uint32_t>(type_bits(instr.type)) / 8 : held->width;
    each_lane(held->lanes & mask, [&](int lane) {
      const Birth& birth = *held->birth[lane];
      if (sums_alone && !adds_halves(*birth.instr)) return;
      if (!is_there(warp, *held, slot, lane, stored)) return;
      const int from = held->from[lane];
      const std::string place = where(*birth.instr, *birth.function);
      findings_.add(place, [&] {
        const Launch& launch = warp.block->launch;
        const auto thread = warp.index * kWarpSize + static_cast<std::uint32_t>(from);
        const std::string to = where(instr, *warp.frame->function);
        return place + ": error: finite: " + birth.words[from] + ", and " + how +
               (to == place ? "" : " at " + to) + ", by thread " + thread_text(launch, thread) +
               " of block " + block_text(launch, warp.block->linear) + " in " +
               launch.request.function->display + ": " + birth.advice[from];
      });
    });
  }

  std::unordered_map<const Frame*, Registers> frames_;
  const Frame* last_ = nullptr;  // the frame looked up last, and what was found
  Registers* last_registers_ = nullptr;
  const Instr* storing_ = nullptr;
  struct Computed {  // by the last instruction
    Warp* warp = nullptr;
    const Instr* instr = nullptr;
    std::uint32_t on = 0;
  } computed_;
  Asked product_;
  std::unordered_map<const Warp*, std::deque<Asked>> later_;
  std::unordered_map<const Block*, Marks> marks_;
  const std::vector<Effect>& effects_ = effects();
  Findings findings_;
};

}  // namespace

std::unique_ptr<Observer> make_finite_check() { return std::make_unique<FiniteCheck>(); }

}  // namespace vgpu
