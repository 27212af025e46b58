// The race check's look at each access: which accesses to the same bytes came before it, and whether
// something orders them. race.h says what orders, race_words.cpp has the messages.
#include "race.h"

#include <bit>

#include "../core/instruction_set.h"
#include "race_words.h"

namespace vgpu::race {

std::uint32_t RaceCheck::record_for(WarpState& state, Warp& warp, const Instr& instr,
                                    std::uint32_t bytes, Access access) {
  // (handlers may pass a copy of the instruction)
  const Function* function = warp.frame->function;
  return record_for(state, {state.now, warp.block->linear, warp.index, bytes,
                            &function->code[instr.pc], function, access});
}

std::uint32_t RaceCheck::record_for(WarpState& state, const Record& what) {
  WarpState::Recent& recent =
      state.recent[(what.instr->pc * 2 + (what.access == Access::load)) % state.recent.size()];
  if (recent.instr == what.instr && recent.access == what.access && recent.time == what.time &&
      next_record_ - recent.record < kRecords / 2)
    return recent.record;
  if (next_record_ >= records_.size() && records_.size() < kRecords)
    records_.resize(records_.size() * 2);
  if (next_record_ == 0) next_record_ = 1;
  recent = {what.instr, what.access, what.time, next_record_++};
  record(recent.record) = what;
  return recent.record;
}

// Does the recorded access come before the present one for every lane of the warp?
bool RaceCheck::ordered_for_all(Now& now, Trace before) {
  const std::uint32_t i = record_of(before);
  if (i == now.fine[0] || i == now.fine[1]) return true;
  bool fine = i < now.oldest || forgotten(i);
  if (!fine) {
    const Record& r = record(i);
    const bool same_block = r.block == now.block.block->linear && r.by == Actor::thread;
    fine = (same_block && r.time <= now.block.barrier) ||
           (same_block && r.warp == now.state.index && r.time <= now.state.met.all);
    if (!fine && (now.block.known || now.state.known)) {
      const std::uint64_t key = knowledge_key(r, 0);
      fine = r.time <= known_until(now.block.known, key, kWarpLevel) ||
             r.time <= known_until(now.state.known, key, kWarpLevel);
    }
  }
  if (!fine) return false;
  now.fine[1] = now.fine[0];
  now.fine[0] = i;
  return true;
}

bool RaceCheck::ordered(Now& now, int lane, Trace before) {
  if (ordered_for_all(now, before)) return true;
  const Record& r = record(record_of(before));
  const bool same_warp =
      r.block == now.block.block->linear && r.warp == now.state.index && r.by == Actor::thread;
  const bool many = before & kTraceMany;
  if (same_warp && lane_of(before) == lane && !many) return true;
  auto knows = [&](std::uint32_t of) {
    const std::uint64_t key = knowledge_key(r, of);
    if (same_warp && r.time <= now.state.met.until(lane, of)) return true;
    return r.time <= known_until(now.block.known, key) ||
           r.time <= known_until(now.state.known, key) ||
           (now.state.lanes && r.time <= known_until(now.state.lane(lane).known, key));
  };
  // When several lanes accessed it, only one is remembered.
  return knows(static_cast<std::uint32_t>(lane_of(before)));
}

// ---- accesses ---------------------------------------------------------------------------------

ShadowPage& RaceCheck::page(Now& now, std::uint64_t address, int shift) {
  if (now.space == Space::global) return global_.page(address, shift);
  auto& page = now.home.shared[address >> kPageBits];
  if (!page) page = std::make_unique<ShadowPage>(shift);
  if (shift < page->shift()) page->refine(shift);
  return *page;
}

static int shift_for(std::uint32_t bytes) { return bytes >= 4 ? 2 : bytes == 2 ? 1 : 0; }

// Is no piece of a row in conflict? A row is what neighbouring lanes access side by side. A piece is
// fine if the same lane touched it last, or if the last access to it comes before this one. False may
// also mean that the pieces have to be looked at one by one.
bool RaceCheck::row_fine(Now& now, const Trace* traces, std::uint32_t n, int per_lane,
                         int first_lane) {
  const Trace first = traces[0];
  Trace others = 0, flags = 0, thread = 0;
  if (per_lane == 0) {
    const Trace mine = (now.trace & kTraceWarp) | static_cast<Trace>(first_lane) << 32;
    for (std::uint32_t i = 0; i < n; ++i) {
      others |= (traces[i] ^ first) & 0xffffffffu;
      flags |= traces[i];
      thread |= (traces[i] ^ (mine + (static_cast<Trace>(i) << 32))) & kTraceThread;
    }
  } else {
    for (std::uint32_t i = 0; i < n; ++i) {
      const Trace mine = (now.trace & kTraceWarp) |
                         static_cast<Trace>(first_lane + static_cast<int>(i >> per_lane)) << 32;
      others |= (traces[i] ^ first) & 0xffffffffu;
      flags |= traces[i];
      thread |= (traces[i] ^ mine) & kTraceThread;
    }
  }
  if (flags == 0) return true;
  if (flags & kTracePending) return false;
  return thread == 0 || (others == 0 && ordered_for_all(now, first));
}

// The usual case: lanes access neighbouring bytes. Pieces are compared in one loop instead of one by
// one.
void RaceCheck::touch_row(Now& now, const Addresses& a) {
  const int shift = shift_for(now.bytes);
  std::uint64_t address = a.v[0];
  int lane = 0;
  while (lane < kWarpSize) {  // page by page
    ShadowPage& p = page(now, address, shift);
    const int per_lane = std::countr_zero(now.bytes) - p.shift();  // log2 of pieces a lane
    const std::uint32_t at = static_cast<std::uint32_t>(address % kPageBytes) >> p.shift();
    const std::uint32_t pieces = (kPageBytes >> p.shift()) - at;
    const int lanes = std::min<int>(kWarpSize - lane, static_cast<int>(pieces >> per_lane));
    const std::uint32_t n = static_cast<std::uint32_t>(lanes) << per_lane;
    const bool strong = now.trace & kTraceStrong;
    const auto all_fine = [&](const Tables& t) {
      return row_fine(now, t.written, n, per_lane, lane) &&
             (now.access == Access::load || (row_fine(now, t.read, n, per_lane, lane) &&
                                             row_fine(now, t.read_before, n, per_lane, lane)));
    };
    const Tables own = (strong ? p.make_strong() : p.plain()).from(at);
    const bool fine = all_fine(p.plain().from(at)) &&
                      (!p.has_strong() || (strong && !(now.trace & kTraceVolatile)) ||
                       all_fine(p.strong().from(at)));
    if (!fine) {
      for (int i = 0; i < lanes; ++i)
        touch(now, lane + i, address + static_cast<std::uint32_t>(i) * now.bytes, false);
    } else {
      const Trace base = now.trace + (static_cast<Trace>(lane) << 32);
      if (now.access == Access::load) {
        for (std::uint32_t i = 0; i < n; ++i) {
          const Trace mine = base + (static_cast<Trace>(i >> per_lane) << 32);
          const Trace old = own.read[i];
          own.read_before[i] = ((old ^ mine) & kTraceThread) == 0 ? own.read_before[i] : old;
          own.read[i] = mine;
        }
      } else {
        for (std::uint32_t i = 0; i < n; ++i)
          own.written[i] = base + (static_cast<Trace>(i >> per_lane) << 32);
      }
    }
    lane += lanes;
    address += static_cast<std::uint64_t>(lanes) * now.bytes;
  }
}

// Is it mbarrier.inval? It conflicts with no earlier operation on the object. The destructor of
// cuda::pipeline executes it in one lane after a match has counted the lanes that are done, and a match
// orders no memory.
static bool invalidates(const Instr& instr, Access access) {
  return instr.op_class == OpClass::barrier && access == Access::store && !instr.a.valid();
}

// One lane's bytes. `many`: all lanes of the warp access the same.
void RaceCheck::touch(Now& now, int lane, std::uint64_t address, bool many) {
  ShadowPage& p = page(now, address, shift_for(now.bytes));
  const std::uint32_t at = static_cast<std::uint32_t>(address % kPageBytes) >> p.shift();
  const std::uint32_t n = std::max(1u, now.bytes >> p.shift());
  const Trace mine = now.trace | (many ? kTraceMany : 0) |
                     (now.by == Actor::product ? 0 : static_cast<Trace>(lane) << 32);
  auto look = [&](Trace before, bool wrote) {
    if (before == 0) return;
    if ((before & kTraceStrong) && (mine & kTraceStrong) && !(before & mine & kTraceVolatile))
      return;
    if (((before ^ mine) & kTraceThread) == 0 && !(before & kTracePending)) return;
    const std::uint32_t i = record_of(before);
    if (!(before & kTracePending) && (i == now.fine[0] || i == now.fine[1])) return;
    suspect(now, lane, before, wrote, address);
  };
  const auto look_at = [&](const Tables& t, std::uint32_t i) {
    look(t.written[i], true);
    if (now.access == Access::load) return;
    look(t.read[i], false);
    look(t.read_before[i], false);
  };
  const bool strong = mine & kTraceStrong;
  const Tables own = (strong ? p.make_strong() : p.plain()).from(at), plain = p.plain().from(at);
  const bool others =
      p.has_strong() && (!strong || (mine & kTraceVolatile)) && !invalidates(now.instr, now.access);
  for (std::uint32_t i = 0; i < n; ++i) {
    look_at(plain, i);
    if (others) look_at(p.strong().from(at), i);
    if (now.access == Access::load) {
      const Trace old = own.read[i];
      if (record_of(old) == record_of(mine)) {
        own.read[i] = old | (((old ^ mine) & kTraceLane) | (mine & kTraceMany) ? kTraceMany : 0);
      } else {
        if ((old ^ mine) & kTraceThread) own.read_before[i] = old;
        own.read[i] = mine;
      }
    } else {
      const Trace old = own.written[i];
      own.written[i] = record_of(old) == record_of(mine) && ((old ^ mine) & kTraceLane)
                           ? mine | kTraceMany
                           : mine;
    }
  }
}

// The same as touch() for plain loads of one piece each at scattered addresses, only quicker. Such are
// loads of lanes that each walk along a row of their own.
void RaceCheck::touch_loads(Now& now, std::uint32_t mask, const Addresses& a) {
  const int shift = shift_for(now.bytes);
  std::uint64_t number = ~0ull;
  Tables t;
  bool whole = false;
  each_lane(mask, [&](int lane) {
    const std::uint64_t address = a.v[lane];
    if (address >> kPageBits != number) {
      number = address >> kPageBits;
      ShadowPage& p = page(now, address, shift);
      t = p.plain();
      whole = p.shift() == shift && !p.has_strong();
    }
    const std::uint32_t at = static_cast<std::uint32_t>(address % kPageBytes) >> shift;
    const Trace mine = now.trace | static_cast<Trace>(lane) << 32;
    const Trace w = whole ? t.written[at] : 0;
    const bool fine = w == 0 || (!(w & kTracePending) &&
                                 (record_of(w) == now.fine[0] || ((w ^ mine) & kTraceThread) == 0));
    const Trace old = whole ? t.read[at] : 0;
    if (!whole || !fine || record_of(old) == record_of(mine))
      return touch(now, lane, address, false);
    if ((old ^ mine) & kTraceThread) t.read_before[at] = old;
    t.read[at] = mine;
  });
}

// The bytes that a lane of `st` is about to write. False for other instructions.
static bool value_to_store(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes,
                           std::byte* out) {
  if (instr.async || std::string_view(forms()[instr.form].opcode) != "st" || bytes > 32)
    return false;
  const std::uint32_t each = bytes / instr.elements;
  const std::uint32_t stride = std::max<std::uint32_t>(2, instr.a_bits / 8u);
  if (each > stride) return false;
  for (std::uint32_t k = 0; k < instr.elements; ++k) {
    const Slot slot = instr.elements == 1 ? instr.a : Slot{instr.list[k]};
    std::memcpy(out + k * each,
                warp.lanes<const std::byte>(slot) + static_cast<std::uint32_t>(lane) * stride,
                each);
  }
  return true;
}

// Unordered accesses that are no race: both are strong (atomic, volatile or relaxed), or the later one
// overwrites what a shuffle has shown to be read, or it writes the value that is there already.
bool RaceCheck::harmless(Now& now, int lane, Trace before, bool before_wrote) {
  const Trace mine = now.trace;
  if ((before & kTraceStrong) && (mine & kTraceStrong)) {
    // Volatile does not make lanes of a warp wait for each other: the old warp-synchronous idiom.
    const Record& r = record(record_of(before));
    const bool same_warp = r.block == now.block.block->linear && r.warp == now.state.index;
    const bool idiom = same_warp && now.space == Space::shared && (before & kTraceVolatile) &&
                       (mine & kTraceVolatile);
    if (!idiom) return true;
  }
  const Record& r = record(record_of(before));
  if (!before_wrote && r.by == Actor::thread && r.block == now.block.block->linear &&
      r.warp == now.state.index &&
      r.time <= now.state.read.until(lane, static_cast<std::uint32_t>(lane_of(before))))
    return true;
  // Writing what is there already (or what the other lane writes) does no harm.
  if (now.access == Access::store && before_wrote && now.places) {
    std::byte value[32], other[32];
    if (!value_to_store(now.warp, now.instr, lane, now.bytes, value)) return false;
    if (record_of(before) == record_of(mine))
      return value_to_store(now.warp, now.instr, lane_of(before), now.bytes, other) &&
             std::memcmp(value, other, now.bytes) == 0;
    return std::memcmp(value, now.places->at(*now.addresses, lane), now.bytes) == 0;
  }
  return false;
}

void RaceCheck::suspect(Now& now, int lane, Trace before, bool before_wrote,
                        std::uint64_t address) {
  const bool pending = before & kTracePending;
  if (record_of(before) < now.oldest || forgotten(record_of(before))) return;
  if (!pending && (ordered(now, lane, before) || harmless(now, lane, before, before_wrote))) return;
  const Record earlier = record(record_of(before));
  const Instr& instr = now.instr;
  Conflict conflict{.launch = *launch_,
                    .earlier = earlier,
                    .earlier_lane = lane_of(before),
                    .earlier_many = (before & kTraceMany) != 0,
                    .earlier_strong = (before & kTraceStrong) != 0,
                    .later = {now.state.now, now.block.block->linear, now.state.index, now.bytes,
                              &instr, now.warp.frame->function, now.access},
                    .later_lane = lane,
                    .later_strong = (now.trace & kTraceStrong) != 0,
                    .same_instruction = record_of(before) == record_of(now.trace),
                    .pending = pending,
                    .space = now.space,
                    .address = address,
                    .home = now.home.block->linear};
  conflict.shuffled =
      conflict.same_warp() && earlier.by == Actor::thread &&
      earlier.time <= now.state.read.until(lane, static_cast<std::uint32_t>(lane_of(before)));
  const auto [known, fresh] = known_.try_emplace(place_of(conflict));
  if (fresh)
    known->second = findings_.add(key_of(conflict), [&] { return words(conflict); });
  else
    findings_.again(known->second);
}

void RaceCheck::access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                       std::uint32_t bytes, Access access, Space space, const Places& places) {
  // copy_issue and source_read tell of copies, which name global memory when they read shared memory
  if (space == Space::shared && (instr.async || instr.space == Space::global)) return;
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  BlockState& home = places.owner ? *blocks_.at(places.owner) : block;
  const bool atomic = access == Access::atomic;
  Now now{warp,  instr, &places, &a,    block, home,
          state, bytes, access,  space, 0,     space == Space::shared ? home.first_record : 1};
  now.trace = state.key | record_for(state, warp, instr, bytes, access);
  if (places.owner && places.owner->live_threads == 0) {
    const int lane = std::countr_zero(mask);
    const Record arrival = record(record_for(state, warp, instr, bytes, access));
    findings_.add(where(*arrival.instr, *arrival.function) + "|end", [&] {
      return words_for_end(*launch_, arrival, {0, lane, a.v[lane]}, places.owner->linear);
    });
    return;
  }
  home.mbarriers |= instr.op_class == OpClass::barrier;
  // (A relaxed arrival at an mbarrier tells nothing, but whoever waits for it knows that it is over.)
  if (places.owner && !(instr.op_class == OpClass::barrier && (instr.order & kOrderRelaxed))) {
    const int lane = std::countr_zero(mask);
    home.visits[state.key] = {record_of(now.trace), lane, a.v[lane]};
  }
  if (atomic)
    now.trace |= kTraceAtomic;
  else if (instr.order & (kOrderRelaxed | kOrderAcquire | kOrderRelease))
    now.trace |= kTraceRelaxed;
  else if (instr.order & kOrderVolatile)
    now.trace |= kTraceVolatile;
  if (a.strided && a.stride == static_cast<std::int64_t>(bytes)) {
    touch_row(now, a);
  } else if (a.strided && a.stride == 0 && access == Access::load) {
    touch(now, 0, a.v[0], true);
  } else if (access == Access::load && bytes <= 4 && !(now.trace & kTraceStrong)) {
    touch_loads(now, mask, a);
  } else {
    each_lane(mask, [&](int lane) { touch(now, lane, a.v[lane], false); });
  }
  if (now.trace & kTraceStrong)
    exchange(now, mask, a);
  else if (access == Access::store && instr.op_class == OpClass::barrier && !home.flags.empty())
    each_lane(mask, [&](int lane) { home.flags.erase(a.v[lane]); });  // mbarrier.init, .inval
}

