// Pages of programs (VGPU_LOOK, --look, vgpuLook): what stands in them, whatever the program does. Each case
// runs this program again ("child:" cases) or one compiled here, and reads its page.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "child_process.h"
#include "json/json.h"
#include "toolkit.h"
#include "vgpu/vgpu.h"

namespace {

using namespace vgpu_tests;
using Json = json::Value;

constexpr int kThreads = 128;
constexpr const char* kTrap = "</script><!--<script> \t\x01 €";

// Each thread turns a tile round by hand: with bank conflicts. </script><!--<script> é
__global__ void turn(const float* in, float* out) {
  __shared__ float tile[32][32];
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  for (int row = y; row < 32; row += 4) tile[row][x] = in[1024 * blockIdx.x + 32 * row + x];
  __syncthreads();
  for (int row = y; row < 32; row += 4) out[1024 * blockIdx.x + 32 * row + x] = tile[x][row];
}

__global__ void far(float* out) { out[1 << 20] = 1; }

__global__ void together(int* sum) {
  atomicAdd(sum, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) sum[1 + blockIdx.x] = sum[0];
}

__global__ void __cluster_dims__(2) neighbours(int* out) {
  __shared__ int mine[32];
  auto cluster = cooperative_groups::this_cluster();
  mine[threadIdx.x] = threadIdx.x + blockIdx.x;
  cluster.sync();
  out[32 * blockIdx.x + threadIdx.x] =
      cluster.map_shared_rank(mine, cluster.block_rank() ^ 1)[threadIdx.x];
  cluster.sync();
}

__global__ void racing(int* out) {
  __shared__ int all[64];
  all[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = all[63 - threadIdx.x];  // without a barrier
}

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

float* device(std::size_t count, const char* name) {
  float* data = nullptr;
  CHECK_OK(cudaMalloc(&data, count * sizeof(float)));
  CHECK_OK(cudaMemset(data, 0, count * sizeof(float)));
  vgpuNameAllocation(data, name);
  return data;
}

std::string file_name(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path();
  return (folder / ("vgpu_look_" + std::to_string(getpid()) + "_" + name)).string();
}
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The data of a page, as a browser finds them: up to the first end of a script element.
Json data_in(const std::string& page) {
  const std::string begin = "id=\"look-data\">";
  const std::size_t at = page.find(begin);
  REQUIRE(at != page.npos);
  CHECK(page.size() <= 5'000'000);
  CHECK_FALSE(has(page, "<!-- look:"));
  const std::size_t end = page.find("</script", at);
  return json::parse(page.substr(at + begin.size(), end - at - begin.size()));
}

// The page of a child.
Json look_at(const std::string& child_name, const std::string& environment = "", int code = 0) {
  const std::string path = file_name("page.html");
  const Result result = child("VGPU_LOOK=" + path + " " + environment, child_name);
  CHECK_MESSAGE(result.code == code, result.text);
  CAPTURE(result.text);
  const std::string page = contents(path);
  std::filesystem::remove(path);
  REQUIRE_FALSE(page.empty());
  return data_in(page);
}

double number(const Json& object, const char* name) {
  const Json* const found = object.find(name);
  return found && found->is_number() ? found->get<double>() : 0;
}
double sum_of(const Json& lines, const char* name) {
  double sum = 0;
  for (const Json& line : lines)
    if (const Json* const costs = line.find("c")) sum += number(*costs, name);
  return sum;
}
double total(const Json& report, const char* space, const char* what) {
  double sum = 0;
  for (const char* access : {"load", "store", "atomic"})
    sum += number(report.at(space).at(access), what);
  return sum;
}

// What every page's launches must fulfil.
void check_sums(const Json& launch) {
  const Json& report = launch.at("report");
  const Json& ptx = launch.at("ptx");
  CHECK(sum_of(ptx, "executed") == number(report, "warp_instructions"));
  CHECK(sum_of(ptx, "threads") == number(report, "thread_instructions"));
  CHECK(sum_of(ptx, "requests") == total(report, "global", "requests"));
  CHECK(sum_of(ptx, "sectors") == total(report, "global", "sectors"));
  CHECK(sum_of(ptx, "wavefronts") == total(report, "shared", "wavefronts"));
  CHECK(sum_of(ptx, "conflicts") == total(report, "shared", "conflicts"));
}

// The line of this file's source that a PTX line comes from.
std::string source_of(const Json& data, const Json& line) {
  const Json& source = data.at("sources").item(line.at("f").get<std::uint64_t>());
  return source.at("lines").item(line.at("l").get<std::uint64_t>() - 1).get<std::string>();
}

}  // namespace

TEST_CASE("child: look: turn" * doctest::skip()) {
  float *in = device(1 << 16, kTrap), *out = device(1 << 16, "out");
  turn<<<64, kThreads>>>(in, out);
  turn<<<64, kThreads>>>(in, out);
  turn<<<2, kThreads>>>(in, out);
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: look: nothing" * doctest::skip()) { CHECK_OK(cudaFree(device(16, "x"))); }
TEST_CASE("child: look: far" * doctest::skip()) {
  far<<<1, 1>>>(device(16, "small"));
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}
TEST_CASE("child: look: together" * doctest::skip()) {
  int* sum = reinterpret_cast<int*>(device(64, "sum"));
  void* arguments[] = {&sum};
  CHECK_OK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&together), 8, 64, arguments,
                                       0, nullptr));
  neighbours<<<4, 32>>>(reinterpret_cast<int*>(device(128, "out")));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: look: racing" * doctest::skip()) {
  racing<<<1, 64>>>(reinterpret_cast<int*>(device(64, "out")));
  CHECK_OK(cudaDeviceSynchronize());
}
TEST_CASE("child: look: two pages" * doctest::skip()) {
  const auto look = reinterpret_cast<decltype(&vgpuLook)>(dlsym(RTLD_DEFAULT, "vgpuLook"));
  REQUIRE(bool(look));
  float *in = device(1 << 16, "in"), *out = device(1 << 16, "out");
  turn<<<3, kThreads>>>(in, out);
  CHECK(look("/no/such/place/x.html") == 1);
  CHECK(look("") == 1);
  CHECK(look(file_name("one.html").c_str()) == 0);
  turn<<<4, kThreads>>>(in, out);
  CHECK(look(file_name("two.html").c_str()) == 0);  // writes the first
  turn<<<5, kThreads>>>(in, out);
  CHECK_OK(cudaDeviceSynchronize());
  const Json one = data_in(contents(file_name("one.html")));
  REQUIRE(one.at("launches").size() == 1);
  CHECK(one.at("launches").front().at("report").at("grid").front().get<int>() == 4);
  CHECK(look(nullptr) == 0);
  const Json two = data_in(contents(file_name("two.html")));
  REQUIRE(two.at("launches").size() == 1);
  CHECK(two.at("launches").front().at("report").at("grid").front().get<int>() == 5);
  for (const char* name : {"one.html", "two.html"}) std::filesystem::remove(file_name(name));
}

