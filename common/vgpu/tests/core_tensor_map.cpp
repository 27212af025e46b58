// What cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col take and refuse; when tensor copies land,
// what they are told apart from, multicasts, counters, and what is said of maps that are wrong.
#include <array>
#include <cstring>
#include <functional>

#include "../core/tensor_map.h"
#include "core_cluster_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

struct Wanted {
  std::uint64_t sizes[5] = {64, 10, 9, 8, 7}, strides[4] = {256, 4096, 65536, 1 << 20};
  std::uint32_t box[5] = {32, 4, 3, 2, 1}, steps[5] = {1, 1, 1, 1, 1};
  int lower[3] = {-1, -1, -1}, upper[3] = {-1, -1, -1};
  TensorMapRequest r;  // points to these
  Wanted(const Wanted&) = delete;
  explicit Wanted(std::uint64_t address = 0x100000000000, bool im2col = false) {
    r.im2col = im2col;
    r.type = static_cast<int>(TensorType::f16);
    r.rank = 4;
    r.address = address;
    r.sizes = sizes, r.strides = strides, r.box = box, r.element_strides = steps;
    r.lower = lower, r.upper = upper;
    r.channels = 32, r.pixels = 16;
  }
  std::string fault(bool supported = true) const {
    TensorMap map;
    const TensorMapFault f = encode(r, map);
    CHECK(f.supported == supported);
    CHECK(map.sealed() == f.text.empty());
    return f.text;
  }
  std::array<std::byte, kTensorMapBytes> map() const {
    TensorMap made;
    REQUIRE(encode(r, made).text == "");
    std::array<std::byte, kTensorMapBytes> bytes = {};
    std::memcpy(bytes.data(), &made, sizeof made);
    return bytes;
  }
};

}  // namespace

