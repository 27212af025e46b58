// What the tests of the executor share: a machine, device arrays, PTX around a kernel's body.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "../runtime/watched_machine.h"
#include "forms_account.h"

namespace vgpu::test {

inline const std::string kHead = ".version 8.4\n.target sm_90\n.address_size 64\n";

// The body of a kernel `k(out, in)` with plenty of registers. On entry %out and %in are the global
// addresses, %thread is the thread's number in its block (1-D), %lane its lane, %number its number in the
// grid, %mine the address of out[gid] as 32-bit words.
inline std::string kernel(const std::string& body, const std::string& before = "",
                          const std::string& directives = "") {
  return kHead + before + ".visible .entry k(.param .u64 p_out, .param .u64 p_in)\n" + directives +
         R"({
.reg .pred %p<40>; .reg .b16 %h<40>; .reg .b32 %r<100>; .reg .b64 %rd<60>; .reg .b128 %q<8>; .reg .f32 %f<40>; .reg .f64 %fd<20>;
.reg .b64 %out, %in, %mine; .reg .b32 %thread, %lane, %number, %block;
ld.param.u64 %out, [p_out]; cvta.to.global.u64 %out, %out;
ld.param.u64 %in, [p_in]; cvta.to.global.u64 %in, %in;
mov.u32 %thread, %tid.x; mov.u32 %lane, %laneid; mov.u32 %block, %ctaid.x; mov.u32 %number, %ntid.x;
mad.lo.u32 %number, %number, %block, %thread;
mul.wide.u32 %mine, %number, 4; add.u64 %mine, %mine, %out;
)" + body +
         "\nret;\n}\n";
}

// An argument of a kernel: a number of up to 8 bytes, or the bytes of a struct.
struct Argument {
  std::vector<std::byte> bytes;
  template <class T>
  Argument(const T& value) : bytes(sizeof(T) < 8 ? 8 : sizeof(T)) {
    std::memcpy(bytes.data(), &value, sizeof(T));
  }
};

template <class T>
struct Array {
  std::shared_ptr<Allocation> allocation;
  std::size_t count = 0;
  T* data() const { return reinterpret_cast<T*>(allocation->host); }
  T& operator[](std::size_t i) const { return data()[i]; }
  std::vector<T> values() const { return {data(), data() + count}; }
  std::uint64_t address() const { return allocation->base; }
};

class Gpu {
 public:
  explicit Gpu(MachineOptions options = {.threads = 1}) : machine({}, options) {
    machine.print = [this](std::string_view text) { printed += text; };
  }

  template <class T>
  Array<T> array(std::size_t count, T value = {}) {
    Array<T> a{machine.memory().allocate(count * sizeof(T), MemoryKind::device), count};
    std::fill_n(a.data(), count, value);
    return a;
  }
  template <class T>
  Array<T> array(const std::vector<T>& values) {
    Array<T> a = array<T>(values.size());
    std::copy(values.begin(), values.end(), a.data());
    return a;
  }

  // Launches the kernel `name` of the text; keeps the module for later launches of the same text.
  LaunchOutcome launch(const std::string& text, const std::vector<Argument>& arguments,
                       Dim3 block = {32, 1, 1}, Dim3 grid = {1, 1, 1},
                       std::uint32_t dynamic_shared = 0, const std::string& name = "k") {
    if (text != text_) {
      module_ = machine.load(text);
      text_ = text;
    }
    const Function* function = module_->module->find(name);
    REQUIRE(function != nullptr);
    std::vector<std::byte> params(function->param_bytes);
    for (std::size_t i = 0; i < function->params.size() && i < arguments.size(); ++i) {
      const Param& p = function->params[i];
      REQUIRE(arguments[i].bytes.size() >= p.size);
      std::memcpy(params.data() + p.offset, arguments[i].bytes.data(), p.size);
    }
    LaunchRequest request;
    request.module = module_.get();
    request.function = function;
    request.grid = grid;
    request.block = block;
    request.dynamic_shared = dynamic_shared;
    request.params = params;
    request.cooperative = cooperative;
    request.cluster = cluster;
    request.explicit_cluster = cluster.count() > 1;
    request.resident_blocks_per_sm = resident;
    LaunchOutcome result = machine.launch(request);
    if (result.fault.kind == FaultKind::none) touch_all(text);
    return result;
  }