// A piece that somebody reads for the thread, from when the thread asks for that until a wait. Whoever writes
// there has to know of such a wait, so the reading's end needs no look. `number`: the product's, the copy's.
RaceCheck::Now RaceCheck::aside(Warp& warp, const Instr& instr, Actor by, Space space, Time number,
                                std::uint32_t bytes) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  const std::uint32_t reader =
      by == Actor::product ? warp.index / kWarpsOfGroup * kWarpsOfGroup : warp.index;
  const Function* function = warp.frame->function;
  const Record what{number,   warp.block->linear, warp.index, bytes, &function->code[instr.pc],
                    function, Access::load,       by};
  return {.warp = warp,
          .instr = instr,
          .places = nullptr,
          .addresses = nullptr,
          .block = block,
          .home = block,
          .state = state,
          .bytes = kAsidePiece,
          .access = Access::load,
          .space = space,
          .trace = block.warps[reader].key | kTraceAside | record_for(state, what),
          .oldest = space == Space::shared ? block.first_record : 1,
          .by = by};
}

void RaceCheck::operand_read(Warp& warp, const Instr& instr, std::span<const std::uint32_t> pieces,
                             Reading reading, std::uint64_t product) {
  if (reading == Reading::ends) return;
  Now now = aside(warp, instr, Actor::product, Space::shared, product, kAsidePiece);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    touch(now, static_cast<int>(i % kWarpSize), pieces[i], false);
}