TEST_CASE("tensor map: each field that is wrong is named, with its value and what would be right") {
  struct Case {
    std::function<void(Wanted&)> change;
    const char* text;  // "": it is right
  };
  const Case tiled[] = {
      {[](Wanted&) {}, ""},
      {[](Wanted& w) { w.r.type = 16; }, "tensorDataType is 16: 0 to 15 are types"},
      {[](Wanted& w) { w.r.type = -1; }, "tensorDataType is -1: "},
      {[](Wanted& w) { w.r.rank = 0; }, "tensorRank is 0: 1 to 5"},
      {[](Wanted& w) { w.r.rank = 6; }, "tensorRank is 6: 1 to 5"},
      {[](Wanted& w) { w.r.rank = 2, w.r.interleave = 1; },
       "tensorRank is 2: 3 to 5 with interleave"},
      {[](Wanted& w) { w.r.address += 8; },
       "globalAddress is 0x100000000008: it must be a device address that is a multiple of 16"},
      {[](Wanted& w) { w.r.address = 0; }, "globalAddress is 0x0: "},
      {[](Wanted& w) { w.r.sizes = nullptr; }, "globalDim is null: it must point to an array"},
      {[](Wanted& w) { w.r.strides = nullptr; }, "globalStrides is null: "},
      {[](Wanted& w) { w.r.strides = nullptr, w.r.rank = 1; }, ""},
      {[](Wanted& w) { w.r.box = nullptr; }, "boxDim is null: "},
      {[](Wanted& w) { w.r.element_strides = nullptr; }, "elementStrides is null: "},
      {[](Wanted& w) { w.sizes[2] = 0; }, "globalDim[2] is 0: 1 to 2^32"},
      {[](Wanted& w) { w.sizes[0] = 1ull << 32; }, ""},
      {[](Wanted& w) { w.sizes[3] = (1ull << 32) + 1; }, "globalDim[3] is 4294967297: 1 to 2^32"},
      {[](Wanted& w) { w.strides[1] = 4104; },
       "globalStrides[1] is 4104: a multiple of 16 below 2^40 (bytes)"},
      {[](Wanted& w) { w.strides[2] = (1ull << 40) - 16; }, ""},
      {[](Wanted& w) { w.strides[2] = 1ull << 40; }, "globalStrides[2] is 1099511627776: "},
      {[](Wanted& w) { w.strides[3] = 1; }, ""},  // beyond the rank
      {[](Wanted& w) { w.box[1] = 0; }, "boxDim[1] is 0: 1 to 256"},
      {[](Wanted& w) { w.box[3] = 256; }, ""},
      {[](Wanted& w) { w.box[3] = 257; }, "boxDim[3] is 257: 1 to 256"},
      {[](Wanted& w) { w.box[0] = 33; },
       "boxDim[0] is 33 (66 bytes): its elements of 2 bytes must be a multiple of 16 bytes"},
      {[](Wanted& w) { w.steps[0] = 0; }, ""},  // ignored
      {[](Wanted& w) { w.steps[1] = 0; }, "elementStrides[1] is 0: 1 to 8"},
      {[](Wanted& w) { w.steps[2] = 9; }, "elementStrides[2] is 9: 1 to 8"},
      {[](Wanted& w) { w.r.interleave = 3; }, "interleave is 3: 0 (NONE), 1 (16B) or 2 (32B)"},
      {[](Wanted& w) { w.r.interleave = 2; }, "swizzle is 0: interleave 32B needs 1 (32B)"},
      {[](Wanted& w) { w.r.swizzle = 7; }, "swizzle is 7: 0 (NONE) to 3 (128B)"},
      {[](Wanted& w) { w.r.swizzle = 1; },
       "boxDim[0] is 32 (64 bytes): swizzle 32B allows at most 16 elements"},
      {[](Wanted& w) { w.r.swizzle = 2; }, ""},
      {[](Wanted& w) { w.r.swizzle = 3; }, ""},
      {[](Wanted& w) { w.r.swizzle = 3, w.box[0] = 72; },
       "boxDim[0] is 72 (144 bytes): swizzle 128B allows at most 64 elements"},
      {[](Wanted& w) { w.r.promotion = 4; }, "l2Promotion is 4: 0 (NONE) to 3 (256B)"},
      {[](Wanted& w) { w.r.fill = 2; }, "oobFill is 2: 0 (NONE) or 1 (NAN_REQUEST_ZERO_FMA)"},
      {[](Wanted& w) { w.r.fill = 1; }, ""},
      {[](Wanted& w) { w.r.fill = 1, w.r.type = 1; },
       "oobFill is 1 (NAN_REQUEST_ZERO_FMA): tensorDataType UINT16 has no NaN"},
  };
  for (const Case& c : tiled) {
    Wanted w;
    c.change(w);
    INFO(c.text);
    CHECK((*c.text ? lacks(w.fault(), c.text) : w.fault()) == "");
  }
  const Case pixels[] = {
      {[](Wanted&) {}, ""},
      {[](Wanted& w) { w.r.box = nullptr; }, ""},
      {[](Wanted& w) { w.r.rank = 2; }, "tensorRank is 2: 3 to 5 for im2col"},
      {[](Wanted& w) { w.r.lower = nullptr; }, "pixelBoxLowerCorner is null: "},
      {[](Wanted& w) { w.r.upper = nullptr; }, "pixelBoxUpperCorner is null: "},
      {[](Wanted& w) { w.r.channels = 0; }, "channelsPerPixel is 0: 1 to 256"},
      {[](Wanted& w) { w.r.channels = 257; }, "channelsPerPixel is 257: 1 to 256"},
      {[](Wanted& w) { w.r.channels = 31; }, "channelsPerPixel is 31 (62 bytes): "},
      {[](Wanted& w) { w.r.pixels = 1025; }, "pixelsPerColumn is 1025: 1 to 1024"},
      {[](Wanted& w) { w.r.pixels = 0; }, "pixelsPerColumn is 0: 1 to 1024"},
      {[](Wanted& w) { w.lower[1] = -129; },
       "pixelBoxLowerCorner[1] is -129: -128 to 127 for rank 4"},
      {[](Wanted& w) { w.lower[0] = -129, w.r.rank = 3; }, ""},
      {[](Wanted& w) { w.upper[2] = 16, w.r.rank = 5; },
       "pixelBoxUpperCorner[2] is 16: -16 to 15 for rank 5"},
      {[](Wanted& w) { w.upper[0] = -10, w.lower[0] = -1; }, ""},
      {[](Wanted& w) { w.upper[0] = -10, w.lower[0] = 0; },
       "pixelBoxUpperCorner[0] is -10: with pixelBoxLowerCorner 0 it leaves no pixel of 10"},
      {[](Wanted& w) { w.r.swizzle = 1; }, "channelsPerPixel is 32 (64 bytes): swizzle 32B"},
  };
  for (const Case& c : pixels) {
    Wanted w(0x100000000000, true);
    c.change(w);
    INFO(c.text);
    CHECK((*c.text ? lacks(w.fault(), c.text) : w.fault()) == "");
  }
}

