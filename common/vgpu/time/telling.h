// What of PTX and of machine code is counted against each other, to know which way a warp went.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "../core/spelling.h"
#include "machine_code.h"
#include "recording.h"

namespace vgpu::time {

// Machine instructions that take an event of their PTX line.
inline bool takes_event(Kind kind) {
  switch (kind) {
    case Kind::shared_load:
    case Kind::shared_store:
    case Kind::shared_atomic:
    case Kind::matrix_load:
    case Kind::matrix_store:
    case Kind::global_load:
    case Kind::global_store:
    case Kind::global_atomic:
    case Kind::local_load:
    case Kind::local_store:
    case Kind::async_copy:
    case Kind::bulk_copy:
    case Kind::mbarrier:
    case Kind::barrier:
      return true;
    default:
      return false;
  }
}

// Bytes that a lane asks for in "ld.shared.v4.f32", 0 for what is no load or store.
inline std::uint32_t lane_bytes(std::string_view name) {
  if (!name.starts_with("ld.") && !name.starts_with("st.")) return 0;
  const std::size_t dot = name.rfind('.');
  std::uint32_t bits = 0;
  for (const char c : name.substr(dot + 1))
    if (c >= '0' && c <= '9') bits = 10 * bits + static_cast<std::uint32_t>(c - '0');
  const std::uint32_t elements = has_modifier(name, "v2")   ? 2
                                 : has_modifier(name, "v4") ? 4
                                 : has_modifier(name, "v8") ? 8
                                                            : 1;
  return bits / 8 * elements;
}

// PTX instructions of which ptxas makes one machine instruction each, or of neighbours a wider one:
// what tells how often a piece of PTX was executed. Loads and stores are measured in bytes of a lane,
// others in instructions.
enum Telling : std::uint8_t {
  kGlobalLoad,
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kFma,
  kMma,
  kMatrixLoad,
  kBarrier,
  kShuffle,
  kTellings,
  kNothing = kTellings
};
inline Telling telling(std::string_view name) {
  constexpr std::pair<std::string_view, Telling> kBeginnings[] = {
      {"ld.global", kGlobalLoad},  {"st.global", kGlobalStore}, {"ld.shared", kSharedLoad},
      {"st.shared", kSharedStore}, {"fma.rn.f32", kFma},        {"fma.rn.ftz.f32", kFma},
      {"mma.sync", kMma},          {"ldmatrix", kMatrixLoad},   {"bar.sync", kBarrier},
      {"shfl.sync", kShuffle}};
  for (const auto& [beginning, kind] : kBeginnings)
    if (name.starts_with(beginning)) return kind;
  return kNothing;
}
inline bool is_of(Kind kind, Telling telling) {
  switch (telling) {
    case kGlobalLoad:
      return kind == Kind::global_load;
    case kGlobalStore:
      return kind == Kind::global_store;
    case kSharedLoad:
      return kind == Kind::shared_load;
    case kSharedStore:
      return kind == Kind::shared_store;
    case kFma:
      return kind == Kind::fp32;
    case kMma:
      return kind == Kind::tensor;
    case kMatrixLoad:
      return kind == Kind::matrix_load;
    case kBarrier:
      return kind == Kind::barrier;
    case kShuffle:
      return kind == Kind::shuffle;
    default:
      return false;
  }
}
inline double amount(std::string_view name) { return std::max(1u, lane_bytes(name)); }
inline double least_amount(const Layout::Line& line, Telling telling) {
  return telling <= kSharedStore ? line.least_bytes : 1;
}
inline double amount(const MachineInstr& instr, Telling telling) {
  return telling <= kSharedStore ? instr.bytes : 1;
}

}  // namespace vgpu::time