// ---- the end of a block -----------------------------------------------------------------------

void RaceCheck::lanes_exit(Warp& warp, const Instr&, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  if (!block.visits.empty()) {
    WarpState& state = block.warps[warp.index];
    block.ended = join(block.ended, known_of_warp(block, state));
    if (state.lanes)
      each_lane(mask, [&](int i) { block.ended = join(block.ended, state.lane(i).known); });
  }
  if (warp.block->live_threads == static_cast<std::uint32_t>(std::popcount(mask))) end(block);
}

// The block's last thread ends, and with it the shared memory that others may still be using.
void RaceCheck::end(BlockState& block) {
  const std::uint64_t home = block.block->linear;
  for (const auto& [key, visit] : block.visits) {
    if (forgotten(visit.record)) continue;
    const Record r = record(visit.record);
    const auto lane = static_cast<std::uint32_t>(visit.lane);
    if (r.time <= known_until(block.ended, thread_key(r.block, r.warp, lane))) continue;
    findings_.add(where(*r.instr, *r.function) + "|end",
                  [&] { return words_for_end(*launch_, r, visit, home); });
  }
  block.block->async_arrivals.each([&](const AsyncArrival& copy) {
    if (!copy.bytes) return;
    findings_.add(where(*copy.instr, *copy.frame->function) + "|flight",
                  [&] { return words_for_end(*launch_, copy, home); });
  });
}

