#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <utility>

namespace vgpu {

namespace {
constexpr std::uint64_t kGuard = 256;        // unmapped bytes behind each allocation, at least
constexpr std::uint64_t kReach = 64u << 10;  // how far off an access to what was meant is at most
std::uint64_t round_up(std::uint64_t v, std::uint64_t to) { return (v + to - 1) / to * to; }
}  // namespace

namespace {
// Pages straight from the kernel: large allocations cost nothing until they are touched.
std::byte* map_pages(std::uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}
std::uint64_t mapped_bytes(std::uint64_t size) {
  return round_up(std::max<std::uint64_t>(size, 1), 4096);
}
}  // namespace

struct Memory::Impl {
  mutable std::shared_mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Allocation>> live;   // by base
  std::map<std::uint64_t, std::shared_ptr<Allocation>> freed;  // by base, for messages
  std::deque<std::uint64_t> freed_order;
  std::uint64_t next = kDeviceRange + (2u << 20);
  std::uint32_t next_id = 1;
  std::uint64_t used = 0, limit = ~0ull;
  bool reserved = false;  // the device range is ours
  bool tracking = false;  // which bytes were written

  std::shared_ptr<Allocation> find(std::uint64_t address) const {
    auto it = live.upper_bound(address);
    if (it == live.begin()) return nullptr;
    --it;
    const auto& a = it->second;
    return address < a->base + std::max<std::uint64_t>(a->size, 1) ? a : nullptr;
  }
  void track(Allocation& a) {
    if (!tracking || (a.kind != MemoryKind::device && a.kind != MemoryKind::heap)) return;
    const std::uint64_t bytes = mapped_bytes(a.size);
    std::byte* flags = map_pages(bytes);
    if (!flags) throw std::bad_alloc();
    a.written = {reinterpret_cast<std::uint8_t*>(flags),
                 [bytes](std::uint8_t* p) { munmap(p, bytes); }};
  }
  // An address on the device that nobody has.
  std::uint64_t free_range(std::uint64_t size, std::uint64_t align) {
    align = std::max<std::uint64_t>(align, 256);
    next = round_up(next, align);
    const std::uint64_t reach = round_up(std::max<std::uint64_t>(size, 1), 256) + kGuard;
    if (next + reach > kDeviceRange + kDeviceRangeSize) {
      // The range is used up: start again below, skipping what is still alive.
      next = round_up(kDeviceRange + (2u << 20), align);
      for (auto& [base, other] : live) {
        if (base < next) continue;
        if (base >= kDeviceRange + kDeviceRangeSize || base >= next + reach) break;
        next = round_up(base + other->size + kGuard, align);
      }
    }
    return std::exchange(next, next + reach);
  }
  void add(const std::shared_ptr<Allocation>& a) {
    a->id = next_id++;
    live[a->base] = a;
    if (a->kind != MemoryKind::pinned) used += a->size;
  }
};

namespace {
// The device's malloc gives many small pieces, and a process has few mappings (65530 on Linux).
constexpr std::uint64_t kSmall = 64u << 10;
bool from_host_heap(MemoryKind kind, std::uint64_t size) {
  return kind == MemoryKind::heap && size <= kSmall;
}
std::byte* obtain(MemoryKind kind, std::uint64_t size) {
  if (!from_host_heap(kind, size)) return map_pages(mapped_bytes(size));
  const std::uint64_t bytes = round_up(std::max<std::uint64_t>(size, 1), 64);
  void* p = std::aligned_alloc(64, bytes);
  if (p) std::memset(p, 0, bytes);
  return static_cast<std::byte*>(p);
}
void give_back(const Allocation& a) {
  if (from_host_heap(a.kind, a.size))
    std::free(a.host);
  else
    munmap(a.host, mapped_bytes(a.size));
}
}  // namespace

Memory::Memory() : impl_(std::make_unique<Impl>()) {
  // The range is reserved, so that the host never gets these addresses and a host dereference of a
  // device pointer faults. Where that fails, device pointers still work; only this trap is missing.
  // (Another machine of this process may have it, or a sanitizer.)
  void* range = mmap(reinterpret_cast<void*>(kDeviceRange), kDeviceRangeSize, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  impl_->reserved = range == reinterpret_cast<void*>(kDeviceRange);
  if (range != MAP_FAILED && !impl_->reserved)
    munmap(range, kDeviceRangeSize);  // an old kernel took it as a hint
}

Memory::~Memory() {
  for (auto& [base, a] : impl_->live)
    if (a->device != -1 && (a->kind == MemoryKind::device || a->kind == MemoryKind::heap ||
                            a->kind == MemoryKind::global_variable))
      give_back(*a);
  if (impl_->reserved) munmap(reinterpret_cast<void*>(kDeviceRange), kDeviceRangeSize);
}

std::shared_ptr<Allocation> Memory::allocate(std::uint64_t size, MemoryKind kind,
                                             std::uint64_t align) {
  std::unique_lock lock(impl_->mutex);
  const bool on_device = kind != MemoryKind::pinned;
  if (size > (1ull << 46)) return nullptr;
  if (on_device && (size > impl_->limit || impl_->used > impl_->limit - size)) return nullptr;
  std::byte* host = obtain(kind, size);
  if (!host) return nullptr;
  auto a = std::make_shared<Allocation>();
  a->size = size;
  a->host = host;
  a->kind = kind;
  if (kind == MemoryKind::managed || kind == MemoryKind::pinned) {
    a->base = reinterpret_cast<std::uint64_t>(host);
  } else {
    a->base = impl_->free_range(size, align);
  }
  impl_->track(*a);
  impl_->add(a);
  return a;
}

std::shared_ptr<Allocation> Memory::place(std::byte* host, std::uint64_t size, MemoryKind kind) {
  std::unique_lock lock(impl_->mutex);
  auto a = std::make_shared<Allocation>();
  a->base = impl_->free_range(size, 256);
  a->size = size;
  a->host = host;
  a->kind = kind;
  a->device = -1;  // not ours to unmap
  impl_->add(a);
  return a;
}

std::shared_ptr<Allocation> Memory::adopt(void* host, std::uint64_t size, MemoryKind kind) {
  std::unique_lock lock(impl_->mutex);
  const auto base = reinterpret_cast<std::uint64_t>(host);
  if (!host || size == 0 || base + size < base) return nullptr;
  auto it = impl_->live.lower_bound(base);
  if (it != impl_->live.end() && it->first < base + size) return nullptr;
  if (impl_->find(base)) return nullptr;
  auto a = std::make_shared<Allocation>();
  a->base = base;
  a->size = size;
  a->host = static_cast<std::byte*>(host);
  a->kind = kind;
  a->name = "";
  a->device = -1;  // adopted: not ours to unmap
  impl_->add(a);
  return a;
}

bool Memory::release(std::uint64_t address, std::shared_ptr<Allocation>* keep) {
  std::unique_lock lock(impl_->mutex);
  const auto it = impl_->live.find(address);
  if (it == impl_->live.end()) return false;
  auto a = it->second;
  impl_->live.erase(it);
  if (a->kind != MemoryKind::pinned) impl_->used -= a->size;
  a->freed = true;
  if (keep) {
    *keep = a;
  } else {
    if (a->device != -1) give_back(*a);
    a->host = nullptr;
  }
  impl_->freed[a->base] = a;
  impl_->freed_order.push_back(a->base);
  if (impl_->freed_order.size() > 4096) {
    impl_->freed.erase(impl_->freed_order.front());
    impl_->freed_order.pop_front();
  }
  return true;
}

std::shared_ptr<Allocation> Memory::revive(const Allocation& freed) {
  std::unique_lock lock(impl_->mutex);
  const std::uint64_t end = freed.base + std::max<std::uint64_t>(freed.size, 1);
  const auto next = impl_->live.lower_bound(freed.base);
  if ((next != impl_->live.end() && next->first < end) || impl_->find(freed.base)) return nullptr;
  if (freed.size > impl_->limit || impl_->used > impl_->limit - freed.size) return nullptr;
  auto a = std::make_shared<Allocation>();
  a->base = freed.base;
  a->size = freed.size;
  a->kind = freed.kind;
  a->name = freed.name;
  a->host = obtain(a->kind, a->size);
  if (!a->host) return nullptr;
  impl_->track(*a);
  impl_->freed.erase(a->base);
  impl_->add(a);
  return a;
}

void Memory::dispose(Allocation& released) {
  if (released.host && released.device != -1) give_back(released);
  released.host = nullptr;
}

std::shared_ptr<Allocation> Memory::find(std::uint64_t address) const {
  std::shared_lock lock(impl_->mutex);
  return impl_->find(address);
}

std::shared_ptr<Allocation> Memory::nearest(
    std::uint64_t address, const std::function<bool(const Allocation&)>& preferred) const {
  std::shared_lock lock(impl_->mutex);
  std::shared_ptr<Allocation> best;
  bool best_preferred = false;
  std::uint64_t distance = 1ull << 30;  // farther than that an address has nothing to do with it
  auto consider = [&](const std::shared_ptr<Allocation>& a) {
    const std::uint64_t end = a->base + a->size;
    const std::uint64_t d = address < a->base ? a->base - address
                            : address >= end  ? address - end
                                              : 0;
    if (d >= 1ull << 30) return;
    const bool is_preferred = preferred && d > 0 && d < kReach && preferred(*a);
    if (best_preferred && !is_preferred && d > 0) return;
    if (d < distance || (d == distance && best && best->freed && !a->freed) ||
        (is_preferred && !best_preferred && distance > 0)) {
      best = a;
      best_preferred = is_preferred;
      distance = d;
    }
  };
  for (const auto* table : {&impl_->live, &impl_->freed}) {
    auto it = table->upper_bound(address);
    if (it != table->end()) consider(it->second);
    if (it != table->begin()) consider(std::prev(it)->second);
  }
  return best;
}

std::vector<std::shared_ptr<Allocation>> Memory::live() const {
  std::shared_lock lock(impl_->mutex);
  std::vector<std::shared_ptr<Allocation>> result;
  for (const auto& [base, a] : impl_->live) result.push_back(a);
  return result;
}

std::byte* Memory::translate(std::uint64_t address, std::uint64_t size) const {
  std::shared_lock lock(impl_->mutex);
  const auto a = impl_->find(address);
  if (!a || size > a->size || address - a->base > a->size - size) return nullptr;
  return a->host + (address - a->base);
}

void Memory::track_writes() {
  std::unique_lock lock(impl_->mutex);
  impl_->tracking = true;
}

void Memory::mark_written(std::uint64_t address, std::uint64_t size) {
  std::shared_lock lock(impl_->mutex);
  if (!impl_->tracking) return;
  const auto a = impl_->find(address);
  if (!a || !a->written || address - a->base > a->size) return;
  std::memset(a->written.get() + (address - a->base), 1,
              std::min(size, a->size - (address - a->base)));
}

bool Memory::name(std::uint64_t address, std::string name) {
  std::unique_lock lock(impl_->mutex);
  const auto a = impl_->find(address);
  if (!a) return false;
  a->name = std::move(name);
  return true;
}

std::uint64_t Memory::used() const {
  std::shared_lock lock(impl_->mutex);
  return impl_->used;
}
void Memory::set_limit(std::uint64_t bytes) {
  std::unique_lock lock(impl_->mutex);
  impl_->limit = bytes;
}
std::uint64_t Memory::limit() const {
  std::shared_lock lock(impl_->mutex);
  return impl_->limit;
}

}  // namespace vgpu
