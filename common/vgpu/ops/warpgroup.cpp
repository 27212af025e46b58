// Products of a warpgroup (wgmma): 64 x n, of operands in shared memory, asynchronous.
//
// A product is complete for its four warps at once. The first of them that waits for it does so until
// all have asked for it, and then the operands of all are read. Each warp's results come when it waits
// itself. That is as late as the program allows: code that forgets the wait, or overwrites an operand
// too early, gets a wrong result every time. In a shuffled schedule some products are computed as early
// as allowed, when they are asked for, which shows an operand that was not there yet. Registers are
// read and written at the same time.
#include <algorithm>
#include <cstdio>

#include "../core/access.h"
#include "warpgroup_product.h"

namespace vgpu {
namespace {

using std::uint32_t, std::uint64_t;

// ---- asking for a product, and its end ------------------------------------------------------

// The pieces of an operand in shared memory that this warp reads. The first of the four warps reads
// B for all of them. `again`: the end of a reading that was told before.
template <class F>
void each_operand(Warp& warp, const Instr& instr, uint64_t a, uint64_t b, F f) {
  const WarpgroupOp& op = op_of(instr);
  uint32_t at[kMostPiecesOfB];
  if (!op.a_in_registers) {
    place_a(warp, op, a, at);
    f("A", a, std::span<const uint32_t>(at, kPiecesOfA));
  }
  const int pieces = place_b(op, b, at);
  f("B", b, std::span<const uint32_t>(at, static_cast<std::size_t>(pieces)));
}

// Calls f with the registers of the function that asked for the product, once its reading is told.
template <class F>
void at_its_end(Warp& warp, const PendingProduct& product, F f) {
  Frame* const running = std::exchange(warp.frame, product.frame.get());
  std::byte* const registers = std::exchange(warp.base[0], warp.frame->registers);
  if (warp.worker->audience && !product.operands)
    each_operand(warp, *product.instr, product.a, product.b,
                 [&](const char*, uint64_t, std::span<const uint32_t> pieces) {
                   warp.worker->notify([&](Observer& o) {
                     o.operand_read(warp, *product.instr, pieces, Observer::Reading::ends,
                                    product.number + 1);
                   });
                 });
  f();
  warp.frame = running;
  warp.base[0] = registers;
}

void compute(Warp& warp, const PendingProduct& product) {
  at_its_end(warp, product, [&] { multiply_for_warp(warp, product); });
}

void compute_all(Warp& warp, std::vector<PendingProduct> products) {
  for (const PendingProduct& product : products) compute(warp, product);
}

// The products of a warp with numbers below `end` are complete. It may still wait long for them: they
// are multiplied then, of operands as they are now.
void read_before(Warp& warp, uint64_t end) {
  const auto read = [&](std::vector<PendingProduct>& products) {
    for (PendingProduct& product : products) {
      if (product.number >= end || product.operands) continue;
      at_its_end(warp, product, [&] {
        const WarpgroupOp& op = op_of(*product.instr);
        auto operands = std::make_shared<PendingProduct::Operands>();
        if (!op.a_in_registers) read_a(warp, *product.instr, product.a, operands->a);
        operands->b = std::make_unique<uint32_t[][kWarpSize]>(
            static_cast<std::size_t>(op.n / 8 * op.depth()));
        read_b(warp, op, product.b, operands->b.get());
        product.operands = std::move(operands);
      });
    }
  };
  for (ProductGroup& group : warp.products->groups) read(group.products);
  read(warp.products->open);
}

[[noreturn]] void refuse(Warp& warp, const Instr& instr, const std::string& what) {
  throw Fault{FaultKind::illegal_instruction, describe(warp, instr, 0, what)};
}

void require_whole_warp(Warp& warp, const Instr& instr, uint32_t mask) {
  if (mask == kFullMask) return;
  throw Fault{
      FaultKind::illegal_instruction,
      describe(warp, instr, std::countr_zero(mask),
               "an instruction of a warpgroup needs all 32 lanes of the warp together; here " +
                   std::to_string(std::popcount(mask)) + " execute it")};
}
uint32_t first_of_group(const Warp& warp) { return warp.index / kWarpsOfGroup * kWarpsOfGroup; }
void require_whole_group(Warp& warp, const Instr& instr) {
  if (first_of_group(warp) + kWarpsOfGroup <= warp.block->warps.size()) return;
  refuse(warp, instr,
         "a warpgroup is 4 warps (128 threads) with consecutive numbers; a block of " +
             std::to_string(warp.block->launch.request.block.count()) +
             " threads has none that thread belongs to: executed");
}

// The value that all lanes have.
uint64_t same_in_all_lanes(Warp& warp, const Instr& instr, Slot slot, const char* name) {
  const uint64_t* lanes = warp.lanes<const uint64_t>(slot);
  for (int lane = 1; lane < kWarpSize; ++lane)
    if (lanes[lane] != lanes[0]) {
      char text[160];
      std::snprintf(
          text, sizeof text,
          "the descriptor of %s is 0x%016llx in lane 0 and 0x%016llx in lane %d, where all "
          "lanes of a warpgroup must have the same, executed",
          name, static_cast<unsigned long long>(lanes[0]),
          static_cast<unsigned long long>(lanes[lane]), lane);
      refuse(warp, instr, text);
    }
  return lanes[0];
}
bool accumulates(Warp& warp, const Instr& instr) {
  const uint32_t p = warp.predicate(instr.c) ^ (instr.c_not ? kFullMask : 0);
  if (p != 0 && p != kFullMask)
    refuse(warp, instr,
           "scale-d is true in some lanes and false in others, where all lanes of a warpgroup must "
           "have the same, executed");
  return p != 0;
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Is it the product that the other warps of the warpgroup execute as this one?
void compare_with_group(Warp& warp, const Instr& instr, const PendingProduct& product) {
  Block& block = *warp.block;
  const uint32_t first = first_of_group(warp);
  if (block.warpgroups.empty()) block.warpgroups.resize(block.warps.size() / kWarpsOfGroup);
  WarpgroupLog& log = block.warpgroups[first / kWarpsOfGroup];
  const uint64_t number = warp.products->issued++;
  uint64_t all = number + 1;
  for (uint32_t w = first; w < first + kWarpsOfGroup; ++w) {
    const Warp& other = block.warps[w];
    const uint64_t issued = other.products ? other.products->issued : 0;
    all = std::min(all, issued);
    if (other.done() && issued <= number)
      refuse(warp, instr,
             "warp " + std::to_string(w) +
                 " of the block has ended without this instruction, which all 4 "
                 "warps of a warpgroup must execute; executed");
  }
  const Function* const function = warp.frame->function;
  const WarpgroupLog::Entry mine{function,  &function->code[instr.pc], product.a,
                                 product.b, product.accumulates,       warp.index};
  const WarpgroupLog::Entry first_comer = log.note(number, mine);
  if (mine.instr != first_comer.instr)
    refuse(warp, instr,
           "the warps of a warpgroup must execute the same instructions of a warpgroup in the same "
           "order: number " +
               std::to_string(number + 1) + " of warp " + std::to_string(first_comer.warp) +
               " is the one at " + where(*first_comer.instr, *first_comer.function) +
               (where(*first_comer.instr, *first_comer.function) == where(instr, *function)
                    ? ", PTX line " + std::to_string(first_comer.instr->ptx_line) + ", not " +
                          std::to_string(instr.ptx_line) + ", executed"
                    : ", not this one, executed"));
  if (mine.a != first_comer.a || mine.b != first_comer.b)
    refuse(warp, instr,
           std::string("the descriptor of ") + (mine.a != first_comer.a ? "A" : "B") + " is " +
               hex(mine.a != first_comer.a ? mine.a : mine.b) + " in warp " +
               std::to_string(warp.index) + " and " +
               hex(mine.a != first_comer.a ? first_comer.a : first_comer.b) + " in warp " +
               std::to_string(first_comer.warp) +
               ", where all warps of a warpgroup must have the same, executed");
  if (mine.accumulates != first_comer.accumulates)
    refuse(warp, instr,
           "scale-d differs between warps " + std::to_string(first_comer.warp) + " and " +
               std::to_string(warp.index) + " of a warpgroup, which must have the same, executed");
  log.forget_before(all);
}

void count_work(Worker& worker, const WarpgroupOp& op) {
  const auto work =  // only the stored elements of a sparse A are multiplied
      uint64_t{16} * static_cast<uint64_t>(op.n) * static_cast<uint64_t>(op.k / (op.depth() / 2));
  const bool f8 = op.a == Type::e4m3 || op.a == Type::e5m2, f16_sums = op.d == Type::f16;
  WarpgroupType type = f8 ? (f16_sums ? WarpgroupType::f8_sums_f16 : WarpgroupType::f8)
                          : (f16_sums ? WarpgroupType::f16_sums : WarpgroupType::f16);
  if (op.a == Type::tf32) {
    type = WarpgroupType::tf32;
    worker.tensor_tf32 += work;
  } else if (op.a == Type::b1) {
    type = WarpgroupType::b1;
  } else if (op.d == Type::s32) {
    type = WarpgroupType::int8;
    worker.tensor_int8 += work;
  } else {
    worker.tensor_f16 += work;
    if (f8) worker.tensor_f8 += work;
    if (f16_sums) worker.tensor_f16_sums += work;
  }
  worker.warpgroup_work[static_cast<std::size_t>(type)] += work;
}

void check_and_count(Warp& warp, const Instr& instr, const PendingProduct& product) {
  const WarpgroupOp& op = op_of(instr);
  const uint32_t size = warp.block->launch.shared_bytes;
  const uint64_t number = product.number + 1;
  each_operand(warp, instr, product.a, product.b,
               [&](const char* name, uint64_t descriptor, std::span<const uint32_t> pieces) {
                 uint32_t furthest = 0;
                 for (const uint32_t at : pieces) furthest = std::max(furthest, at);
                 if (furthest + 16 > size)
                   refuse(warp, instr,
                          std::string("operand ") + name + " (descriptor " + hex(descriptor) +
                              ") reaches 16 bytes at offset " + std::to_string(furthest) +
                              " of shared memory, of which the block has " + std::to_string(size) +
                              " bytes: out-of-bounds read");
                 warp.worker->notify([&](Observer& o) {
                   o.operand_read(warp, instr, pieces, Observer::Reading::begins, number);
                 });
                 // B is read once for the four warps.
                 if (!warp.worker->counting || (*name == 'B' && warp.index % kWarpsOfGroup)) return;
                 SharedCounters& c = warp.frame->sites[instr.memory_site].shared;
                 for (std::size_t i = 0; i < pieces.size(); i += kWarpSize) {
                   alignas(64) uint32_t offsets[kWarpSize];
                   const std::size_t here = std::min<std::size_t>(kWarpSize, pieces.size() - i);
                   for (std::size_t lane = 0; lane < kWarpSize; ++lane)
                     offsets[lane] = pieces[i + (lane < here ? lane : 0)];
                   const SharedShape shape = shared_request(
                       offsets, kFullMask >> (kWarpSize - static_cast<int>(here)), 16);
                   ++c.requests;
                   c.wavefronts += shape.wavefronts;
                   c.ideal += shape.ideal;
                   c.bytes_asked += 16 * here;
                   warp.worker->shared_clocks += shape.wavefronts;
                 }
               });
  count_work(*warp.worker, op);
}

// Does a shuffled schedule compute this product at once? The same seed says the same.
bool at_once(const Warp& warp) {
  const uint64_t seed = warp.block->launch.seed;
  if (!seed) return false;
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + warp.block->linear * 0xBF58476D1CE4E5B9ull +
               warp.products->issued * 0x94D049BB133111EBull + warp.index;
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15ull;
  return x >> 63;
}

// instr.list: the registers of D, then those of A. a, b: descriptors. c: scale-d.
void ask(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  require_whole_group(warp, instr);
  PendingProduct product;
  product.instr = &warp.frame->function->code[instr.pc];
  product.frame = Ref<Frame>(warp.frame);
  if (!op_of(instr).a_in_registers) product.a = same_in_all_lanes(warp, instr, instr.a, "A");
  product.b = same_in_all_lanes(warp, instr, instr.b, "B");
  const WarpgroupOp& op = op_of(instr);
  if (op.sparse && !op.b_mn_major && decode_descriptor(product.b).row == 32)
    refuse(
        warp, instr,
        "K-major B of a sparse product, 64 bytes along K, with a swizzle of 32 bytes (descriptor " +
            hex(product.b) + "): where its second half lies is not documented; executed");
  product.accumulates = accumulates(warp, instr);
  if (!warp.products) warp.products = std::make_unique<WarpProducts>();
  product.number = warp.products->issued;
  compare_with_group(warp, instr, product);
  check_and_count(warp, instr, product);
  WarpProducts& products = *warp.products;
  products.open.push_back(std::move(product));
  if (!at_once(warp)) return;
  for (auto& group : products.groups) compute_all(warp, std::exchange(group.products, {}));
  compute_all(warp, std::exchange(products.open, {}));
}

// ---- registers ------------------------------------------------------------------------------

// setmaxnreg: registers of the warp's threads go to the block's pool, or come from there. A warp that has
// to wait for others to give theirs back says so in `short_of`, and executes the instruction again.
template <bool kMore>
void change_registers(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  require_whole_group(warp, instr);
  warp.short_of = 0;
  const auto wanted = static_cast<uint32_t>(instr.constant), held = warp.registers;
  if (held) {  // else ptxas ignores the instruction
    if (kMore ? wanted < held : wanted > held)
      refuse(warp, instr,
             std::string("setmaxnreg.") + (kMore ? "inc" : "dec") + " to " +
                 std::to_string(wanted) + " registers of a thread, which has " +
                 std::to_string(held) + ": executed");
    Block& block = *warp.block;
    const uint64_t all = block.entry_registers * uint64_t{kWarpSize} * block.warps.size();
    const uint64_t group = uint64_t{wanted} * kWarpSize * kWarpsOfGroup;
    if (kMore && group > all)
      refuse(warp, instr,
             "setmaxnreg.inc to " + std::to_string(wanted) + " registers of a thread takes " +
                 std::to_string(group) + " for a warpgroup, and the whole block has " +
                 std::to_string(all) + " (" + std::to_string(block.entry_registers) +
                 " a thread at its start): can never be met, executed");
    if (kMore) {
      const uint32_t more = (wanted - held) * kWarpSize;
      if (more > block.free_registers) {
        warp.short_of = more;
        return;
      }
      block.free_registers -= more;
    } else {
      block.free_registers += (held - wanted) * kWarpSize;
    }
    warp.registers = wanted;
  }
  if (!warp.products) warp.products = std::make_unique<WarpProducts>();
  compare_with_group(warp, instr, {});
}

void fence(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  require_whole_group(warp, instr);
}

void commit(Warp& warp, const Instr& instr, uint32_t mask) {
  fence(warp, instr, mask);
  if (!warp.products) warp.products = std::make_unique<WarpProducts>();
  WarpProducts& products = *warp.products;
  products.groups.push({std::exchange(products.open, {}), products.issued});
}

void wait(Warp& warp, const Instr& instr, uint32_t mask) {
  fence(warp, instr, mask);
  warp.ahead_of_group = false;
  if (!warp.products) return;
  auto& groups = warp.products->groups;
  const auto stay = static_cast<std::size_t>(instr.constant);
  uint64_t end = 0;  // when the products to wait for end
  for (std::size_t i = 0; i + stay < groups.size(); ++i) end = groups[i].end;
  const uint32_t first = first_of_group(warp);
  WarpgroupLog* const log = end ? &warp.block->warpgroups[first / kWarpsOfGroup] : nullptr;
  const bool fresh = log && log->complete < end;
  if (fresh) {
    for (uint32_t w = first; w < first + kWarpsOfGroup; ++w) {
      const Warp& other = warp.block->warps[w];
      warp.ahead_of_group = !other.products || other.products->issued < end;
      if (warp.ahead_of_group) return;
    }
    for (uint32_t w = first; w < first + kWarpsOfGroup; ++w)
      if (w != warp.index) read_before(warp.block->warps[w], end);
    log->complete = end;
  }
  while (groups.size() > stay) compute_all(warp, groups.pop().products);
  if (log) warp.worker->notify([&](Observer& o) { o.products_complete(warp, end); });
}

}  // namespace

void finish_products(Warp& warp, uint32_t lanes) {
  if (lanes != warp.live || warp.block->warpgroups.empty()) return;
  const uint64_t issued = warp.products ? warp.products->issued : 0;
  const uint32_t first = first_of_group(warp);
  if (first + kWarpsOfGroup > warp.block->warps.size()) return;
  for (uint32_t w = first; w < first + kWarpsOfGroup; ++w) {
    const Warp& other = warp.block->warps[w];
    if (!other.products || other.products->issued <= issued) continue;
    const WarpgroupLog::Entry missed =
        warp.block->warpgroups[first / kWarpsOfGroup].note(issued, {});
    throw Fault{
        FaultKind::illegal_instruction,
        describe(warp, *missed.instr, std::countr_zero(lanes),
                 "warp " + std::to_string(warp.index) +
                     " of the block ends without this instruction, which warp " +
                     std::to_string(missed.warp) +
                     " has executed and all 4 warps of a warpgroup must execute: not executed")};
  }
}

Handler bind_wgmma(Instr& instr, const Mods& mods) {
  WarpgroupOp op;
  int m = 0;
  std::vector<Type> types;
  for (const std::string_view w : mods.words) {
    std::sscanf(std::string(w).c_str(), "m%dn%dk%d", &m, &op.n, &op.k);
    if (const Type t = type_from_name(w); t != Type::none) types.push_back(t);
  }
  if (types.size() != 3) return nullptr;
  op.d = types[0], op.a = types[1], op.b = types[2];
  op.saturate = mods.has("satfinite");
  op.sparse = mods.has("sp");
  // Decoder::warpgroup_product has put them there.
  const auto flags = static_cast<uint64_t>(instr.constant);
  op.selector = static_cast<int>(flags >> 4 & 1);
  op.a_in_registers = flags & 32;
  const int registers = op.n / 8 * op.per_tile();
  if (instr.list_results != registers) return nullptr;
  if (instr.list_count != registers + (op.a_in_registers ? 4 : 0) + (op.sparse ? 1 : 0))
    return nullptr;
  op.negate = (flags & 1) != (flags >> 1 & 1);
  op.a_mn_major = flags & 4;
  op.b_mn_major = flags & 8;
  instr.space = Space::shared;
  instr.data = new WarpgroupOp(op);  // kept as long as the process, as all tables of instructions
  return &ask;
}
Handler bind_setmaxnreg(Instr& instr, const Mods& mods) {
  if (instr.constant < 24 || instr.constant > 256 || instr.constant % 8) return nullptr;
  return mods.has("inc") ? &change_registers<true> : &change_registers<false>;
}
Handler bind_wgmma_fence(Instr&, const Mods&) { return &fence; }
Handler bind_wgmma_commit(Instr&, const Mods&) { return &commit; }
Handler bind_wgmma_wait(Instr& instr, const Mods&) {
  return instr.constant < 0 || instr.constant > 7 ? nullptr : &wait;
}

}  // namespace vgpu