// ---- asynchronous copies ----------------------------------------------------------------------

void RaceCheck::source_read(Warp& warp, const Instr& instr, int lane, std::uint32_t offset,
                            std::uint32_t bytes, std::uint64_t copy) {
  Now now = aside(warp, instr, Actor::sender, Space::shared, copy, bytes);
  for (std::uint32_t at = 0; at < bytes; at += kAsidePiece) touch(now, lane, offset + at, false);
}

// What a copy into shared memory reads of global memory, from where it is asked for until a wait at its mbarrier.
void RaceCheck::bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                            std::uint32_t bytes, Access access, std::byte* host) {
  if (access != Access::load)
    return Observer::bulk_access(warp, instr, lane, address, bytes, access, host);
  Now now =
      aside(warp, instr, Actor::fetcher, Space::global, warp.copies_of(lane).bulk_issued, bytes);
  for (const std::uint64_t end = address + bytes; address < end; address += now.bytes) {
    now.bytes = bulk_piece(address, end);
    touch(now, lane, address, false);
  }
}

// Who waits for the phase knows that the copy is over.
void RaceCheck::bulk_land(Warp& warp, const Instr&, int lane, const Block& to,
                          std::uint32_t mbarrier, std::uint32_t, std::uint64_t copy) {
  const std::uint64_t key =
      engine_key(Actor::fetcher, warp.block->linear, warp.index, static_cast<std::uint32_t>(lane));
  Knowledge& told = blocks_.at(const_cast<Block*>(&to))->flags[mbarrier].arriving;
  told = learn(told, root_, key, kThreadLevel, copy);
}

