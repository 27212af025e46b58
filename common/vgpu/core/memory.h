// The address space of the virtual GPU: allocations with names, and where their bytes live.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace vgpu {

enum class MemoryKind : std::uint8_t { device, managed, pinned, global_variable, heap };

struct Allocation {
  std::uint64_t base = 0;     // device address
  std::uint64_t size = 0;     // bytes asked for
  std::byte* host = nullptr;  // where the bytes are
  std::uint32_t id = 0;       // counts from 1, never used again
  MemoryKind kind = MemoryKind::device;
  bool freed = false;
  std::string name;  // given by the program, or ""
  int device = 0;
  // One byte for each: 1 when it was written, 0 when never, 2 when what was written came from memory
  // that nobody wrote (check/init.cpp). Null when nobody asks or all counts as written.
  std::shared_ptr<std::uint8_t[]> written;
  // All of it was, and so it stays; found out when somebody asks.
  bool all_written() {
    if (written && !full)
      full = !std::memchr(written.get(), 0, size) && !std::memchr(written.get(), 2, size);
    return !written || full;
  }
  bool full = false;  // see all_written; false again when a kernel copies what nobody wrote
};

// Device addresses are drawn from a range that the host never maps, so that a host dereference of a
// device pointer faults as it does with a real GPU; they are not used again soon after a free, so
// that a use after free is recognized. Managed and pinned memory has the same address on both sides.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Zero bytes are allowed and give a unique address. Returns null when `limit` (bytes of live
  // device memory) or the host's memory would be exceeded. Fresh memory reads as zeros, as it mostly
  // does on a GPU; the init check (track_writes) is what finds programs that count on it.
  std::shared_ptr<Allocation> allocate(std::uint64_t size, MemoryKind kind,
                                       std::uint64_t align = 256);
  // Gives bytes that somebody else owns an address on the device.
  std::shared_ptr<Allocation> place(std::byte* host, std::uint64_t size, MemoryKind kind);
  // Makes memory that the program owns (cudaHostRegister) visible to kernels at its own address.
  std::shared_ptr<Allocation> adopt(void* host, std::uint64_t size, MemoryKind kind);
  // False when `address` is not the base of a live allocation. With `keep`, its bytes stay for what
  // still reads them (copies in flight), until they are given to dispose().
  bool release(std::uint64_t address, std::shared_ptr<Allocation>* keep = nullptr);
  void dispose(Allocation& released);
  // A freed allocation of the device comes back at its address, all zeros and with a new id (memory
  // that a graph allocates anew at each launch). Null when the device or the host has no room, or
  // when the address has been given to somebody else.
  std::shared_ptr<Allocation> revive(const Allocation& freed);
  // The live allocation that holds `address`, or null.
  std::shared_ptr<Allocation> find(std::uint64_t address) const;
  // For messages: the allocation (live or freed) whose end or start is nearest below/around address.
  // One that is `preferred` comes before others that are nearer, unless it is far.
  std::shared_ptr<Allocation> nearest(
      std::uint64_t address,
      const std::function<bool(const Allocation&)>& preferred = nullptr) const;
  std::vector<std::shared_ptr<Allocation>> live() const;
  // Host pointer to [address, address + size), or null when it is not inside one live allocation.
  std::byte* translate(std::uint64_t address, std::uint64_t size) const;

  // Allocations made from now on remember which of their bytes were written. Kernels' writes are seen
  // by the check itself (check/init.cpp), the host's are told by mark_written.
  void track_writes();
  void mark_written(std::uint64_t address, std::uint64_t size);

  bool name(std::uint64_t address, std::string name);
  std::uint64_t used() const;           // bytes of live device and managed memory
  void set_limit(std::uint64_t bytes);  // the named device's memory
  std::uint64_t limit() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Windows of the generic address space (64-bit generic addresses).
inline constexpr std::uint64_t kSharedWindow =
    0x0000'7a00'0000'0000ull;  // 16 MiB per block of a cluster
inline constexpr std::uint64_t kSharedWindowSize = 1ull << 32;
inline constexpr std::uint64_t kLocalWindow = 0x0000'7b00'0000'0000ull;
inline constexpr std::uint64_t kLocalWindowSize = 1ull << 32;
inline constexpr std::uint64_t kConstantWindow = 0x0000'7c00'0000'0000ull;
inline constexpr std::uint64_t kConstantWindowSize = 1ull << 32;
inline constexpr std::uint64_t kParamWindow = 0x0000'7d00'0000'0000ull;
inline constexpr std::uint64_t kParamWindowSize = 1ull << 32;
inline constexpr std::uint64_t kDeviceRange = 0x0000'1000'0000'0000ull;  // device allocations
inline constexpr std::uint64_t kDeviceRangeSize = 0x0000'1000'0000'0000ull;
inline constexpr std::uint64_t kFunctionRange = 0x0000'0f00'0000'0000ull;  // addresses of functions

}  // namespace vgpu