TEST_CASE("tensor map: the bit that CUTLASS clears in small tensors' maps is not set in any") {
  for (const bool im2col : {false, true})
    for (int type = 0; type < kTensorTypes; ++type)
      for (int swizzle = 0; swizzle < 4; ++swizzle) {
        Wanted w(0x1fffffffe0, im2col);
        w.r.type = type, w.r.swizzle = swizzle, w.r.promotion = 3;
        w.box[0] = w.r.channels = 32 / bytes_of(static_cast<TensorType>(type));
        for (std::uint64_t& stride : w.strides) stride = (1u << 21) + 512;
        auto bytes = w.map();
        std::uint64_t second;
        std::memcpy(&second, &bytes[8], sizeof second);
        CHECK((second >> 21 & 1) == 0);
        second &= ~(std::uint64_t{1} << 21);
        std::memcpy(&bytes[8], &second, sizeof second);
        TensorMap map;
        std::memcpy(&map, bytes.data(), sizeof map);
        CHECK(map.sealed());
      }
}

TEST_CASE("tensor map: what CUDA has beyond this is refused by its name") {
  Wanted packed, atom, slices;
  packed.r.type = 13;
  CHECK(lacks(packed.fault(false), "tensorDataType 13 (packed 16U4, 16U6) is not supported") == "");
  CHECK(lacks(packed.fault(false), "GPUs have it from compute capability 10.0 on") == "");
  atom.r.swizzle = 4;
  CHECK(lacks(atom.fault(false), "swizzle 4 (128B_ATOM) is not supported") == "");
  CHECK(lacks(atom.fault(false), "GPUs have it from compute capability 10.0 on") == "");
  slices.r.interleave = 1;
  CHECK(lacks(slices.fault(false), "interleave 16B (NVIDIA does not say where") == "");
}

TEST_CASE("tensor map: another address, in a map and in nothing else") {
  TensorMap map;
  REQUIRE(encode(Wanted().r, map).text == "");
  CHECK(replace_address(map, 0x100000000010).text == "");
  CHECK(map.address == 0x100000000010);
  CHECK(map.sealed());
  CHECK(lacks(replace_address(map, 0x100000000018).text, "globalAddress is 0x100000000018: ") ==
        "");
  map.box[0] = 16;
  CHECK(!map.sealed());
  CHECK(lacks(replace_address(map, 0x100000000020).text, "tensorMap is no tensor map") == "");
}

namespace {

using Bytes128 = std::array<std::byte, kTensorMapBytes>;

// A kernel of one block with the map as its third parameter, at %map, and 4 KiB of shared memory at %r1.
std::string with_map(const std::string& body, const std::string& target = "sm_90") {
  std::string text = ".version 8.6\n.target " + target + R"(
.address_size 64
.shared .align 1024 .b8 tile[4096]; .shared .align 8 .b64 object; .const .align 128 .b8 fixed[128];
.visible .entry k(.param .u64 p_out, .param .u64 p_in, .param .align 128 .b8 p_map[128])
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<30>; .reg .b64 %rd<20>, %out, %in, %map;
ld.param.u64 %out, [p_out]; ld.param.u64 %in, [p_in];
mov.b64 %map, p_map; cvta.param.u64 %map, %map; mov.u32 %r1, tile; mov.u32 %r2, object;
mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; mov.u64 %rd9, 0;
)" + body + "\nret;\n}\n";
  return text;
}
const std::string kLoad =
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], "
    "[%map, "
    "{%r3, %r4}], [%r2];\n";