TEST_CASE("look: a program's kernels with source, counters, times, machine code and accesses") {
  const Json data = look_at("look: turn");
  const Json& launches = data.at("launches");
  REQUIRE(launches.size() == 2);
  const Json& launch = launches.front();
  CHECK(launch.at("count").get<int>() == 2);
  CHECK(launches.back().at("count").get<int>() == 1);
  CHECK(launch.at("kernel").get<std::string>() == "turn");
  check_sums(launch);
  check_sums(launches.back());
  // A column of the tile: 32 lanes in one bank, 31 wavefronts too many, in each of 64 x 4 warps 8 times.
  CHECK(sum_of(launch.at("ptx"), "conflicts") == 31.0 * 64 * 4 * 8);
  CHECK(launch.at("flops").get<double>() == 0);

  // Time, and the same sums by machine instruction.
  REQUIRE_FALSE(launch.at("report").at("predicted").at("us").is_null());
  REQUIRE(launch.at("sass").is_array());
  CHECK(sum_of(launch.at("ptx"), "machine") == sum_of(launch.at("sass"), "executed"));
  const double by_ptx = sum_of(launch.at("ptx"), "time"),
               by_code = sum_of(launch.at("sass"), "time");
  CHECK(by_code > 0);
  CHECK(by_ptx == doctest::Approx(by_code).epsilon(0.01));
  bool loads = false;
  for (const Json& line : launch.at("sass")) {
    const std::string text = line.at("t").get<std::string>();
    CHECK(has(text, "stall "));
    if (!text.starts_with("LDG")) continue;
    loads = true;
    CHECK(has(text, "sets scoreboard"));
    const Json& from = launch.at("ptx").item(line.at("p").get<std::uint64_t>());
    CHECK(has(from.at("t").get<std::string>(), "ld.global"));
    CHECK(has(source_of(data, from), "tile[row][x] = in["));
  }
  CHECK(loads);
  CHECK(has(data.at("toolkit").get<std::string>(), "ptxas V"));

  // The source stands there as it is, also what would end the element.
  bool trap = false;
  for (const Json& source : data.at("sources")) {
    if (!has(source.at("path").get<std::string>(), "look_programs.cu")) continue;
    for (const Json& line : source.at("lines"))
      trap |= has(line.get<std::string>(), "with bank conflicts. </script><!--<script> é");
  }
  CHECK(trap);

  const Json& accesses = launch.at("accesses");
  bool read = false, column = false;
  for (const Json& access : accesses.at("list")) {
    const Json& instruction = accesses.at("instructions").item(access.at("i").get<std::uint64_t>());
    const bool shared = instruction.at("space").get<std::string>() == "shared";
    const bool load = instruction.at("kind").get<std::string>() == "load";
    if (!shared && load) {
      read = true;
      CHECK(access.at("a").get<std::string>() == kTrap);
      CHECK(access.at("s").get<int>() == 4);
      CHECK(access.at("o").at("step").get<int>() == 4);
    }
    if (!shared || !load) continue;
    column = true;
    CHECK(access.at("v").get<int>() == 32);
    CHECK(access.at("d").get<int>() == 1);
    CHECK(access.at("o").at("step").get<int>() == 128);
  }
  CHECK(read);
  CHECK(column);

  const Json& warps = launch.at("warps");
  REQUIRE(warps.at("packed").size() == 4);
  REQUIRE(warps.at("begin").size() == 4);
  CHECK(warps.at("resolution").get<int>() == 1);  // a small block: every piece
  double issued = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    const Json& packed = warps.at("packed").item(w);
    REQUIRE(packed.size() % 4 == 0);
    auto at = warps.at("begin").item(w).get<std::uint64_t>();
    for (std::size_t n = 0; n < packed.size(); n += 4) {
      CHECK(packed.item(n).get<std::int64_t>() > 0);
      at += packed.item(n).get<std::uint64_t>();
      const auto reason = packed.item(n + 3).get<std::int64_t>();
      if (reason >= 0 &&
          warps.at("reasons").item(std::size_t(reason)).get<std::string>() == "selected")
        issued += packed.item(n).get<double>();
    }
    CHECK(at <= warps.at("clocks").get<std::uint64_t>());
  }
  // An issue is one clock; the block is one of those that were simulated.
  CHECK(issued * launch.at("report").at("predicted").at("blocks_simulated").get<double>() ==
        sum_of(launch.at("sass"), "executed"));
  const Json& events = data.at("timeline").at("traceEvents");
  int kernels = 0;
  for (const Json& event : events)
    kernels += event.at("ph").get<std::string>() == "X" &&
               has(event.at("name").get<std::string>(), "turn");
  CHECK(kernels >= 3);
}

