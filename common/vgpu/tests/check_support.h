// What the tests of the checks share: programs in PTX with source lines, run with the checks on.
#pragma once
#include <algorithm>

#include "core_support.h"

template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& t : texts) all += "\n  " + t;
    return all.c_str();
  }
};

namespace vgpu::test {

// A kernel's body with `.loc` lines of a file s.cu, so that findings have lines to name: a
// statement "@7: ..." stands on line 7.
inline std::string with_lines(const std::string& body) {
  std::string out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    std::string line = body.substr(at, end - at);
    const std::size_t colon = line.find(':');
    if (!line.empty() && line[0] == '#' && colon != std::string::npos)
      line = ".loc 1 " + line.substr(1, colon - 1) + " 0\n" + line.substr(colon + 1);
    out += line + "\n";
    at = end + 1;
  }
  return out;
}

struct Checked {
  explicit Checked(MachineOptions options) : gpu(options) {}
  Gpu gpu;

  // Findings of a kernel k(out, in) with `words` zeros behind out and 1024 behind in.
  std::vector<std::string> run(const std::string& body, Dim3 block = {64, 1, 1},
                               Dim3 grid = {1, 1, 1},
                               const std::string& before = ".shared .align 16 .b8 s[4096];\n",
                               std::size_t words = 1024) {
    out = gpu.array<std::uint32_t>(words, 0);
    const auto in = gpu.array<std::uint32_t>(1024, 0);
    gpu.machine.memory().mark_written(out.address(), words * 4);
    gpu.machine.memory().mark_written(in.address(), 4096);
    const LaunchOutcome outcome =
        gpu.launch(kernel(with_lines(body), ".file 1 \"s.cu\"\n" + before),
                   {out.address(), in.address()}, block, grid);
    REQUIRE(outcome.fault.message == "");
    return outcome.findings;
  }
  Array<std::uint32_t> out;
};

inline MachineOptions race_only(std::uint64_t seed = 0) {
  return {.threads = 1, .schedule_seed = seed, .check_race = true};
}
inline MachineOptions init_only() { return {.threads = 1, .check_init = true}; }
inline MachineOptions sync_only() { return {.threads = 1, .check_sync = true}; }
inline MachineOptions proxy_only(std::uint64_t seed = 0) {
  return {.threads = 1, .schedule_seed = seed, .check_proxy = true};
}

using Texts = std::vector<std::string>;

inline const std::string kProxyFence = "fence.proxy.async.shared::cta;\n";
inline const std::string kBarrier = "bar.sync 0;\n";

inline std::string all_of(const Texts& findings) {
  std::string all;
  for (const std::string& f : findings) all += f + "\n";
  return all;
}
inline bool has(const Texts& findings, const std::string& part) {
  return all_of(findings).find(part) != std::string::npos;
}

// Silent in the usual order and in shuffled ones.
inline void check_silent(const std::string& body, Dim3 block = {64, 1, 1}, Dim3 grid = {1, 1, 1},
                         bool cooperative = false) {
  for (std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    CAPTURE(seed);
    Checked c({.threads = 1,
               .schedule_seed = seed,
               .check_race = true,
               .check_init = true,
               .check_sync = true,
               .check_proxy = true,
               .check_finite = true,
               .check_bounds = true});
    c.gpu.cooperative = cooperative;
    CHECK(c.run(body, block, grid) == Texts{});
  }
}

}  // namespace vgpu::test