  // Runs the body of kernel() and gives out[0 .. count).
  template <class T = std::uint32_t>
  std::vector<T> run(const std::string& body, std::size_t count = 32,
                     const std::vector<std::uint32_t>& in = {0}, Dim3 block = {32, 1, 1},
                     Dim3 grid = {1, 1, 1}, const std::string& before = "") {
    const auto out = array<T>(count, T{});
    const auto input = array<std::uint32_t>(in);
    outcome = launch(kernel(body, before), {out.address(), input.address()}, block, grid);
    REQUIRE(outcome.fault.message == "");
    const auto values = out.values();
    machine.memory().release(out.address());
    machine.memory().release(input.address());
    return values;
  }

  WatchedMachine machine;
  std::string printed;
  LaunchOutcome outcome;
  bool cooperative = false;
  Dim3 cluster;  // blocks per cluster in launches
  int resident = 1;
  LoadedModule& module() { return *module_; }

 private:
  std::string text_;
  std::unique_ptr<LoadedModule> module_;
};

// {f(0), f(1), ...}: what each thread should have written.
template <class T = std::uint32_t, class F>
std::vector<T> expected(std::size_t count, F f) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(f(static_cast<std::uint32_t>(i)));
  return values;
}

// "" when two results are the same, else the first that differs and how many do.
template <class T>
std::string difference(const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size())
    return std::to_string(got.size()) + " values, not " + std::to_string(want.size());
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = got.size(); i-- > 0;)
    if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) ++wrong, first = i;
  if (wrong == 0) return "";
  auto text = [](const T& v) {
    std::string digits;
    for (std::size_t b = sizeof(T); b-- > 0;) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", reinterpret_cast<const unsigned char*>(&v)[b]);
      digits += two;
    }
    return "0x" + digits;
  };
  return "[" + std::to_string(first) + "] is " + text(got[first]) + ", not " + text(want[first]) +
         " (" + std::to_string(wrong) + " of " + std::to_string(got.size()) + " differ)";
}
#define CHECK_SAME(got, ...) CHECK(vgpu::test::difference(got, __VA_ARGS__) == "")

// The counters of the instructions whose PTX text contains `text`, added up.
inline InstrReport counters_of(const LaunchOutcome& outcome, const std::string& text) {
  InstrReport sum;
  bool found = false;
  for (const InstrReport& r : outcome.counters.instructions) {
    if (r.ptx.find(text) == std::string::npos) continue;
    if (!found)
      sum = r;
    else {
      sum.count.issued += r.count.issued;
      sum.count.lanes += r.count.lanes;
      for (auto [to, from] : {std::pair{&sum.global, &r.global}, {&sum.local, &r.local}}) {
        to->requests += from->requests, to->sectors += from->sectors, to->lines += from->lines;
        to->bytes_asked += from->bytes_asked, to->bytes_distinct += from->bytes_distinct;
        to->ideal_sectors += from->ideal_sectors;
      }
      sum.shared.requests += r.shared.requests, sum.shared.wavefronts += r.shared.wavefronts;
      sum.shared.ideal += r.shared.ideal, sum.shared.bytes_asked += r.shared.bytes_asked;
      sum.remote += r.remote;
      sum.bulk += r.bulk;
    }
    found = true;
  }
  return sum;
}

// Thread and warp instructions of those instructions.
inline std::uint64_t lanes_of(const LaunchOutcome& outcome, const std::string& text) {
  return counters_of(outcome, text).count.lanes;
}
inline std::uint64_t issued_of(const LaunchOutcome& outcome, const std::string& text) {
  return counters_of(outcome, text).count.issued;
}

}  // namespace vgpu::test