const std::string kBegin =
    "mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;\n"
    "mov.u32 %r3, 0; mov.u32 %r4, 0;\n";
const std::string kWait =
    "wait: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0; @!%p1 bra wait;\n";

// 8 rows of 16 words, 128 bytes apart, all inside an array of 1024 bytes; boxes of 4 x 4.
struct Words : Wanted {
  explicit Words(std::uint64_t address) : Wanted(address) {
    r.type = static_cast<int>(TensorType::u32);
    r.rank = 2;
    sizes[0] = 16, sizes[1] = 8, strides[0] = 128, box[0] = box[1] = 4;
  }
};
const std::vector<std::uint32_t> kNumbers = expected(256, [](auto i) { return 1000 + i; });

}  // namespace

TEST_CASE("tensor: a load lands with the wait and not before; a store reads and writes as late") {
  Gpu gpu;
  const auto in = gpu.array(kNumbers);
  const auto out = gpu.array<std::uint32_t>(8);
  Words w(in.address());
  const auto outcome = gpu.launch(with_map(kBegin + R"(
st.shared.u32 [%r1], 7; fence.proxy.async;
mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 64;
)" + kLoad + R"(
ld.shared.u32 %r5, [%r1];                        // too early: what was there before
st.global.u32 [%in], 5;                          // and what the load brings is read later
)" + kWait + R"(
ld.shared.u32 %r6, [%r1]; ld.shared.u32 %r7, [%r1+16];
mov.u32 %r3, 4;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%r3, %r4}], [%r1];
cp.async.bulk.commit_group;
st.shared.u32 [%r1], 8; ld.global.u32 %r8, [%in+16];
cp.async.bulk.wait_group.read 0;
st.shared.u32 [%r1], 9; ld.global.u32 %r9, [%in+16];
cp.async.bulk.wait_group 0;
ld.global.u32 %r10, [%in+16];
st.global.v4.u32 [%out], {%r5, %r6, %r7, %r8}; st.global.v2.u32 [%out+16], {%r9, %r10};)"),
                                  {out.address(), in.address(), w.map()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  CHECK_SAME(out.values(), {7, 5, 1032, 1004, 1004, 8, 0, 0});
}

TEST_CASE("tensor: a map in parameters, in constant and in global memory; hints about it") {
  Gpu gpu;
  const auto in = gpu.array(kNumbers);
  const Bytes128 bytes = Words(in.address()).map();
  const auto in_memory = gpu.array(std::vector<std::byte>(bytes.begin(), bytes.end()));
  for (const std::string where : {"", "mov.u64 %map, %rd10;\n"}) {
    const auto out = gpu.array<std::uint32_t>(2);
    const auto outcome = gpu.launch(with_map(kBegin + "ld.global.u64 %rd10, [%out];\n" + where + R"(
prefetch.tensormap [%map]; prefetch.param.tensormap [p_map]; prefetch.const.tensormap [fixed];
fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [%map], 128;
fence.proxy.tensormap::generic.release.cta; fence.proxy.tensormap::generic.acquire.cta [%map], 128;
fence.proxy.tensormap::generic.release.sys; fence.proxy.tensormap::generic.acquire.sys [%map], 128;
fence.proxy.tensormap::generic.release.cluster;
fence.proxy.tensormap::generic.acquire.cluster [%map], 128;
mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 64; mov.u32 %r3, 8; mov.u32 %r4, 1;
)" + kLoad + kWait + "ld.shared.u32 %r5, [%r1]; st.global.u32 [%out], %r5;"),
                                    {out.address(), in.address(), bytes}, {1, 1, 1});
    // (Its own address: the kernel reads it from where it will write.)
    if (where.empty()) {
      REQUIRE(outcome.fault.message == "");
      CHECK(out[0] == 1000 + 32 + 8);
      continue;
    }
    CHECK(lacks(outcome.fault.message, "null pointer") == "");
    const auto with_address = gpu.array(std::vector<std::uint64_t>{in_memory.address()});
    const auto second = gpu.launch(
        with_map(kBegin + "ld.global.u64 %map, [%out];\n" +
                 "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 64; mov.u32 %r3, 8;\n" + kLoad +
                 kWait + "ld.shared.u32 %r5, [%r1]; st.global.u32 [%out], %r5;"),
        {with_address.address(), in.address(), Bytes128{}}, {1, 1, 1});
    REQUIRE(second.fault.message == "");
    CHECK(with_address[0] % (1ull << 32) == 1008);
  }
}

