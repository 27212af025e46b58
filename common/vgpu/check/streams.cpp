#include "streams.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>

#include "../core/block.h"

namespace vgpu {
namespace {

constexpr std::string_view kHostFree = "cudaFree";
constexpr unsigned kRead = 1, kWrite = 2, kAtomic = 4;
unsigned bit_of(Touch touch) { return 1u << static_cast<unsigned>(touch); }

bool host_sees(const Allocation& a) {
  return a.kind == MemoryKind::pinned || a.kind == MemoryKind::managed;
}

std::string verb(Touch touch) {
  return touch == Touch::read ? "read" : touch == Touch::write ? "write" : "atomic access";
}

}  // namespace

void StreamCheck::begin(Timeline timeline, const Clock& before, const Clock& host, std::string what,
                        std::string where) {
  ++number_;
  Operation& operation = operations_[number_];
  operation.timeline = timeline;
  operation.what = std::move(what);
  operation.where = std::move(where);
  current_ = &operation;
  before_ = before;
  host_ = host;
  active_ = true;
  next_.clear();
  memo_.fill({});
}

Clock StreamCheck::over() const {
  Clock after = dependence_.programmatic && !dependence_.waited ? early_ : before_;
  after.learn(current_->timeline, number_);
  return after;
}

Clock StreamCheck::end() {
  Clock after = before_;
  after.learn(current_->timeline, number_);
  if (host_guard && tells_host_)
    host_guard->forget(after);
  else if (host_guard)
    host_guard->add(current_->timeline, number_, current_->what + " " + current_->where,
                    host_touches_);
  if (prints_) last_print_ = {current_->timeline, number_, current_->what};
  host_touches_.clear();
  tells_host_ = prints_ = false;
  active_ = false;
  current_ = nullptr;
  touches_.clear();
  dependence_ = {};
  hint_.clear();
  if (states_.size() > clean_at_ || operations_.size() > clean_at_) clean();
  return after;
}

StreamCheck::History& StreamCheck::history(const Allocation& allocation) {
  History& h = histories_[allocation.id];
  // All of it is over for everybody.
  if (h.last <= host_.floor()) h.pages.clear();
  if (h.pages.empty()) h.pages.resize((allocation.size >> kTouchPageBits) + 1);
  h.last = number_;
  allocation_ = &allocation;
  return h;
}

// ---- states -----------------------------------------------------------------------------------

StreamCheck::StateId StreamCheck::intern(State state) {
  const auto [it, fresh] = ids_.try_emplace(state, static_cast<StateId>(states_.size()));
  if (fresh) states_.push_back(std::move(state));
  return it->second;
}

bool StreamCheck::over(OperationNumber before) const {
  if (before == 0 || before == number_ || before <= before_.floor()) return true;
  const auto it = operations_.find(before);
  return it == operations_.end() || before_.knows(it->second.timeline, before);
}

// The state of bytes of state `id` once the operation has touched them. Reports an access that is
// not ordered after the earlier ones. An operation looks at each state once, however many bytes
// have it.
StreamCheck::StateId StreamCheck::after(StateId id, Touched touched, std::uint64_t offset) {
  Memo& memo = memo_[touched];
  if (memo.from == id) return memo.to;
  const auto [it, fresh] = next_.try_emplace(std::uint64_t{id} << 3 | touched, 0);
  if (fresh) {
    State state = states_[id];
    const auto conflict = [&](const std::vector<OperationNumber>& with, Touch was, Touch is) {
      for (const OperationNumber n : with)
        if (!over(n)) compare(n, was, is, offset);
    };
    const Touch first = touched & kRead    ? Touch::read
                        : touched & kWrite ? Touch::write
                                           : Touch::atomic;
    if (!over(state.write)) compare(state.write, Touch::write, first, offset);
    if (touched & kWrite) conflict(state.reads, Touch::read, Touch::write);
    if (touched & kWrite) conflict(state.atomics, Touch::atomic, Touch::write);
    if (touched & kRead) conflict(state.atomics, Touch::atomic, Touch::read);
    if (touched & kAtomic) conflict(state.reads, Touch::read, Touch::atomic);
    const auto add = [&](std::vector<OperationNumber>& to) {
      std::erase_if(to, [&](OperationNumber n) { return over(n); });
      to.push_back(number_);
    };
    if (touched & kWrite) {
      state = {number_, {}, {}};
    } else {
      if (touched & kRead) add(state.reads);
      if (touched & kAtomic) add(state.atomics);
    }
    it->second = intern(std::move(state));
  }
  memo = {id, it->second};
  return it->second;
}

// Drops what every later operation comes after, and states that no bytes are in.
void StreamCheck::clean() {
  std::vector<StateId> fresh(states_.size(), ~0u);
  std::vector<State> old = std::move(states_);
  states_.assign(1, {});
  ids_.clear();
  const auto gone = [&](OperationNumber n) {
    const auto it = operations_.find(n);
    return it == operations_.end() || host_.knows(it->second.timeline, n);
  };
  std::unordered_set<OperationNumber> used;
  const auto renew = [&](StateId& id) {
    if (id == 0) return;
    if (fresh[id] == ~0u) {
      State state = old[id];
      if (gone(state.write)) state.write = 0;
      std::erase_if(state.reads, gone);
      std::erase_if(state.atomics, gone);
      if (state.write) used.insert(state.write);
      used.insert(state.reads.begin(), state.reads.end());
      used.insert(state.atomics.begin(), state.atomics.end());
      fresh[id] = state == State{} ? 0 : intern(std::move(state));
    }
    id = fresh[id];
  };
  for (auto& [allocation, history] : histories_)
    for (Page& page : history.pages) {
      renew(page.state);
      for (Run& run : page.runs) renew(run.state);
      // Neighbours that have become the same.
      std::size_t kept = 0;
      for (const Run& run : page.runs) {
        if (kept > 0 && page.runs[kept - 1].state == run.state)
          page.runs[kept - 1].end = run.end;
        else
          page.runs[kept++] = run;
      }
      page.runs.resize(kept);
      if (kept == 1) {
        page.state = page.runs[0].state;
        page.runs.clear();
      }
    }
  std::erase_if(operations_, [&](const auto& entry) { return !used.contains(entry.first); });
  clean_at_ = std::max<std::size_t>(4096, 2 * std::max(states_.size(), operations_.size()));
}

std::string StreamCheck::prints_unheard(const Clock& host) const {
  const bool heard = !last_print_.number || host.knows(last_print_.timeline, last_print_.number);
  return heard ? "" : last_print_.name;
}

// ---- touches ----------------------------------------------------------------------------------

void StreamCheck::touch(const std::shared_ptr<Allocation>& allocation, std::uint64_t offset,
                        std::uint64_t bytes, Touch touch) {
  if (!active_ || bytes == 0 || !allocation) return;
  if (host_guard && host_sees(*allocation))
    host_touches_.push_back({allocation, offset, bytes, touch != Touch::read});
  History& h = history(*allocation);
  const std::uint64_t end = offset + bytes;
  const unsigned touched = bit_of(touch);
  std::vector<Run> runs;
  while (offset < end) {
    Page& page = h.pages[offset >> kTouchPageBits];
    const std::uint64_t base = offset & ~(kTouchPageBytes - 1);
    const std::uint64_t stop = std::min(end, base + kTouchPageBytes);
    if (page.runs.empty() && offset == base && stop == base + kTouchPageBytes) {
      page.state = after(page.state, touched, offset);
      offset = stop;
      continue;
    }
    runs.clear();
    const auto add = [&](std::uint64_t until, StateId state) {
      if (!runs.empty() && runs.back().state == state)
        runs.back().end = static_cast<std::uint16_t>(until);
      else
        runs.push_back({static_cast<std::uint16_t>(until), state});
    };
    const Run whole{static_cast<std::uint16_t>(kTouchPageBytes), page.state};
    const std::span<const Run> was =
        page.runs.empty() ? std::span(&whole, 1) : std::span<const Run>(page.runs);
    const std::uint64_t from = offset - base, to = stop - base;
    std::uint64_t at = 0;
    for (const Run& run : was) {
      if (at < from) add(std::min<std::uint64_t>(from, run.end), run.state);
      if (at < to && run.end > from)
        add(std::min<std::uint64_t>(to, run.end),
            after(run.state, touched, base + std::max(at, from)));
      if (run.end > to) add(run.end, run.state);
      at = run.end;
    }
    if (runs.size() == 1) {
      page.state = runs[0].state;
      page.runs.clear();
    } else {
      page.runs = runs;
    }
    offset = stop;
  }
}

void StreamCheck::take(std::shared_ptr<const Module> module) {
  if (!active_) return;
  current_->module = std::move(module);
  // Who knows that it is over need not know this of what is in front of it.
  if (dependence_.programmatic && !dependence_.waited) current_->timeline = new_timeline();
  if (!dependence_.early.empty()) {
    const auto other_order = [&] {
      std::swap(before_, early_);
      next_.clear();
      memo_.fill({});
      early_part_ = !early_part_;
    };
    other_order();
    take(dependence_.early);
    other_order();
  }
  take(touches_);
}

// Pages of which the launch has touched all bytes of the allocation.
void StreamCheck::take_host_visible(const TouchedAllocation& touched) {
  for (std::size_t p = 0; p < touched.pages.size(); ++p) {
    if (!touched.pages[p]) continue;
    const auto& [read, write, atomic] = touched.pages[p]->bits;
    const std::uint64_t base = p << kTouchPageBits,
                        bytes = std::min(kTouchPageBytes, touched.allocation->size - base);
    bool written = true, used = true;
    for (std::uint64_t at = 0; at < bytes; at += 64) {
      const std::uint64_t all = bytes - at >= 64 ? ~0ull : (1ull << (bytes - at)) - 1;
      written &= (write[at / 64] & all) == all;
      used &= ((write[at / 64] | read[at / 64]) & all) == all;
    }
    for (const std::uint64_t bits : atomic) tells_host_ |= bits != 0;
    if (used) host_touches_.push_back({touched.allocation, base, bytes, written});
  }
}

void StreamCheck::take(Touches& touches) {
  std::vector<Run> runs;
  for (auto& [id, touched] : touches) {
    if (host_guard && host_sees(*touched.allocation)) take_host_visible(touched);
    auto& sites = current_->sites[id];
    for (const auto& [key, site] : touched.sites)
      sites.push_back({site.function, site.pc, site.touch, site.low, site.high});
    History& h = history(*touched.allocation);
    for (std::size_t p = 0; p < touched.pages.size(); ++p) {
      if (!touched.pages[p]) continue;
      const auto& [read, write, atomic] = touched.pages[p]->bits;
      const std::uint64_t base = p << kTouchPageBits;
      Page& page = h.pages[p];
      runs.clear();
      const auto add = [&](std::uint64_t until, StateId state) {
        if (!runs.empty() && runs.back().state == state)
          runs.back().end = static_cast<std::uint16_t>(until);
        else
          runs.push_back({static_cast<std::uint16_t>(until), state});
      };
      const Run whole{static_cast<std::uint16_t>(kTouchPageBytes), page.state};
      const Run* run = page.runs.empty() ? &whole : page.runs.data();
      std::uint64_t at = 0;
      while (at < kTouchPageBytes) {
        // The stretch of bytes from here on that were touched in the same way and are in one state.
        const std::size_t word = at / 64;
        const unsigned shift = at % 64;
        const bool r = read[word] >> shift & 1, w = write[word] >> shift & 1,
                   a = atomic[word] >> shift & 1;
        const std::uint64_t changes =
            ((read[word] ^ (r ? ~0ull : 0)) | (write[word] ^ (w ? ~0ull : 0)) |
             (atomic[word] ^ (a ? ~0ull : 0))) >>
            shift;
        std::uint64_t stop =
            changes ? at + static_cast<unsigned>(std::countr_zero(changes)) : (word + 1) * 64;
        stop = std::min<std::uint64_t>(stop, run->end);
        const unsigned touch = (r ? kRead : 0) | (w ? kWrite : 0) | (a ? kAtomic : 0);
        add(stop, touch ? after(run->state, touch, base + at) : run->state);
        at = stop;
        if (at == run->end && at < kTouchPageBytes) ++run;
      }
      if (runs.size() == 1) {
        page.state = runs[0].state;
        page.runs.clear();
      } else {
        page.runs = runs;
      }
    }
  }
  touches.clear();
}

// ---- findings ---------------------------------------------------------------------------------

// Source line of the instruction that touched the byte; empty when none or several may have.
std::string StreamCheck::place_of(const Operation& operation, Touch touch,
                                  std::uint64_t offset) const {
  const auto it = operation.sites.find(allocation_->id);
  if (it == operation.sites.end()) return "";
  std::string place;
  for (const Site& site : it->second) {
    if (site.touch != touch || offset < site.low || offset >= site.high) continue;
    const std::string here = vgpu::where(site.function->code[site.pc], *site.function);
    if (!place.empty() && place != here) return "";
    place = here;
  }
  return place;
}

void StreamCheck::compare(OperationNumber before, Touch was, Touch is, std::uint64_t offset) {
  const Operation& earlier = operations_.at(before);
  const Operation& later = *current_;
  if (later.what == kHostFree && earlier.what == "cudaMallocAsync") return;  // nobody has used it
  const std::string there = place_of(earlier, was, offset), here = place_of(later, is, offset);
  const std::string first = verb(was) + " by " + earlier.what,
                    second = verb(is) + " by " + later.what;
  if (!told_.insert(there + first + "|" + here + second).second) return;
  std::string text = there.empty() ? "" : there + ": ";
  text += "error: race between streams: " + first + " " + earlier.where + " and " + second + " " +
          later.where;
  if (!here.empty()) text += here == there ? " at the same line" : " at " + here;
  text += ", byte " + std::to_string(offset) + " of ";
  text += allocation_->name.empty()
              ? "an allocation of " + std::to_string(allocation_->size) + " bytes"
              : "'" + allocation_->name + "' (" + std::to_string(allocation_->size) + " bytes)";
  text += early_part_
              ? ", before a griddepcontrol.wait (cudaGridDependencySynchronize()): the launch "
                "is a programmatic dependent one, which may begin before the kernel in front "
                "of it has ended"
              : ", and nothing orders them (cudaStreamWaitEvent, or a synchronization between)";
  text += hint_;
  findings_.push_back(std::move(text));
}

}  // namespace vgpu
