// Submissions that do the work in a way that a counter or a check might not look at: each kind is played
// once, and what the counters make of it is tried on launches written by hand.
#include <doctest/doctest.h>

#include <cmath>

#include "grader/counters.h"
#include "lab/files.h"
#include "support.h"

using namespace lab::grader::testing;
using lab::grader::Counters;
using lab::grader::kScratch;

namespace {

// Parts of a launch as VGPU_PROFILE=json writes it.
std::string accesses(double requests, double bytes, double sectors, double ideal) {
  return lab::format(
      "{\"requests\": %g, \"bytes_asked\": %g, \"sectors\": %g, \"ideal_sectors_per_request\": %g}",
      requests, bytes, sectors, ideal);
}
const std::string kNone = accesses(0, 0, 0, 0);
std::string copies(double bytes) {
  return lab::format("{\"copies\": 1, \"bytes\": %g, \"l2_sectors\": %g}", bytes, bytes / 32);
}
std::string each(const std::string& load, const std::string& store, const std::string& atomic) {
  return "{\"load\": " + load + ", \"store\": " + store + ", \"atomic\": " + atomic;
}
std::string allocation(const std::string& load, const std::string& store = kNone,
                       const std::string& atomic = kNone, double copied = 0) {
  return each(load, store, atomic) +
         ", \"copy_engine\": " + each(copies(copied), copies(0), copies(0)) + "}}";
}
// 32 threads. local: bytes that they load, and store.
std::string launch(const std::string& allocations, double local = 0,
                   const std::string& more = "\"shared\": {}") {
  const std::string moved = accesses(1, local, local / 32, local / 32);
  return "{\"threads\": 32, \"allocations\": {" + allocations +
         "}, \"local\": " + each(moved, moved, kNone) + "}, " + more + "}";
}
Counters counters(const std::string& launches) {
  return Counters("[" + launches + "]", {"K", "V", "O"});
}
std::string fp_instructions(double fp32, double fp16, double macs) {
  return lab::format(
      "\"classes\": {\"fp32\": {\"thread\": %g}, \"fp16\": {\"thread\": %g}}, \"tensor_macs\": %g",
      fp32, fp16, macs);
}

// The solution of exercise 1 with another kernel, and a call of it in front of the others.
std::string with_kernel(const std::string& kernel, const std::string& call,
                        const std::string& headers = "") {
  return planted(planted(planted(first_solution(), "// Q, O: [batch, heads, shape.tokens",
                                 kernel + "\n// Q, O: [batch, heads, shape.tokens"),
                         "  float* scores = nullptr;", call + "\n  float* scores = nullptr;"),
                 "#include <cmath>", "#include <cmath>\n" + headers);
}
const std::vector<int> kAll = {30, 20, 15, 10, 10, 5, 5, 5}, kNothing(8, 0);

}  // namespace

TEST_CASE(
    "uncounted: the copy engine and atomics count as the loads and stores that they replace") {
  const Counters by_loads = counters(launch("\"K\": " + allocation(accesses(4, 2048, 64, 16))));
  const Counters by_engine = counters(launch("\"K\": " + allocation(kNone, kNone, kNone, 2048)));
  for (const Counters& c : {by_loads, by_engine}) {
    CHECK(c.bytes("K", "load") == 2048);
    CHECK(c.requests("K", "load") == 4);
    CHECK(c.sectors("K", "load") == 64);
    CHECK(c.loaded_tiles() == 2048);
    CHECK(c.moved_over_needed("K", "load", 1e9) == 1);
    CHECK(c.bytes("V", "load") == 0);
  }
  // 32 sectors for a warp's 128 bytes.
  const Counters by_atomics =
      counters(launch("\"mine\": " + allocation(kNone, kNone, accesses(1, 128, 32, 4))));
  for (const char* access : {"load", "store"}) {
    CHECK(by_atomics.bytes(kScratch, access) == 128);
    CHECK(by_atomics.sectors(kScratch, access) == 32);
    CHECK(by_atomics.moved_over_needed(kScratch, access, 1e9) == 8);
  }
  CHECK(by_atomics.load_and_store(kScratch).launches() == 1);
}