TEST_CASE("tensor: prefetches touch nothing, and want a box inside the allocation") {
  Gpu gpu;
  const auto in = gpu.array(kNumbers);
  for (std::size_t rank = 1; rank <= 5; ++rank)
    for (const std::string mode : {"", ".tile", ".im2col"})
      for (const std::string hint : {"", ".L2::cache_hint"}) {
        const bool im2col = mode.size() > 5;
        if (im2col && rank < 3) continue;
        Wanted w(in.address(), im2col);
        w.r.type = static_cast<int>(TensorType::u32);
        w.r.rank = static_cast<std::uint32_t>(rank);
        w.r.channels = 4, w.r.pixels = 2;
        for (int d = 0; d < 5; ++d) w.sizes[d] = d ? 2 : 4, w.box[d] = d ? 2 : 4;
        for (int d = 0; d < 4; ++d) w.strides[d] = 16ull << d;
        w.lower[0] = w.lower[1] = w.lower[2] = w.upper[0] = w.upper[1] = w.upper[2] = 0;
        std::string at = "{%r3", offsets = ", {%h1";
        for (std::size_t d = 1; d < rank; ++d) at += ", %r3";
        for (std::size_t d = 1; d + 2 < rank; ++d) offsets += ", %h1";
        const std::string body = "mov.u32 %r3, 0; mov.u16 %h1, 1;\ncp.async.bulk.prefetch.tensor." +
                                 std::to_string(rank) + "d.L2.global" + mode + hint + " [%map, " +
                                 at + "}]" + (im2col ? offsets + "}" : "") +
                                 (hint.empty() ? "" : ", %rd9") + ";";
        const auto outcome = gpu.launch(with_map(body), {in.address(), in.address(), w.map()});
        CHECK(outcome.fault.message == "");
        CHECK(counters_of(outcome, "prefetch.tensor").bulk.bytes == 0);
        w.r.address += 1024;
        CHECK(lacks(gpu.launch(with_map(body), {in.address(), in.address(), w.map()}).fault.message,
                    "tensor map's globalAddress 0x") == "");
      }
}