TEST_CASE("look: the same page each time, whatever the host") {
  const auto page = [](const std::string& environment) {
    Json data = look_at("look: turn", environment);
    std::string text;
    for (const Json& launch : data.at("launches"))
      for (const char* part : {"ptx", "sass", "accesses", "warps", "flops"})
        text += launch.at(part).dump();
    return text;
  };
  const bool same = page("VGPU_THREADS=1") == page("VGPU_THREADS=3");
  CHECK(same);
}

TEST_CASE("look: no ptxas, and no time wanted: counters and the reason") {
  for (const auto& [environment, why] :
       {std::pair("VGPU_PTXAS=/no/ptxas", "/no/ptxas"), std::pair("VGPU_TIME=0", "VGPU_TIME=0")}) {
    const Json data = look_at("look: turn", environment);
    const Json& launch = data.at("launches").front();
    check_sums(launch);
    CHECK(launch.at("sass").is_null());
    CHECK(has(launch.at("sass_why").get<std::string>(), why));
    CHECK(launch.at("warps").is_null());
    CHECK(sum_of(launch.at("ptx"), "time") == 0);
    CHECK(launch.at("accesses").at("list").size() > 0);
    CHECK(data.at("toolkit").is_null());
  }
}

TEST_CASE("look: without a launch, of cooperative ones, clusters, samples, failures, findings") {
  const Json nothing = look_at("look: nothing");
  CHECK(nothing.at("launches").size() == 0);
  CHECK(nothing.at("timeline").at("traceEvents").size() > 0);

  const Json together = look_at("look: together");
  REQUIRE(together.at("launches").size() == 2);
  for (const Json& launch : together.at("launches")) {
    check_sums(launch);
    CHECK(launch.at("accesses").at("list").size() > 0);
    CHECK(launch.at("sass").is_array());
  }
  bool remote = false;
  for (const Json& access : together.at("launches").back().at("accesses").at("list"))
    if (const Json* const of = access.find("of")) remote |= of->get<int>() == 1;
  CHECK(remote);

  const Json sampled = look_at("look: turn", "VGPU_TIME=sample");
  const Json& launch = sampled.at("launches").front();
  CHECK(launch.at("report").at("sampled").get<bool>());
  check_sums(launch);
  CHECK(launch.at("accesses").at("list").size() > 0);

  const Json failed = look_at("look: far");
  REQUIRE(failed.at("launches").size() == 1);
  const Json& findings = failed.at("launches").front().at("findings");
  REQUIRE(findings.size() == 1);
  CHECK(has(findings.front().get<std::string>(), "out-of-bounds write of 4 bytes"));
  CHECK(has(findings.front().get<std::string>(), "'small'"));
  CHECK(failed.at("launches").front().at("ptx").size() > 0);

  const Json racing = look_at("look: racing", "VGPU_CHECK=all", 86);
  REQUIRE(racing.at("launches").front().at("findings").size() > 0);
  CHECK(has(racing.at("launches").front().at("findings").front().get<std::string>(), "race: "));
  CHECK(racing.at("findings").size() >= racing.at("launches").front().at("findings").size());
}

