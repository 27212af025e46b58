// tensormap.replace, tensormap.cp_fenceproxy and the fences around them: a kernel makes a map of
// another tensor out of the one that it was given.
#include <cstring>
#include <iterator>

#include "../core/tensor_map.h"
#include "core_cluster_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// The map that the program makes: of 64 bytes, somewhere else.
TensorMap first_map(std::uint64_t address) {
  const std::uint64_t sizes[] = {64}, strides[] = {0};
  const std::uint32_t box[] = {16}, steps[] = {1};
  TensorMapRequest r;
  r.rank = 1;
  r.address = address;
  r.sizes = sizes, r.strides = strides, r.box = box, r.element_strides = steps;
  TensorMap map;
  REQUIRE(encode(r, map).text == "");
  return map;
}

// What the kernel makes of it: float, 13 x 9 x 5, rows 64 bytes apart, planes 640. Boxes have 8 x 4 x 2
// elements, of every second row, swizzled by 32 bytes, and NaN outside.
constexpr int kSizes[] = {13, 9, 5}, kBox[] = {8, 7, 2}, kSteps[] = {1, 2, 1};
constexpr int kRow = 64, kPlane = 640, kRows = 4, kWords = 8 * kRows * 2;
constexpr std::size_t kTensorAt = 256;  // behind two maps

std::string all_fields(const std::string& space, const std::string& at) {
  const auto replace = [&](const std::string& field, const std::string& rest, int bits = 32) {
    return "tensormap.replace.tile." + field + space + ".b1024.b" + std::to_string(bits) + " [" +
           at + "], " + rest + ";\n";
  };
  std::string text =
      replace("global_address", "%rd2", 64) + replace("elemtype", "7") + replace("rank", "2") +
      replace("swizzle_mode", "1") + replace("fill_mode", "1") + replace("interleave_layout", "0") +
      replace("global_stride", "1, %rd3", 64) + replace("global_stride", "0, 64", 64);
  for (int d = 0; d < 3; ++d) {
    const std::string n = std::to_string(d) + ", ";
    text += replace("global_dim", n + std::to_string(kSizes[d])) + "mov.u32 %r9, " +
            std::to_string(kBox[d]) + ";\n" + replace("box_dim", n + "%r9") +
            replace("element_stride", n + std::to_string(kSteps[d]));
  }
  return text;
}

const std::string kTileAndMap =
    ".shared .align 128 .b8 tile[1024]; .shared .align 128 .b8 map[128];\n"
    ".shared .align 8 .b64 object;\n";
// %rd1: the map in global memory. %rd2: the tensor. %r1: the tile. %r2: the mbarrier. %r3: the map in
// shared memory, copied from %rd1. %rd4: the same as a generic address.
const std::string kCopyMap = R"(
mov.u32 %r1, tile; mov.u32 %r2, object; mov.u32 %r3, map; setp.ne.u32 %p1, %thread, 0;
mov.u64 %rd1, %in; add.u64 %rd2, %in, 256; mov.u64 %rd3, 640; mov.u64 %rd4, map;
cvta.shared.u64 %rd4, %rd4;
@!%p1 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
shl.b32 %r4, %thread, 2; add.u32 %r5, %r3, %r4; cvt.u64.u32 %rd5, %r4; add.u64 %rd5, %rd5, %rd1;
ld.global.u32 %r6, [%rd5]; st.shared.u32 [%r5], %r6; bar.sync 0;
)";
// Loads the box at (-3, 4, 3) with the map at %rd1 and gives it to `out`.
const std::string kLoadBox = R"(
fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
mov.u32 %r10, -3; mov.u32 %r11, 4; mov.u32 %r12, 3;
@!%p1 mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r2], 256;
@!%p1 cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r10, %r11, %r12}], [%r2];
wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra wait;
add.u32 %r4, %r4, %r1; ld.shared.u32 %r6, [%r4]; ld.shared.u32 %r7, [%r4+128];
st.global.u32 [%mine], %r6; st.global.u32 [%mine+128], %r7;
)";
const std::string kCopy =
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
    "[%rd1], [%r3], 128;\n";

std::string with_a(std::string text) { return text.replace(text.find("sm_90\n"), 6, "sm_90a\n"); }

struct Replaced {
  Gpu gpu{MachineOptions{.threads = 1,
                         .check_race = true,
                         .check_init = true,
                         .check_sync = true,
                         .check_proxy = true}};
  Array<std::uint32_t> out = gpu.array<std::uint32_t>(kWords, 0);
  Array<std::byte> in = gpu.array<std::byte>(kTensorAt + 5 * kPlane);
  explicit Replaced(const TensorMap* map = nullptr) {
    const TensorMap made = map ? *map : first_map(in.address() + 512);
    std::memcpy(in.data(), &made, sizeof made);
    for (std::size_t i = kTensorAt; i < in.count; i += 4) {
      const float value = static_cast<float>(i);
      std::memcpy(in.data() + i, &value, 4);
    }
    gpu.machine.memory().mark_written(in.address(), in.count);
  }
  LaunchOutcome run(const std::string& body, unsigned threads = 32) {
    return gpu.launch(with_a(kernel(kCopyMap + body, kTileAndMap)), {out.address(), in.address()},
                      {threads, 1, 1});
  }
};