TEST_CASE("tensor: a multicast reads once and lands in each block that its mask names") {
  for (const std::string mode : {"", ".tile", ".im2col"})
    for (const std::string hint : {"", ".L2::cache_hint"})
      for (std::size_t rank = mode.size() > 5 ? 3 : 1; rank <= 5; ++rank) {
        const bool im2col = mode.size() > 5;
        Clusters gpu({4, 1, 1});
        const auto in = gpu.array(kNumbers);
        const auto out = gpu.array<std::uint32_t>(16);
        Wanted w(in.address(), im2col);
        w.r.type = static_cast<int>(TensorType::u32);
        w.r.rank = static_cast<std::uint32_t>(rank);
        w.r.channels = 4, w.r.pixels = 1;
        for (int d = 0; d < 5; ++d) w.sizes[d] = d ? 2 : 64, w.box[d] = d ? 1 : 4;
        for (int d = 0; d < 4; ++d) w.strides[d] = 16;
        w.lower[0] = w.lower[1] = w.lower[2] = w.upper[0] = w.upper[1] = w.upper[2] = 0;
        std::string at = "{%r3", offsets = ", {%h2";
        for (std::size_t d = 1; d < rank; ++d) at += ", %r4";
        for (std::size_t d = 1; d + 2 < rank; ++d) offsets += ", %h2";
        const auto outcome = gpu.launch(
            with_map(kBegin + R"(
mov.u32 %r3, 8; mov.u16 %h2, 0; mov.u16 %h1, 11; mov.u32 %r8, %cluster_ctarank;
setp.eq.u32 %p2, %r8, 0; setp.eq.u32 %p3, %r8, 2;
st.shared.u32 [%r1+4], 9; fence.proxy.async;
@!%p3 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 16;
@%p3 mbarrier.arrive.shared.b64 %rd1, [%r2];
barrier.cluster.arrive; barrier.cluster.wait;
@%p2 cp.async.bulk.tensor.)" +
                     std::to_string(rank) + "d.shared::cluster.global" + mode +
                     ".mbarrier::complete_tx::bytes.multicast::cluster" + hint + " [%r1], [%map, " +
                     at + "}], [%r2]" + (im2col ? offsets + "}" : "") + ", %h1" +
                     (hint.empty() ? "" : ", %rd9") + ";\n" + kWait + R"(
ld.shared.u32 %r5, [%r1+4]; mul.wide.u32 %rd3, %r8, 4; add.u64 %rd3, %rd3, %out;
st.global.u32 [%rd3], %r5; barrier.cluster.arrive; barrier.cluster.wait;)"),
            {out.address(), in.address(), w.map()}, {1, 1, 1}, {4, 1, 1});
        REQUIRE(outcome.fault.message == "");
        const auto got = out.values();
        CHECK_SAME(std::vector(got.begin(), got.begin() + 4), {1009, 1009, 9, 1009});
        const InstrReport c = counters_of(outcome, "multicast::cluster");
        CHECK(c.bulk.copies == 1);
        CHECK(c.bulk.bytes == 16);
        CHECK(c.bulk.l2_sectors == 1);
        CHECK(c.remote.bytes == 32);
      }
}