// The mbarrier tells those who wait for it, whoever they are: nobody needs to know more.
void RaceCheck::source_landed(Warp& warp, int lane, std::uint32_t offset, std::uint32_t bytes,
                              std::uint64_t copy) {
  BlockState& block = state_of(*warp.block);
  const Trace reader =
      (block.warps[warp.index].key & kTraceWarp) | kTraceAside | static_cast<Trace>(lane) << 32;
  const auto forget = [&](Trace& t) {
    if ((t & (kTraceWarp | kTraceAside | kTraceLane)) != reader || forgotten(record_of(t))) return;
    const Record& r = record(record_of(t));
    if (r.by == Actor::sender && r.time == copy) t = 0;
  };
  for (std::uint32_t at = offset; at < offset + bytes; ++at) {
    auto& page = block.shared[at >> kPageBits];
    if (!page) continue;
    const Tables t = page->plain().from(at % kPageBytes >> page->shift());
    forget(*t.read);
    forget(*t.read_before);
    at |= (1u << page->shift()) - 1;
  }
}

void RaceCheck::source_given_up(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes) {
  const Function& function = *warp.frame->function;
  findings_.add(where(instr, function) + "|source",
                [&] { return words_for_source(warp, function.code[instr.pc], lane, bytes); });
}

void RaceCheck::copy_issue(Warp& warp, const Instr& instr, int lane, Block& to,
                           std::uint32_t offset, std::uint32_t bytes) {
  BlockState& block = state_of(*warp.block);
  BlockState& home = *blocks_.at(&to);
  WarpState& state = block.warps[warp.index];
  const std::uint32_t each = std::min(bytes, 16u);  // bulk copies come in one piece
  Now now{warp,  instr, nullptr,       nullptr,       block, home,
          state, each,  Access::store, Space::shared, 0,     home.first_record};
  now.trace = state.key | record_for(state, warp, instr, bytes, Access::store);
  for (std::uint32_t at = offset; at < offset + bytes; at += each) {
    touch(now, lane, at, false);
    ShadowPage& p = page(now, at, 2);
    for (std::uint32_t i = 0; i < each >> p.shift(); ++i)
      p.written()[(at % kPageBytes >> p.shift()) + i] |= kTracePending;
  }
}

