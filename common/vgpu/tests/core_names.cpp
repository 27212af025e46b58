// Names of allocations that nobody named: the parameters of the kernel, from its source.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <tuple>

#include "../core/names.h"
#include "../ptx/parameter_names.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

using Names = std::vector<std::string>;

// A kernel k(out, in) whose instructions are of line 3 of `file`.
std::string program_of(const std::string& file) {
  return ".version 8.4\n.target sm_90\n.address_size 64\n.file 1 \"" + file + R"("
.visible .entry k(.param .u64 k_param_0, .param .align 8 .b8 k_param_1[24])
{
.reg .b32 %r<4>; .reg .b64 %rd<4>;
.loc 1 3 0
ld.param.u64 %rd1, [k_param_0]; ld.param.u64 %rd2, [k_param_1+8];
ld.global.u32 %r1, [%rd2];
st.global.u32 [%rd1+12], %r1;
ret;
}
)";
}

struct Problem {
  std::uint64_t before, pointer, behind;
};

// The launch of that kernel, whose file is `source`, with `count` numbers in the array out.
LaunchOutcome launched(const std::string& source, std::size_t count) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("vgpu_names_" + std::to_string(getpid()) + ".cuh");
  std::ofstream(path) << source;
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(count, 0), in = gpu.array<std::uint32_t>({7});
  const auto outcome =
      gpu.launch(program_of(path), {out.address(), Problem{5, in.address(), 0}}, {1, 1, 1});
  std::filesystem::remove(path);
  return outcome;
}

Names names_of(const std::string& source) {
  const auto outcome = launched(source, 4);
  REQUIRE(outcome.fault.message == "");
  Names names;
  for (const AllocationReport& a : outcome.counters.allocations) names.push_back(a.name);
  return names;
}

}  // namespace

TEST_CASE("names: a kernel's parameters, as they stand in its source") {
  const std::string source = R"x(void scale(int wrong);  // scale(wrong) too
template <int N, class T>
__global__ void __launch_bounds__(128, 2)
    scale (const T* __restrict__ in,  // [n], a comment with a comma, and a bracket )
           T* /* not this, either */ out, Pair<int, float> p, float (*f)(float, int),
           float x[4], const char* c = ",)", T *const y, unsigned int , int n = (3, 4)) {
  out[scale_of(1)] = in[0];
}
__global__ void none() { scale(1, 2); }
__global__ void rescale(int a, int b) {})x";
  CHECK(parameter_names(source, 4, "scale") ==
        Names{"in", "out", "p", "f", "x", "c", "y", "", "n"});
  CHECK(parameter_names(source, 1, "scale") == Names{"wrong"});
  CHECK(parameter_names(source, 9, "none") == Names{""});
  CHECK(parameter_names(source, 10, "rescale") == Names{"a", "b"});
  CHECK(parameter_names(source, 1000, "rescale") == Names{"a", "b"});
  CHECK(parameter_names(source, 10, "scale") == Names{"", ""});  // two arguments in line 9
  CHECK(parameter_names(source, 10, "scal").empty());
  CHECK(parameter_names(source, 8, "rescale").empty());
  CHECK(parameter_names("void k(const int*, float", 1, "k").empty());
  CHECK(parameter_names("/* k( */ \"k(\\\"", 1, "k").empty());
  CHECK(parameter_names("", 3, "k").empty());
}

TEST_CASE("names: counters and messages have them; where the source does not fit, numbers") {
  const std::string source = "\n\n__global__ void k(unsigned* result, Problem problem) {\n";
  const std::string other = "\n\n__global__ void k(unsigned* result) {\n";
  CHECK(names_of(source) == Names{"result", "problem+8"});
  CHECK(names_of(other) == Names{"argument 1", "argument 2"});
  CHECK(names_of("") == Names{"argument 1", "argument 2"});
  const auto says = [](const LaunchOutcome& outcome, const std::string& words) {
    return outcome.fault.message.find(words) != std::string::npos;
  };
  CHECK(says(launched(source, 3), "0 bytes past allocation 'result' (12 bytes, argument 1) by"));
  CHECK(says(launched(other, 3), "0 bytes past an allocation of 12 bytes (argument 1) by"));
}

// The struct comes first, and the bytes behind its pointer hold the address of `out`.
TEST_CASE("names: a parameter that is a pointer names its allocation before a struct does") {
  const std::string text = R"(
.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .align 8 .b8 k_param_0[24], .param .u64 k_param_1)
{
.reg .b32 %r<4>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [k_param_0+8]; ld.param.u64 %rd2, [k_param_1];
ld.global.u32 %r1, [%rd1];
st.global.u32 [%rd2], %r1;
ret;
}
)";
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(4, 0), in = gpu.array<std::uint32_t>({7});
  const auto outcome =
      gpu.launch(text, {Problem{5, in.address(), out.address()}, out.address()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  Names names;
  for (const AllocationReport& a : outcome.counters.allocations)
    names.push_back(a.name + (a.sectors_written ? " stored" : " loaded"));
  CHECK(names == Names{"argument 2 stored", "argument 1 loaded"});
}

TEST_CASE("names: long ones are cut to a readable length in messages") {
  const auto both = [](const std::string& mangled) {
    return std::pair{full_name(mangled), display_name(mangled)};
  };
  // As nvcc names a variable of an anonymous namespace.
  CHECK(both("_ZN12_INTERNAL_n_18_GLOBAL__N__f451c711small_tableE").first == "small_table");
  // A name that fits stays as it is: void ns::scale<64, float>(float*).
  auto [full, shown] = both("_ZN2ns5scaleILi64EfEEvPf");
  CHECK(full == "ns::scale<64, float>");
  CHECK(shown == full);
  // Arguments of arguments go first: outer::kernel<64, holder<...> > of a holder of five long names.
  const std::string word = "21a_type_of_a_long_name";
  const std::string holder = "6holderI" + word + word + word + word + word + "E";
  std::tie(full, shown) = both("_ZN5outer6kernelILi64E" + holder + "EEvv");
  CHECK(full.size() > 100);
  CHECK(shown == "outer::kernel<64, holder<...> >");
  // Then the last arguments, of which there are eight.
  std::string eight;
  for (char c = 'a'; c < 'i'; ++c) eight += std::string("21") + c + "_type_of_a_long_name";
  std::tie(full, shown) = both("_ZN5outer6kernelI" + eight + "EEvv");
  CHECK(full.size() > 180);
  CHECK(shown ==
        "outer::kernel<a_type_of_a_long_name, b_type_of_a_long_name, c_type_of_a_long_name, ...>");
  // Then the beginning, of a name in a namespace of 120 letters.
  std::tie(full, shown) = both("_ZN120" + std::string(120, 'n') + "6kernelEv");
  CHECK(full == std::string(120, 'n') + "::kernel");
  CHECK(shown == "..." + std::string(89, 'n') + "::kernel");
}
