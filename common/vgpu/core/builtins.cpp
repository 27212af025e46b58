#include "builtins.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "access.h"
#include "specials.h"

namespace vgpu {
namespace {

constexpr std::string_view kNames[] = {"vprintf", "malloc", "free", "__assertfail"};
constexpr std::size_t kMaxText = 1u << 20;
constexpr std::uint64_t kMostKept = 1ull << 30;  // freed bytes that copies in flight may still read

// What malloc takes of the heap: pieces have a size in front, as on a GPU.
std::uint64_t heap_bytes(std::uint64_t size) { return (size + 15) / 16 * 16 + 16; }

template <class T>
T argument(Warp& warp, const CallSite& site, int lane, std::size_t i) {
  T value{};
  const std::byte* area =
      warp.frame->call_area + std::size_t{warp.frame->function->call_area_bytes} * lane;
  if (i < site.args.size())
    std::memcpy(&value, area + site.args[i],
                std::min<std::size_t>(sizeof value, site.arg_sizes[i]));
  return value;
}
template <class T>
void result(Warp& warp, const CallSite& site, int lane, T value) {
  if (site.results.empty()) return;
  std::byte* area =
      warp.frame->call_area + std::size_t{warp.frame->function->call_area_bytes} * lane;
  std::memcpy(area + site.results[0], &value,
              std::min<std::size_t>(sizeof value, site.result_sizes[0]));
}

std::string string_at(Warp& warp, const Instr& instr, int lane, std::uint64_t address) {
  std::string text;
  while (text.size() < kMaxText) {
    const char c =
        static_cast<char>(*lane_pointer(warp, instr, lane, address + text.size(), 1, Access::load));
    if (c == '\0') break;
    text += c;
  }
  return text;
}

// The host's printf with one value. Nothing the device says may make it fail, or write for ever.
template <class T>
std::string host_printf(const std::string& spec, T value) {
  const int length = std::snprintf(nullptr, 0, spec.c_str(), value);
  if (length < 0) return spec;
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(text.data(), text.size(), spec.c_str(), value);
  text.pop_back();
  return text;
}
// A field's width or its precision, read from digits or given by the argument of '*'.
constexpr std::int64_t kMostWidth = 4096;

// printf as CUDA defines it: arguments packed with natural alignment, floats passed as double.
std::string formatted(Warp& warp, const Instr& instr, int lane, const std::string& format,
                      std::uint64_t args, int& used) {
  std::string out;
  std::uint64_t at = args;
  used = 0;
  auto next = [&]<class T>(T) {
    at = (at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value;
    std::memcpy(&value, lane_pointer(warp, instr, lane, at, sizeof(T), Access::load), sizeof(T));
    at += sizeof(T);
    ++used;
    return value;
  };
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    std::string spec = "%";
    int longs = 0;
    bool valid = false;
    for (++i; i < format.size(); ++i) {
      const char c = format[i];
      if (c != '\0' && std::strchr("-+ #.", c)) {
        spec += c;
      } else if (c >= '0' && c <= '9') {
        const std::size_t digits =
            std::min(format.find_first_not_of("0123456789", i), format.size()) - i;
        if (digits > 4 && spec.find_first_of("123456789") == spec.npos)
          spec += std::to_string(kMostWidth);
        else
          spec += format.substr(i, std::min<std::size_t>(digits, 4));
        i += digits - 1;
      } else if (c == '*') {
        spec += std::to_string(std::clamp<std::int64_t>(next(0), -kMostWidth, kMostWidth));
      } else if (c == 'l') {
        ++longs;
      } else if (c == 'z' || c == 'j' || c == 't') {
        longs = 2;
      } else if (c == 'h') {
      } else {
        valid = true;
        break;
      }
      if (spec.size() > 32) break;
    }
    if (!valid) {
      out += spec;
      continue;
    }
    const char c = format[i];
    switch (c) {
      case '%':
        out += '%';
        continue;
      case 'd':
      case 'i':
        out += longs ? host_printf(spec + "lld", next(0ll)) : host_printf(spec + "d", next(0));
        break;
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        out += longs ? host_printf(spec + "ll" + c, next(0ull)) : host_printf(spec + c, next(0u));
        break;
      case 'c':
        out += host_printf(spec + c, next(0));
        break;
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        out += host_printf(spec + c, next(0.0));
        break;
      case 'p':
        out += host_printf("0x%llx", next(0ull));
        break;
      case 's': {
        const std::uint64_t address = next(0ull);
        const std::string s = address ? string_at(warp, instr, lane, address) : "(null)";
        out += spec == "%" ? s : host_printf(spec + "s", s.c_str());
        break;
      }
      default:
        out += spec + c;
    }
  }
  return out;
}

}  // namespace

bool is_builtin(std::string_view name) {
  for (std::string_view n : kNames)
    if (n == name) return true;
  return false;
}

void call_builtin(Warp& warp, const Instr& instr, const CallSite& site, std::uint32_t mask) {
  Launch& launch = warp.block->launch;
  if (site.builtin == "vprintf") {
    each_lane(mask, [&](int lane) {
      // CUDA's printf returns how many arguments it used, or -1 without a format.
      const auto format = argument<std::uint64_t>(warp, site, lane, 0);
      const auto args = argument<std::uint64_t>(warp, site, lane, 1);
      int used = -1;
      if (format)
        launch.print(
            formatted(warp, instr, lane, string_at(warp, instr, lane, format), args, used));
      result<std::int32_t>(warp, site, lane, used);
    });
  } else if (site.builtin == "__assertfail") {
    const int lane = std::countr_zero(mask);
    const std::string message =
        string_at(warp, instr, lane, argument<std::uint64_t>(warp, site, lane, 0));
    const std::string file =
        string_at(warp, instr, lane, argument<std::uint64_t>(warp, site, lane, 1));
    const auto line = argument<std::uint32_t>(warp, site, lane, 2);
    const std::string what = describe(warp, instr, lane, "assertion '" + message + "' failed");
    // The macro's own file and line are right even without -lineinfo.
    throw Fault{FaultKind::assertion, display_path(file) + ":" + std::to_string(line) +
                                          what.substr(what.find(": error:"))};
  } else if (site.builtin == "malloc") {
    each_lane(mask, [&](int lane) {
      const auto size = argument<std::uint64_t>(warp, site, lane, 0);
      std::uint64_t address = 0;
      if (size && size <= launch.machine.heap_limit &&
          launch.heap_used.load() + heap_bytes(size) <= launch.machine.heap_limit)
        if (const auto a = launch.memory.allocate(size, MemoryKind::heap)) {
          address = a->base;
          launch.heap_used += heap_bytes(size);
        }
      result<std::uint64_t>(warp, site, lane, address);
    });
  } else if (site.builtin == "free") {
    each_lane(mask, [&](int lane) {
      const auto address = argument<std::uint64_t>(warp, site, lane, 0);
      if (!address) return;
      const auto a = launch.memory.find(address);
      if (!a || a->base != address || a->kind != MemoryKind::heap)
        throw Fault{FaultKind::illegal_address,
                    describe(warp, instr, lane,
                             "free() of an address that malloc() in device code did not give or "
                             "that is freed already")};
      launch.heap_used -= heap_bytes(a->size);
      if (!launch.async_copies) {
        launch.memory.release(address);
        return;
      }
      std::uint64_t kept = a->size;
      for (const auto& allocation : launch.freed) kept += allocation->size;
      if (kept > kMostKept)
        throw Fault{FaultKind::out_of_memory,
                    describe(warp, instr, lane,
                             "more than 1 GiB freed in one launch that copies asynchronously")};
      launch.memory.release(address, &launch.freed.emplace_back());
    });
    // Windows that instructions remember may lie in what is gone.
    for (auto& [function, state] : warp.worker->functions)
      for (Site& s : state->sites) s.low = 1, s.high = 0;
  }
}

}  // namespace vgpu
