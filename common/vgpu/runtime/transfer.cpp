// Checked access to memory for copies and fills: every range must lie inside one live allocation,
// or, on the host's side, inside mapped memory. What is wrong is said in words.
#include <sys/mman.h>

#include <cstdio>

#include "runtime.h"

namespace vgpu::runtime {
namespace {

std::string hex(const void* pointer) {
  char text[24];
  std::snprintf(text, sizeof text, "%p", pointer);
  return text;
}

bool in(std::uint64_t address, std::uint64_t base, std::uint64_t size) {
  return address >= base && address - base < size;
}

std::string describe(const Allocation& a) {
  std::string text = a.freed ? "freed allocation" : "allocation";
  text += a.name.empty() ? " " + std::to_string(a.id) : " '" + a.name + "'";
  return text + " (" + std::to_string(a.size) + " bytes)";
}

void say_out_of_range(const char* what, const void* pointer, std::uint64_t size) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  std::string text = std::string(what) + ": " + std::to_string(size) + " bytes at " + hex(pointer);
  if (const auto near = Runtime::get().memory().nearest(address)) {
    const std::uint64_t end = near->base + near->size;
    if (near->freed) {
      text += " are in " + describe(*near);
    } else if (address >= near->base && address < end) {
      text += " run " + std::to_string(address + size - end) + " bytes past the end of " +
              describe(*near);
    } else if (address >= end) {
      text +=
          " begin " + std::to_string(address - end) + " bytes past the end of " + describe(*near);
    } else {
      text += " begin " + std::to_string(near->base - address) + " bytes before " + describe(*near);
    }
  } else {
    text += " are not memory of the device";
  }
  say(text);
}

}  // namespace

bool is_device_address(const void* pointer) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  return in(address, kDeviceRange, kDeviceRangeSize) ||
         in(address, kConstantWindow, kConstantWindowSize) ||
         in(address, kSharedWindow, kSharedWindowSize) ||
         in(address, kLocalWindow, kLocalWindowSize) || in(address, kParamWindow, kParamWindowSize);
}

std::byte* device_bytes(const char* what, const void* pointer, std::uint64_t size) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  std::byte* bytes = Runtime::get().memory().translate(address, size);
  if (!bytes) say_out_of_range(what, pointer, size);
  return bytes;
}

std::byte* host_bytes(const char* what, const void* pointer, std::uint64_t size) {
  Memory& memory = Runtime::get().memory();
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  if (is_device_address(pointer)) {
    say(std::string(what) + ": " + hex(pointer) +
        " is a device pointer where a host pointer is meant");
    return nullptr;
  }
  if (memory.find(address)) {  // pinned, managed or registered
    std::byte* bytes = memory.translate(address, size);
    // A registered range may be a part of a larger one: beyond it, it is ordinary memory.
    if (bytes || !Runtime::get().host_registrations.count(memory.find(address)->base)) {
      if (!bytes) say_out_of_range(what, pointer, size);
      return bytes;
    }
  }
  // msync fails for pages that nobody mapped, and does nothing else with MS_ASYNC.
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t begin = address / kPage * kPage;
  std::uint64_t end = 0;
  const bool wraps = __builtin_add_overflow(address, size, &end);
  if (address == 0 || wraps || msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) != 0) {
    say(std::string(what) + ": " + std::to_string(size) + " bytes at " + hex(pointer) +
        " are not memory of the host");
    return nullptr;
  }
  return reinterpret_cast<std::byte*>(address);
}

Status find_symbol(const void* symbol, Symbol& out) {
  Runtime& runtime = Runtime::get();
  auto it = runtime.variables.find(symbol);
  if (it == runtime.variables.end()) {
    // The host sees a __managed__ variable through its pointer, so its symbol is the memory itself.
    for (it = runtime.variables.begin(); it != runtime.variables.end(); ++it)
      if (it->second.managed_pointer && *it->second.managed_pointer == symbol && symbol) break;
    if (it == runtime.variables.end()) return Status::invalid_symbol;
  }
  const Variable& variable = it->second;
  if (const Status status = load_library(*variable.library); status != Status::success)
    return status;
  const LoadedModule& module = *variable.library->module;
  std::uint64_t size = 0;
  if (!module.variable(variable.name, out.address, out.size)) return Status::invalid_symbol;
  out.bytes = module.variable_bytes(variable.name, size);
  return Status::success;
}

}  // namespace vgpu::runtime
