#include "race_words.h"

namespace vgpu::race {
namespace {

std::string verb(Access access) {
  return access == Access::load ? "read" : access == Access::store ? "write" : "atomic access";
}

std::string place(const Record& access) { return where(*access.instr, *access.function); }

std::string thread(const Launch& launch, const Record& access, int lane) {
  return "thread " +
         thread_text(launch, access.warp * kWarpSize + static_cast<std::uint32_t>(lane));
}

std::string memory(const Conflict& c) {
  std::string text = c.space == Space::shared
                         ? "shared memory at offset " + std::to_string(c.address)
                         : "global memory " + global_text(c.launch, c.address);
  if (c.space == Space::shared && (c.home != c.later.block || !c.same_block()))
    text += " of block " + block_text(c.launch, c.home);
  return text;
}

const char* what_is_missing(const Conflict& c) {
  if (c.pending) return " before the copy was waited for";
  const bool own = c.same_warp() && c.later_lane == c.earlier_lane;
  if (c.earlier.by == Actor::fetcher)
    return own ? " without a wait at the mbarrier of the copy between"
               : " without a wait at the mbarrier of the copy (and a barrier behind another "
                 "thread's wait) between";
  if (c.earlier.by == Actor::sender)
    return c.earlier.instr->from_shared
               ? " without a wait at the mbarrier of the copy and a barrier between"
           : own ? " without a cp.async.bulk.wait_group.read between"
                 : " without a cp.async.bulk.wait_group.read by the thread that asked for the copy "
                   "and a barrier between";
  if (c.earlier.by == Actor::product)
    return c.same_warp() ? " without a wgmma.wait_group for the product between"
                         : " without a wgmma.wait_group for the product and a barrier between";
  if (c.same_warp()) {
    if (c.same_instruction) return " in the same instruction";
    return c.shuffled ? " without a __syncwarp between (a shuffle or vote is none)"
                      : " without a __syncwarp between";
  }
  if (c.same_block()) return " without a barrier between";
  return c.space == Space::shared
             ? " without a barrier of the cluster or a release and an acquire between"
             : " without a barrier of the grid or a release and an acquire between";
}

// Advice where one of the two is plain and the other atomic, volatile or relaxed.
const char* advice(const Conflict& c) {
  if (c.pending || c.earlier.instr->op_class == OpClass::barrier ||
      c.later.instr->op_class == OpClass::barrier || c.earlier_strong == c.later_strong)
    return "";
  const Access plain = c.earlier_strong ? c.later.access : c.earlier.access;
  if (plain != Access::load)
    return "; a plain write beside atomic or volatile accesses is a data race: put a barrier "
           "between, "
           "or write with volatile, cuda::atomic_ref or atomicExch";
  if (c.same_block())
    return "; a plain read beside atomic or volatile accesses is a data race: put a barrier "
           "between "
           "(a fence waits for nobody), or where any of the values will do, as in front of a loop "
           "of "
           "atomicCAS, read with volatile or cuda::atomic_ref";
  return "; to read what all blocks have added, let them meet before: this_grid().sync() of "
         "cooperative groups, or a second launch (a fence waits for nobody); where any of the "
         "values "
         "will do, as in front of a loop of atomicCAS, read with volatile or cuda::atomic_ref";
}

}  // namespace

namespace {

bool by_engine(const Conflict& c) {
  return c.earlier.by == Actor::sender || c.earlier.by == Actor::fetcher;
}
// To the copy engine all threads are others.
bool one_warp(const Conflict& c) { return c.same_warp() && !by_engine(c); }

}  // namespace

std::string key_of(const Conflict& c) {
  return place(c.earlier) + "|" + place(c.later) + "|" + verb(c.earlier.access) +
         verb(c.later.access) + (c.pending ? "p" : "") + (c.space == Space::shared ? "s" : "g") +
         (one_warp(c)      ? "w"
          : c.same_block() ? "b"
                           : "");
}

Place place_of(const Conflict& c) {
  const auto kind = (static_cast<unsigned>(c.earlier.access) << 8) |
                    (static_cast<unsigned>(c.later.access) << 4) | (c.pending ? 8u : 0u) |
                    (c.space == Space::shared ? 4u : 0u) |
                    (one_warp(c)      ? 2u
                     : c.same_block() ? 1u
                                      : 0u);
  return {c.earlier.instr, c.earlier.function, c.later.instr, c.later.function, kind};
}

std::string words(const Conflict& c) {
  const std::string here = place(c.later), there = place(c.earlier);
  const std::string in = block_text(c.launch, c.earlier.block);
  std::string text = there + ": error: race: ";
  text += c.pending ? "asynchronous copy" : verb(c.earlier.access);
  text += " of " + bytes_text(c.earlier.bytes);
  text += (c.earlier.access == Access::load ? " from " : " to ") + memory(c);
  text += by_engine(c) ? " by the bulk copy of " : " by ";
  text += thread(c.launch, c.earlier, c.earlier_lane);
  if (c.earlier_many) text += " and others of its warp";
  if (!c.same_block()) text += " of block " + in;
  text += " and " + verb(c.later.access) + " by " + thread(c.launch, c.later, c.later_lane);
  if (!c.same_block()) text += " of block " + block_text(c.launch, c.later.block);
  text += here == there ? " at the same line" : " at " + here;
  text += what_is_missing(c);
  text += c.same_block() ? ", in block " + in + " of " : ", in ";
  return text + c.launch.request.function->display + advice(c);
}

std::string words_for_end(const Launch& launch, const Record& access, const Visit& visit,
                          std::uint64_t home) {
  return place(access) + ": error: race: " + verb(access.access) + " of " +
         bytes_text(access.bytes) + " at offset " + std::to_string(visit.address) +
         " of the shared memory of block " + block_text(launch, home) + " by " +
         thread(launch, access, visit.lane) + " of block " + block_text(launch, access.block) +
         ", and the end of that block, without a barrier of the cluster or a release and an "
         "acquire between, in " +
         launch.request.function->display;
}

std::string words_for_source(const Warp& warp, const Instr& instr, int lane, std::uint32_t bytes) {
  return describe(warp, instr, lane,
                  "race: bulk copy of " + bytes_text(bytes) +
                      " out of the block's shared memory, and the end of the thread that asked for "
                      "it, without a cp.async.bulk.wait_group.read between: the block may end and "
                      "its memory be another block's before it is read; asked for");
}

std::string words_for_end(const Launch& launch, const AsyncArrival& copy, std::uint64_t home) {
  const std::uint64_t by = copy.warp->block->linear;
  std::string text = where(*copy.instr, *copy.frame->function) +
                     ": error: race: asynchronous copy of " + bytes_text(copy.bytes) +
                     " to the shared memory of block " + block_text(launch, home);
  if (by != home) text += " by block " + block_text(launch, by);
  return text + ", and the end of that block before it waited for the copy, in " +
         launch.request.function->display;
}

}  // namespace vgpu::race