TEST_CASE("uncounted: local memory is memory of one's own, but for a few bytes a thread") {
  const Counters few = counters(launch("", 32 * 256)), many = counters(launch("", 32 * 257));
  CHECK(few.bytes(kScratch, "load") == 0);
  CHECK(few.stored() == 0);
  CHECK(many.bytes(kScratch, "load") == 32 * 257);
  CHECK(many.loaded_tiles() == 32 * 257);
  CHECK(many.stored() == 32 * 257);
  CHECK(many.load_and_store(kScratch).launches() == 1);
}

TEST_CASE("uncounted: accesses that nobody needs make no ratio better") {
  // 16 sectors for each one needed; beside them 1,000 times as many good ones.
  const Counters bad = counters(launch("\"V\": " + allocation(accesses(10, 640, 320, 2)))),
                 diluted =
                     counters(launch("\"V\": " + allocation(accesses(10'010, 5'120'640, 160'320,
                                                                     160'020 / 10'010.0))));
  CHECK(bad.moved_over_needed("V", "load", 640) == 16);
  CHECK(diluted.moved_over_needed("V", "load", 1e9) < 1.01);
  CHECK(diluted.moved_over_needed("V", "load", 640) > 16);
  CHECK(std::isnan(bad.moved_over_needed("O", "store", 640)));

  const auto shared = [](double conflicts, double ideal) {
    return counters(launch("", 0,
                           lab::format("\"shared\": {\"load\": {\"conflicts\": %g, \"ideal\": %g}}",
                                       conflicts, ideal)));
  };
  CHECK(shared(0, 0).bank_conflict_share(320) == 0);
  CHECK(shared(310, 10).bank_conflict_share(320) == 31);
  CHECK(shared(310, 310'000).bank_conflict_share(320) == 310 / 20.0);
  const Counters of_atomics = counters(launch(
      "", 0, "\"shared\": {\"atomic\": {\"conflicts\": 31, \"ideal\": 1, \"bytes_asked\": 128}}"));
  CHECK(of_atomics.bank_conflict_share(320) == 31);
  CHECK(of_atomics.brought_to_shared() == 128);
}

TEST_CASE("uncounted: products on tensor cores count where nobody else can have made them") {
  const auto macs = [](double fp32, double fp16) {
    return counters(launch("", 0, fp_instructions(fp32, fp16, 1000))).on_tensor_cores(1000);
  };
  CHECK(macs(100, 0) == 1000);  // a softmax
  CHECK(macs(500, 0) == 0);     // one of two products
  CHECK(macs(100, 250) == 0);   // half2
  CHECK(macs(1000, 1000) == 0);
}

TEST_CASE("uncounted: what the host tells the device, in any way, is at most 4 KiB") {
  const std::string nothing = "__global__ void nothing_kernel(Part) {}\n";
  const auto part = [&](int bytes) {
    return "struct Part {\n  unsigned char bytes[" + std::to_string(bytes) + "];\n};\n" + nothing;
  };
  const std::string own = "  unsigned char* mine = nullptr;\n  cudaMalloc(&mine, 8192);\n";
  const std::vector<Submission> submissions = {
      {"5 KiB are copied",
       with_kernel("",
                   own + "  std::vector<char> bytes(5120);\n"
                         "  cudaMemcpy(mine, bytes.data(), 5120, cudaMemcpyHostToDevice);",
                   "#include <vector>"),
       kNothing},
      {"as parameters",
       with_kernel(part(2000),
                   "  Part part;\n  for (int i = 0; i < 3; ++i) {\n"
                   "    std::memset(&part, i + 1, sizeof part);\n"
                   "    nothing_kernel<<<1, 1>>>(part);\n  }",
                   "#include <cstring>"),
       kNothing},
      {"in the size of shared memory",
       with_kernel(part(1), "  for (int i = 0; i < 6000; ++i) nothing_kernel<<<1, 1, i>>>({});"),
       kNothing},
      {"by fills of one byte",
       with_kernel("",
                   own + "  for (int i = 0; i < 3000; ++i) cudaMemset(mine + i, i * 7 % 251, 1);"),
       kNothing},
      {"by copies of single bytes of a table",
       with_kernel("", own + "  for (int i = 0; i < 3000; ++i)\n"
                             "    cudaMemcpy(mine + 4096 + i, mine + i * 7 % 251, 1, "
                             "cudaMemcpyDeviceToDevice);"),
       kNothing},
      {"device memory is copied to a constant, whose loads nobody counts",
       with_kernel("__constant__ unsigned char table[256];\n",
                   own + "  cudaMemcpyToSymbol(table, mine, 256, 0, cudaMemcpyDeviceToDevice);"),
       kNothing},
      // What is right is left alone.
      {"a launch for each of 500 rows",
       with_kernel("__global__ void row_kernel(const half*, int) {}\n",
                   "  for (int i = 0; i < 500; ++i)\n"
                   "    row_kernel<<<2, 64, 0, stream>>>(Q + i * shape.head_dim, i);"),
       kAll},
      {"the same parameter 100 times",
       with_kernel(part(2000),
                   "  Part part = {{1}};\n"
                   "  for (int i = 0; i < 100; ++i) nothing_kernel<<<1, 1>>>(part);"),
       kAll},
      {"4,000 bytes are copied",
       with_kernel("",
                   own + "  std::vector<char> bytes(4000);\n"
                         "  cudaMemcpy(mine, bytes.data(), 4000, cudaMemcpyHostToDevice);\n"
                         "  cudaFree(mine);",
                   "#include <vector>"),
       {30, 20, 15, 10, 10, 5, 5, 5}}};
  const std::vector<std::string> reports = check_points("exercise1", "exercise.cuh", submissions);
  for (size_t i = 0; i < 5; ++i) {
    CAPTURE(submissions[i].name);
    CHECK(contains(reports[i], "the host copies more than 4096 bytes to the device"));
  }
  CHECK(contains(reports[5], "the host copies device memory to a variable"));
}

TEST_CASE("uncounted: inputs and results are the kernels' to read and to write") {
  const std::vector<Submission> submissions = {
      {"a kernel writes into K",
       with_kernel("__global__ void write_kernel(half* K) { K[0] = __float2half(7.0f); }\n",
                   "  write_kernel<<<1, 1, 0, stream>>>(const_cast<half*>(K));"),
       kNothing},
      {"the host sets half of the result",
       with_kernel("", "  cudaMemsetAsync(O, 0, shape.elements(), stream);"), kNothing},
      {"the host sets all of the result, before",
       with_kernel("", "  cudaMemsetAsync(O, 0, shape.elements() * sizeof(half), stream);"), kAll},
      {"device code that was made at run time",
       with_kernel("extern \"C\" void** __cudaRegisterFatBinary(void*);\n"
                   "extern \"C\" void __cudaRegisterFunction(void**, const char*, char*, const "
                   "char*, int,\n"
                   "    uint3*, uint3*, dim3*, dim3*, int*);\n",
                   "  static unsigned container[1024] = {0xba55ed50, 0x00100001, 4080};\n"
                   "  container[5] = unsigned(keys);\n"
                   "  static struct {\n    unsigned magic = 0x466243b1, version = 1;\n"
                   "    const void* data = container;\n    void* none = nullptr;\n  } wrapper;\n"
                   "  static char name[] = \"made\";\n"
                   "  void** const made = __cudaRegisterFatBinary(&wrapper);\n"
                   "  __cudaRegisterFunction(made, name, name, name, -1, 0, 0, 0, 0, 0);\n"
                   "  cudaLaunchKernel(name, 1, 1, nullptr, 0, stream);"),
       kNothing}};
  const std::vector<std::string> reports = check_points("exercise1", "exercise.cuh", submissions);
  CHECK(contains(reports[0], "the kernel wrote into its input 'K'"));
  CHECK(contains(reports[1], "the host fills a part of the result"));
  CHECK(contains(reports[3], "it loads device code that the compiler has not made of its file"));
}

TEST_CASE("uncounted: a softmax by atomics, and loads of V that others hide") {
  // One lane of a warp, and each access an atomic.
  std::string atomics = planted(first_solution(), "for (int key = lane; key < keys; key += 32)",
                                "for (int key = lane == 0 ? 0 : keys; key < keys; ++key)");
  for (const auto& [find, replace] :
       {std::pair{"fmaxf(row_max, row_scores[key])",
                  "fmaxf(row_max, atomicAdd(row_scores + key, 0))"},
        {"expf(row_scores[key] - row_max)", "expf(atomicAdd(row_scores + key, 0) - row_max)"},
        {"row_scores[key] = weight;", "atomicExch(row_scores + key, weight);"},
        {"row_scores[key] /= row_sum;",
         "atomicExch(row_scores + key, atomicAdd(row_scores + key, 0) / row_sum);"}})
    atomics = planted(atomics, find, replace);
  // Lanes along queries, whose loads are a row apart, as a student may have it; and in front of each such
  // kernel one that loads V well, again and again.
  const std::string uncoalesced =
      planted(first_solution(),
              "const int d = int(index % head_dim);\n"
              "  const int64_t query_row = index / head_dim;  // (batch, head, query)\n"
              "  const int64_t matrix = query_row / queries;\n",
              "const int d = int(index / queries % head_dim);\n"
              "  const int64_t matrix = index / queries / head_dim;\n"
              "  const int64_t query_row = matrix * queries + index % queries;\n"
              "  for (int i = 0; min(queries, keys) >= 8 && i < 20 * keys; ++i)\n"
              "    asm volatile(\"{\\n.reg .b32 a, b;\\nld.volatile.global.v2.b32 {a, b}, "
              "[%0];\\n}\" ::\"l\"(\n"
              "        reinterpret_cast<const uint2*>(i % 2 ? reinterpret_cast<const "
              "half*>(weights) : V) +\n"
              "        threadIdx.x % 32));\n");
  check_points("exercise1", "exercise.cuh",
               {{"atomics", atomics, {30, 20, 0, 0, 10, 5, 5, 5}},
                {"hidden", uncoalesced, {30, 20, 15, 10, 0, 5, 5, 0}}});
}

TEST_CASE("uncounted: a race that is nowhere but in one problem") {
  const auto race_where = [](const std::string& where) {
    return planted(
        planted(planted(first_solution(),
                        "for (int step = 16; step > 0; step /= 2) x += "
                        "__shfl_xor_sync(0xffffffffu, x, step);\n  return x;",
                        "__shared__ float parts[kThreads];\n"
                        "  parts[threadIdx.x] = x;\n"
                        "  if (careful) __syncwarp();\n"
                        "  x = 0.0f;\n"
                        "  for (int i = 0; i < 32; ++i) x += parts[threadIdx.x / 32 * 32 + i];\n"
                        "  if (careful) __syncwarp();\n"
                        "  return x;"),
                "constexpr int kThreads", "__device__ bool careful;\nconstexpr int kThreads"),
        "  float* scores = nullptr;",
        "  const bool careful_now = " + where +
            ";\n  cudaMemcpyToSymbol(careful, &careful_now, sizeof careful_now);\n"
            "  float* scores = nullptr;");
  };
  const std::vector<int> race = {30, 0, 15, 10, 10, 5, 5, 5};
  const auto reports =
      check_points("exercise1", "exercise.cuh",
                   {{"that is measured", race_where("!(shape.tokens == 64 && keys == 96)"), race},
                    {"that is large", race_where("shape.tokens < 197"), race},
                    {"nowhere", race_where("true"), kAll}});
  CHECK(contains(reports[0], "in the problem that is measured"));
  CHECK_FALSE(contains(reports[1], "in the problem that is measured"));
}
