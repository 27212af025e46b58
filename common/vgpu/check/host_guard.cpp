#include "host_guard.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "fault_handler.h"

namespace vgpu {
namespace {

// Protecting a page and lifting the protection takes up to a microsecond for each operation.
constexpr std::uint64_t kMostBytes = 1u << 20;  // bytes of one allocation that one operation guards
constexpr std::size_t kMostGuards = 64;

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// "main in ./program+0x1234", as far as it is known.
std::string place(const void* code) {
  Dl_info info{};
  if (!code || !dladdr(code, &info) || !info.dli_fname) return "";
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx",
                static_cast<std::size_t>(static_cast<const char*>(code) -
                                         static_cast<const char*>(info.dli_fbase)));
  return " at " + (info.dli_sname ? std::string(info.dli_sname) + " in " : "") + info.dli_fname +
         offset;
}

std::string words(const FaultHit& hit) {
  const HostGuard::Guard& guard = *hit.guard;
  const auto byte = guard.offset +
                    static_cast<std::uint64_t>(static_cast<const std::byte*>(hit.at) - guard.begin);
  return "error: race with the host: " + std::string(guard.writes ? "write by " : "read by ") +
         guard.what + " and " + (hit.writes ? "write" : "read") + " by the host" + place(hit.code) +
         ", byte " + std::to_string(byte) + " of " + guard.memory +
         ", before it has waited (cudaStreamSynchronize, cudaEventSynchronize or "
         "cudaDeviceSynchronize)";
}

// Neighbouring touches of the same kind as one.
std::vector<HostTouch> joined(const std::vector<HostTouch>& touches) {
  std::vector<HostTouch> all;
  for (const HostTouch& touch : touches) {
    HostTouch* const last = all.empty() ? nullptr : &all.back();
    if (last && last->allocation == touch.allocation && last->writes == touch.writes &&
        last->offset + last->bytes == touch.offset)
      last->bytes += touch.bytes;
    else
      all.push_back(touch);
  }
  return all;
}

}  // namespace

void HostGuard::add(Timeline timeline, OperationNumber number, const std::string& what,
                    const std::vector<HostTouch>& touches) {
  const std::uint64_t page = page_bytes();
  for (const HostTouch& touch : joined(touches)) {
    const Allocation& a = *touch.allocation;
    if (a.base % page || a.freed || (shares_pages && shares_pages(a))) continue;
    const std::uint64_t end = touch.offset + touch.bytes;
    const std::uint64_t first = (touch.offset + page - 1) / page * page,
                        last =
                            end >= a.size ? (a.size + page - 1) / page * page : end / page * page;
    if (last <= first) continue;
    auto guard = std::make_shared<Guard>();
    guard->begin = a.host + first;
    guard->end = a.host + std::min(last, first + kMostBytes);
    guard->offset = first;
    guard->writes = touch.writes;
    guard->timeline = timeline;
    guard->number = number;
    guard->allocation = touch.allocation;
    guard->what = what;
    guard->memory = (a.name.empty() ? "an allocation of " : "'" + a.name + "' (") +
                    std::to_string(a.size) + " bytes" + (a.name.empty() ? "" : ")");
    // Who has waited for the operation has waited for those in front of it, too.
    std::erase_if(guards_, [&](const auto& old) {
      return old->timeline == timeline && old->begin >= guard->begin && old->end <= guard->end &&
             (guard->writes || !old->writes);
    });
    if (guards_.size() < kMostGuards) guards_.push_back(std::move(guard));
  }
}

// What operations have written, or only read, in order and without overlap.
std::vector<HostGuard::Range> HostGuard::ranges(bool writes) const {
  std::vector<Range> all;
  for (const auto& guard : guards_)
    if (guard->writes == writes) all.push_back({guard->begin, guard->end});
  std::sort(all.begin(), all.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const Range& range : all)
    if (kept > 0 && range.begin <= all[kept - 1].end)
      all[kept - 1].end = std::max(all[kept - 1].end, range.end);
    else
      all[kept++] = range;
  all.resize(kept);
  return all;
}

void HostGuard::enter(std::vector<std::string>& findings) {
  fault_handler::pause();
  for (const FaultHit& hit : fault_handler::take_hits()) {
    const auto same = [&](const auto& other) {
      return other->number == hit.guard->number && other->allocation == hit.guard->allocation;
    };
    if (std::none_of(guards_.begin(), guards_.end(), same)) continue;  // told
    findings.push_back(words(hit));
    std::erase_if(guards_, same);
  }
}

void HostGuard::lift() {
  for (const auto& [begin, end] : protected_)
    mprotect(begin, static_cast<std::size_t>(end - begin), PROT_READ | PROT_WRITE);
  protected_.clear();
}

void HostGuard::protect() {
  const bool stands = guards_.empty() || !(protected_.empty() || fault_handler::opened());
  if (stands && guards_ == watched_) return;
  lift();
  watched_ = guards_;
  if (!fault_handler::watch(watched_)) return;
  for (const bool written : {false, true})  // what is written last: it allows less
    for (const Range& range : ranges(written)) {
      mprotect(range.begin, static_cast<std::size_t>(range.end - range.begin),
               written ? PROT_NONE : PROT_READ);
      protected_.push_back(range);
    }
}

void HostGuard::settle(const Clock& host) {
  forget(host);
  protect();
  fault_handler::resume();
}

void HostGuard::forget(const Clock& clock) {
  std::erase_if(guards_, [&](const auto& guard) {
    return guard->allocation->freed || clock.knows(guard->timeline, guard->number);
  });
}

}  // namespace vgpu