TEST_CASE("look: a file that cannot be written, or that another output has") {
  Result result = child("VGPU_LOOK=/no/such/place/t.html", "look: nothing");
  CHECK(result.code == 1);  // every call fails
  CHECK(has(result.text, "VGPU_LOOK='/no/such/place/t.html': cannot be written: No such file"));
  CHECK(has(child("VGPU_LOOK=/tmp", "look: nothing").text,
            "VGPU_LOOK='/tmp': cannot be written: it is a folder"));
  const std::string path = file_name("same.html");
  for (const std::string other : {"VGPU_PROFILE=json:", "VGPU_TRACE=part:0:", "VGPU_TIMELINE="}) {
    result = child("VGPU_LOOK=" + path + " " + other + path, "look: nothing");
    CHECK_MESSAGE(has(result.text, "VGPU_LOOK name the same file '" + path + "': say two"),
                  result.text);
  }
  // The disk is full when the program ends: said, and the status of a program that is well becomes 3.
  result = child("VGPU_LOOK=/dev/full", "look: nothing");
  CHECK(result.code == 3);
  CHECK(has(result.text, "VGPU_LOOK: cannot write /dev/full: No space left"));
  CHECK(child("A=1", "look: two pages").code == 0);
}

TEST_CASE("look: two programs that write one file leave one whole page") {
  const std::string path = file_name("both.html");
  const std::string one = "env VGPU_LOOK=" + path + " /proc/" + std::to_string(getpid()) +
                          "/exe --no-skip -tc='child: look: ";
  const Result result = run("(" + one + "turn' & " + one + "together' & wait)");
  const std::string page = contents(path);
  std::filesystem::remove(path);
  CHECK_MESSAGE(data_in(page).at("launches").size() == 2, result.text);
  CHECK(page.ends_with("</html>\n"));
}

TEST_CASE("look: any program by the launcher, also without -lineinfo" *
          doctest::test_suite("toolkit")) {
  const std::string source = temporary("plain look.cu"), program = temporary("plain_look"),
                    path = file_name("plain.html");
  std::ofstream(source) << "__global__ void k(int* p) { p[threadIdx.x] = threadIdx.x; }\n"
                           "int main() { int* p = nullptr; cudaMalloc(&p, 128);\n"
                           "  k<<<1, 32>>>(p); return cudaDeviceSynchronize(); }\n";
  const Result built = run(nvcc() + " -gencode arch=compute_90,code=[compute_90,sm_90] -o " +
                           word(program) + " --cudart shared " + word(source));
  REQUIRE_MESSAGE(built.code == 0, built.text);
  const Result result =
      run("build/vgpu --look " + word(path) + " " + word(program) + " 'an </script> argument'");
  CHECK_MESSAGE(result.code == 0, result.text);
  const Json data = data_in(contents(path));
  std::filesystem::remove(path);
  CHECK(data.at("sources").size() == 0);
  CHECK(data.at("program").get<std::string>() == "plain_look");
  CHECK(data.at("arguments").front().get<std::string>() == "an </script> argument");
  const Json& launch = data.at("launches").front();
  check_sums(launch);
  for (const Json& line : launch.at("ptx")) CHECK(line.at("f").get<int>() == -1);
}