void RaceCheck::copy_land(Warp& warp, int lane, Block& to, std::uint32_t offset,
                          std::uint32_t bytes) {
  BlockState& home = *blocks_.at(&to);
  WarpState& state = state_of(*warp.block).warps[warp.index];
  const std::uint32_t each = std::min(bytes, 16u);
  for (std::uint32_t at = offset; at < offset + bytes; at += each) {
    auto& page = home.shared[at >> kPageBits];
    if (!page) continue;
    Trace* written = page->written() + (at % kPageBytes >> page->shift());
    for (std::uint32_t i = 0; i < each >> page->shift(); ++i) {
      Trace& t = written[i];
      if (!(t & kTracePending) || (t & kTraceWarp) != (state.key & kTraceWarp) ||
          lane_of(t) != lane)
        continue;
      const std::uint32_t n = record_of(t);
      if (n < home.first_record || forgotten(n) || home.mbarriers) {
        t = 0;  // an mbarrier tells those who wait for it, whoever they are
        continue;
      }
      // Written now, so far as others are concerned: what came between does not order it.
      Record landed = record(n);
      landed.time = state.now;
      t = (t & ~(kTracePending | 0xffffffffull)) | record_for(state, landed);
    }
  }
}

}  // namespace vgpu::race

namespace vgpu {

std::unique_ptr<Observer> make_race_check() { return std::make_unique<race::RaceCheck>(); }

}  // namespace vgpu