TEST_CASE("tensor: counters hold what lies inside the tensor, in sectors of its rows") {
  Gpu gpu;
  const auto in = gpu.array(kNumbers);
  Words w(in.address());
  // Columns 14 to 17 of rows 6 to 9: two columns and two rows are inside, 8 bytes each.
  const auto outcome = gpu.launch(
      with_map(kBegin + "mov.u32 %r3, 14; mov.u32 %r4, 6;\n" +
               "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 64;\n" + kLoad + kWait),
      {in.address(), in.address(), w.map()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const InstrReport c = counters_of(outcome, "cp.async.bulk.tensor");
  CHECK(c.bulk.copies == 1);
  CHECK(c.bulk.bytes == 16);
  CHECK(c.bulk.l2_sectors == 2);
  CHECK(outcome.counters.async_copied_bytes == 64);
  CHECK(outcome.counters.most_bulk_under_way == 64);
}

TEST_CASE("tensor: how many bytes were under way at once is that of one block, at its most") {
  Gpu gpu;
  const auto in = gpu.array(kNumbers);
  const std::string expect = "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], ";
  const std::string next = "add.u32 %r1, %r1, 128;\n";
  const std::string again =
      "again: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 1; @!%p1 bra again;\n";
  // Three boxes of 64 bytes: two are asked for, and waited for, before the third; or one before
  // two; or all three before the wait. Four blocks do the same.
  const std::pair<std::string, std::uint64_t> programs[] = {
      {expect + "128;\n" + kLoad + next + kLoad + kWait + next + expect + "64;\n" + kLoad + again,
       128},
      {expect + "64;\n" + kLoad + kWait + next + expect + "128;\n" + kLoad + next + kLoad + again,
       128},
      {expect + "192;\n" + kLoad + next + kLoad + next + kLoad + kWait, 192}};
  for (const auto& [program, most] : programs) {
    INFO(program);
    Words w(in.address());
    const auto outcome = gpu.launch(with_map(kBegin + program),
                                    {in.address(), in.address(), w.map()}, {1, 1, 1}, {4, 1, 1});
    REQUIRE(outcome.fault.message == "");
    CHECK(outcome.counters.async_copied_bytes == 4 * 192);
    CHECK(outcome.counters.most_bulk_under_way == most);
  }
}

TEST_CASE("tensor: what is wrong with a copy is said with the map's field") {
  Gpu gpu;
  const auto in = gpu.array(kNumbers);
  gpu.machine.memory().name(in.address(), "numbers");
  const auto said = [&](const std::string& body, const Bytes128& map) {
    return gpu.launch(with_map(kBegin + body), {in.address(), in.address(), map}, {1, 1, 1})
        .fault.message;
  };
  Words w(in.address());
  CHECK(lacks(said(kLoad, {}), "128 bytes that are no tensor map") == "");
  Bytes128 changed = w.map();
  changed[40] ^= std::byte{1};
  CHECK(lacks(said(kLoad, changed), "128 bytes that are no tensor map") == "");
  CHECK(lacks(said("add.u64 %map, %map, 32;\n" + kLoad, w.map()),
              "misaligned read of 64 bytes at") == "");
  CHECK(lacks(said("mov.u64 %map, 0;\n" + kLoad, w.map()), "null pointer: read of 128 bytes") ==
        "");
  CHECK(lacks(said("add.u32 %r1, %r1, 64;\n" + kLoad, w.map()),
              "misaligned write of 128 bytes at") == "");
  CHECK(lacks(said("add.u32 %r1, %r1, 8192;\n" + kLoad, w.map()), "out-of-bounds write of 64") ==
        "");
  CHECK(lacks(said("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%r1], [%map, {%r3}], [%r2];",
                   w.map()),
              "tensor copy of 1 dimensions with a map of tensorRank 2") == "");
  CHECK(lacks(said("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%map, {%r3, %r3, %r3, "
                   "%r3}], [%r1];",
                   Wanted(in.address(), true).map()),
              "tensor copy of tiles with a map that cuTensorMapEncodeIm2col made") == "");
  CHECK(lacks(said("mov.u16 %h1, 0; "
                   "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::"
                   "bytes [%r1], [%map, {%r3, %r3, %r3, %r3}], [%r2], {%h1, %h1};",
                   Wanted(in.address()).map()),
              "in im2col mode with a map that cuTensorMapEncodeTiled made") == "");
  w.r.swizzle = 3;
  CHECK(lacks(said(kLoad, w.map()), "rows of 16 bytes (boxDim[0]) with a swizzle of 128") == "");
  w.r.swizzle = 0;
  // The tensor is larger than the array: the first field with which it leaves it, and how far.
  w.sizes[1] = 9;
  CHECK(said(kLoad, w.map()) == "");  // not this box
  CHECK(lacks(said("mov.u32 %r4, 5;\n" + kLoad, w.map()),
              "out-of-bounds read of a tensor copy, up to 16 bytes past allocation 'numbers' (1024 "
              "bytes") == "");
  CHECK(lacks(said("mov.u32 %r4, 5;\n" + kLoad, w.map()),
              "of the tensor map globalDim[1] is 9, globalStrides[0] 128: the tensor ends 64 bytes "
              "or more past it; by thread (0,0,0)") == "");
  w.sizes[0] = 257, w.sizes[1] = 1;
  CHECK(lacks(said("mov.u32 %r3, 254;\n" + kLoad, w.map()),
              "of the tensor map globalDim[0] is 257: the tensor ends 4 bytes or more past it") ==
        "");
  w.r.address += 4096;
  CHECK(lacks(said(kLoad, w.map()), " is in no allocation of the device: read") == "");
  const std::string store =
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%r3, %r4}], [%r1];";
  CHECK(lacks(said(store, w.map()), " is in no allocation of the device: write") == "");
  CHECK(lacks(said("add.u32 %r1, %r1, 32;\n" + store, Words(in.address()).map()),
              "misaligned read of 128 bytes") == "");
  CHECK(lacks(said("add.u32 %r1, %r1, 4096;\n" + store, Words(in.address()).map()),
              "out-of-bounds read of 64 bytes") == "");
}

TEST_CASE("tensor: before sm_90 it is refused by its name") {
  Gpu gpu;
  const auto text = with_map(kBegin + kLoad, "sm_80");
  const auto module = gpu.machine.load(text);
  const auto refusals = gpu.machine.refusals(*module);
  REQUIRE(refusals.size() == 1);
  CHECK(lacks(refusals[0], "needs .target sm_90 or higher") == "");
}