// The word of the tile at `i`, by the manual's formulas.
std::uint32_t wanted(int i) {
  // Swizzled by 32 bytes: bit 4 of the address changes with bit 7.
  const int byte = i * 4, straight = byte ^ (byte >> 3 & 16), word = straight / 4;
  const int x = word % 8 - 3, y = 4 + word / 8 % kRows * kSteps[1], z = 3 + word / 8 / kRows;
  float value = 0;
  std::uint32_t bits = 0x7fffffff;
  if (x < 0 || x >= kSizes[0] || y >= kSizes[1] || z >= kSizes[2]) return bits;
  value = static_cast<float>(kTensorAt) + static_cast<float>(x * 4 + y * kRow + z * kPlane);
  std::memcpy(&bits, &value, 4);
  return bits;
}

}  // namespace

TEST_CASE("tensormap.replace: every field, in shared and in global memory") {
  const std::string release = "fence.proxy.tensormap::generic.release.gpu;\n";
  const std::string in_place[] = {
      "@%p1 bra made;\n" + all_fields(".shared::cta", "%r3") + "made: bar.sync 0;\n" + kCopy,
      "@%p1 bra made;\n" + all_fields("", "%rd4") + "made: bar.sync 0;\n" + kCopy,
      "@%p1 bra made;\n" + all_fields(".global", "%rd1") + release + "made: bar.sync 0;\n",
      "@%p1 bra made;\n" + all_fields("", "%rd1") + release + "made: bar.sync 0;\n"};
  for (const std::string& change : in_place) {
    CAPTURE(change);
    Replaced r;
    const LaunchOutcome outcome = r.run(change + kLoadBox);
    REQUIRE(outcome.fault.message == "");
    CHECK(outcome.findings.size() == 0);
    CHECK_SAME(r.out.values(),
               expected(kWords, [](std::uint32_t i) { return wanted(static_cast<int>(i)); }));
  }
  // Each scope of the copy.
  for (const std::string scope : {".cta", ".cluster", ".sys"}) {
    std::string copy = kCopy;
    copy.replace(copy.find(".gpu"), 4, scope);
    Replaced r;
    REQUIRE(r.run(copy).fault.message == "");
  }
}

TEST_CASE("tensormap.replace: types have the numbers of PTX, which are not CUDA's") {
  const char* const names[] = {"UINT8",    "UINT16",   "UINT32",      "INT32",       "UINT64",
                               "INT64",    "FLOAT16",  "FLOAT32",     "FLOAT32_FTZ", "FLOAT64",
                               "BFLOAT16", "TFLOAT32", "TFLOAT32_FTZ"};
  for (std::uint64_t i = 0; i < std::size(names); ++i) {
    TensorMap map = first_map(1024);
    CHECK(replace(map, TensorMapField::elemtype, 0, i).text == "");
    CHECK(std::string(name_of(map.type)) == names[i]);
    CHECK(map.sealed());
  }
}

TEST_CASE(
    "tensormap.replace: what a map cannot hold is refused at once, what no copy can use there") {
  struct Bad {
    const char *change, *text;
  };
  const auto at_once = [](const std::string& change) {
    return Replaced().run("@%p1 bra made;\n" + change + "made:\n").fault.message;
  };
  for (const Bad& bad : {
           Bad{"tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r3], 5;",
               "rank is 5: 0 to 4, one less than the number of dimensions"},
           Bad{"tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r3], 2, 257;",
               "box_dim[2] is 257: 1 to 256"},
           Bad{"tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 2, 0;",
               "box_dim[2] is 0: 1 to 256"},
           Bad{"tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r3], 1, 9;",
               "element_stride[1] is 9: 1 to 8"},
           Bad{"tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r3], 4, 16;",
               "ordinal of global_stride is 4: 0 to 3"},
           Bad{"tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r3+32], 1;", "misaligned"},
           Bad{"tensormap.replace.tile.rank.global.b1024.b32 [%rd2], 1;",
               "tensormap.replace in 128 bytes that are no tensor map"},
           Bad{"tensormap.replace.tile.rank.b1024.b32 [0], 1;", "null"},
       })
    CHECK(lacks(at_once(bad.change), bad.text) == "");
  const auto at_use = [](const std::string& change) {
    return Replaced()
        .run("@%p1 bra made;\n" + all_fields(".shared::cta", "%r3") + change +
             "made: bar.sync 0;\n" + kCopy + kLoadBox)
        .fault.message;
  };
  for (const Bad& bad : {
           Bad{"tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r3], 1, 0;",
               "globalDim[1] is 0: 1 to 2^32"},
           Bad{"tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r3], 1, 24;",
               "globalStrides[1] is 24: a multiple of 16"},
           Bad{"tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r3], 8;",
               "globalAddress is 0x8"},
           Bad{"tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r3], 0, 9;",
               "boxDim[0] is 9 (36 bytes)"},
           Bad{"tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r3], 3;",
               "elementStrides[3] is 0: 1 to 8"},
           Bad{"tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r3], 1;",
               "interleave 16B"},
           Bad{"tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r3], 1;",
               "tensor copy of 3 dimensions with a map of tensorRank 2"},
       })
    CHECK(lacks(at_use(bad.change), bad.text) == "");
  TensorMap pixels = first_map(1024);
  pixels.im2col = true;
  CHECK(replace(pixels, TensorMapField::rank, 0, 1).text.find("cuTensorMapEncodeIm2col") !=
        std::string::npos);
}

TEST_CASE("tensormap.cp_fenceproxy: the lanes of a warp copy one map together") {
  CHECK(lacks(Replaced().run("@%p1 bra skip;\n" + kCopy + "skip: bar.sync 0;\n").fault.message,
              "needs all lanes of the warp together; here 1 of 32 execute it") == "");
  CHECK(lacks(Replaced()
                  .run("mad.lo.u32 %r3, %thread, 0, %r3; @!%p1 add.u32 %r3, %r3, 128;\n" + kCopy)
                  .fault.message,
              "where all lanes of the warp must have the same") == "");
}
