// Tensor maps and tensor copies, against the formulas of the PTX manual and the programming guide:
// element by element, every swizzle, boxes that leave the tensor, steps, rows of pixels.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>

#include "../core/tensor_map.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

using Bytes = std::vector<std::uint8_t>;
using Map = std::array<std::byte, kTensorMapBytes>;

// What a program would give to cuTensorMapEncodeTiled or ...Im2col.
struct Tensor {
  TensorType type = TensorType::u8;
  std::vector<std::uint64_t> sizes, strides;  // strides from dimension 1 on
  std::vector<std::uint32_t> box, steps;
  int swizzle = 0, fill = 0, interleave = 0, promotion = 0;
  std::vector<int> lower, upper;  // for im2col
  std::uint32_t channels = 0, pixels = 0;
  std::size_t rank() const { return sizes.size(); }
  std::size_t size_of_element() const {
    static const std::map<TensorType, std::size_t> bytes = {
        {TensorType::u8, 1},      {TensorType::u16, 2},  {TensorType::u32, 4},
        {TensorType::s32, 4},     {TensorType::u64, 8},  {TensorType::s64, 8},
        {TensorType::f16, 2},     {TensorType::f32, 4},  {TensorType::f64, 8},
        {TensorType::bf16, 2},    {TensorType::tf32, 4}, {TensorType::f32_ftz, 4},
        {TensorType::tf32_ftz, 4}};
    return bytes.at(type);
  }
  TensorMapRequest request(std::uint64_t address) const {
    TensorMapRequest r;
    r.im2col = !lower.empty();
    r.type = static_cast<int>(type);
    r.rank = static_cast<std::uint32_t>(rank());
    r.address = address;
    r.sizes = sizes.data();
    r.strides = strides.data();
    r.box = box.data();
    r.element_strides = steps.data();
    r.lower = lower.data();
    r.upper = upper.data();
    r.channels = channels;
    r.pixels = pixels;
    r.interleave = interleave;
    r.swizzle = swizzle;
    r.promotion = promotion;
    r.fill = fill;
    return r;
  }
  Map map(std::uint64_t address) const {
    TensorMap made;
    const TensorMapFault fault = encode(request(address), made);
    REQUIRE(fault.text == "");
    Map bytes = {};
    std::memcpy(bytes.data(), &made, sizeof made);
    return bytes;
  }
  std::uint64_t extent() const {  // bytes from the first element to behind the last
    std::uint64_t end = sizes[0] * size_of_element();
    for (std::size_t d = 1; d < rank(); ++d) end += (sizes[d] - 1) * strides[d - 1];
    return end;
  }
};

// One element of a box: where it lies in the box, without a swizzle, and in the tensor, if it does.
struct Element {
  std::size_t in_box;
  std::int64_t in_tensor;  // bytes; -1: outside
};
std::int64_t place(const Tensor& t, const std::vector<std::int64_t>& at) {
  std::int64_t offset = at[0] * static_cast<std::int64_t>(t.size_of_element());
  for (std::size_t d = 0; d < t.rank(); ++d) {
    if (at[d] < 0 || at[d] >= static_cast<std::int64_t>(t.sizes[d])) return -1;
    if (d) offset += at[d] * static_cast<std::int64_t>(t.strides[d - 1]);
  }
  return offset;
}
std::vector<Element> elements_of_tile(const Tensor& t, const std::vector<std::int32_t>& corner) {
  std::size_t count = 1;
  std::vector<std::size_t> taken;
  for (std::size_t d = 0; d < t.rank(); ++d) {
    taken.push_back(d ? (t.box[d] + t.steps[d] - 1) / t.steps[d] : t.box[0]);
    count *= taken.back();
  }
  std::vector<Element> elements;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> at;
    std::size_t rest = i;
    for (std::size_t d = 0; d < t.rank(); ++d) {
      at.push_back(corner[d] + static_cast<std::int64_t>(rest % taken[d] * (d ? t.steps[d] : 1)));
      rest /= taken[d];
    }
    elements.push_back({i * t.size_of_element(), place(t, at)});
  }
  return elements;
}
// The pixels of the box of pixels have numbers, image by image; a copy takes consecutive ones.
std::vector<Element> elements_of_pixels(const Tensor& t, const std::vector<std::int32_t>& start,
                                        const std::vector<std::uint16_t>& offsets) {
  const std::size_t dims = t.rank() - 2;
  std::vector<std::int64_t> wide;
  std::int64_t number = 0, all = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t last = static_cast<std::int64_t>(t.sizes[d + 1]) - 1 + t.upper[d];
    wide.push_back((last - t.lower[d]) / t.steps[d + 1] + 1);
    number += (start[d + 1] - t.lower[d]) / static_cast<int>(t.steps[d + 1]) * all;
    all *= wide.back();
  }
  std::vector<Element> elements;
  for (std::uint32_t p = 0; p < t.pixels; ++p) {
    std::vector<std::int64_t> at(t.rank());
    std::int64_t rest = number + p;
    for (std::size_t d = 0; d < dims; ++d) {
      at[d + 1] = t.lower[d] + rest % wide[d] * t.steps[d + 1] + (offsets.empty() ? 0 : offsets[d]);
      rest /= wide[d];
    }
    at.back() = start.back() + rest * t.steps.back();
    for (std::uint32_t c = 0; c < t.channels; ++c) {
      at[0] = start[0] + c;
      elements.push_back({(p * t.channels + c) * t.size_of_element(), place(t, at)});
    }
  }
  return elements;
}

// Where a byte of the box lies in shared memory when the box begins at `base`: the programming
// guide's formulas, smem[y][((y / rows + offset) % n) ^ x] in pieces of 16 bytes.
std::size_t in_shared(const Tensor& t, std::size_t base, std::size_t byte) {
  if (!t.swizzle) return base + byte;
  const std::size_t width = 16u << t.swizzle, n = width / 16, rows = 128 / width;
  const std::size_t y = byte / width, x = byte % width / 16;
  return base + y * width + (((y / rows + base / 128) % n) ^ x) * 16 + byte % 16;
}

constexpr std::size_t kTileBytes = 32 << 10;
const std::string kTileAndObject =
    ".shared .align 1024 .b8 tile[33792]; .shared .align 8 .b64 object;\n";

// A kernel k(map, out, in, bytes, base, coordinates): `ask` is what thread 0 does, between the
// filling of the tile from `in` and the copy of the tile to `out`. %map is the map's address.
std::string around(const std::string& ask, bool loads, const std::string& map_at = "") {
  return kHead + kTileAndObject + R"(
.visible .entry k(.param .align 128 .b8 p_map[128], .param .u64 p_out, .param .u64 p_in,
                  .param .u32 p_bytes, .param .u32 p_base, .param .align 4 .b8 p_at[20],
                  .param .align 2 .b8 p_off[8])
{
.reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<20>, %c<5>; .reg .b64 %rd<20>, %out, %in, %map;
ld.param.u64 %out, [p_out]; ld.param.u64 %in, [p_in]; ld.param.u32 %r3, [p_bytes];
ld.param.u32 %r4, [p_base]; mov.u32 %r1, tile; add.u32 %r1, %r1, %r4; mov.u32 %r2, object;
ld.param.u32 %c0, [p_at]; ld.param.u32 %c1, [p_at+4]; ld.param.u32 %c2, [p_at+8];
ld.param.u32 %c3, [p_at+12]; ld.param.u32 %c4, [p_at+16];
ld.param.u16 %h0, [p_off]; ld.param.u16 %h1, [p_off+2]; ld.param.u16 %h2, [p_off+4];
)" + (map_at.empty() ? "mov.b64 %map, p_map; cvta.param.u64 %map, %map;\n" : map_at) +
         R"(
mov.u32 %r5, %tid.x; setp.ne.u32 %p1, %r5, 0; mov.u64 %rd9, 0; mov.u16 %h7, 1;
shl.b32 %r6, %r5, 2;
fill: setp.ge.u32 %p2, %r6, %r3; @%p2 bra filled;
cvt.u64.u32 %rd1, %r6; add.u64 %rd2, %in, %rd1; ld.global.u32 %r7, [%rd2]; add.u32 %r8, %r1, %r6;
st.shared.u32 [%r8], %r7; add.u32 %r6, %r6, 128; bra fill;
filled:
@!%p1 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
fence.proxy.async; bar.sync 0;
@%p1 bra asked;
)" + (loads ? "mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r2], %r3;\n" : "") +
         ask + (loads ? "" : "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n") +
         "asked:\n" +
         (loads ? "wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; @!%p3 bra wait;\n"
                : "") +
         R"(
shl.b32 %r6, %r5, 2;
next: setp.ge.u32 %p2, %r6, %r3; @%p2 bra done;
cvt.u64.u32 %rd1, %r6; add.u64 %rd2, %out, %rd1; add.u32 %r8, %r1, %r6; ld.shared.u32 %r7, [%r8];
st.global.u32 [%rd2], %r7; add.u32 %r6, %r6, 128; bra next;
done: ret;
}
)";
}

std::string coordinates(std::size_t rank) {
  std::string text = "{%c0";
  for (std::size_t d = 1; d < rank; ++d) text += ", %c" + std::to_string(d);
  return text + "}";
}
std::string offsets_of(std::size_t rank) {
  std::string text = "{%h0";
  for (std::size_t d = 1; d + 2 < rank; ++d) text += ", %h" + std::to_string(d);
  return text + "}";
}

struct Run {
  Gpu gpu;
  std::mt19937 random;
  explicit Run(unsigned seed, std::uint64_t schedule = 0)
      : gpu({.threads = 1, .schedule_seed = schedule}), random(seed) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }
  Bytes noise(std::size_t n) {
    Bytes bytes((n + 15) / 16 * 16);
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
    return bytes;
  }

  // A tensor without overlaps, a box of at most 8 KiB.
  Tensor tensor(std::size_t rank, TensorType type) {
    Tensor t;
    t.type = type;
    const auto each = static_cast<std::uint32_t>(t.size_of_element());
    t.swizzle = static_cast<int>(below(4));
    const std::uint32_t row = t.swizzle ? 16u << t.swizzle : 16 * (1 + below(8));
    t.box.push_back(std::min(256u, row / each));
    t.swizzle = t.box[0] * each == row ? t.swizzle : 0;
    t.steps.push_back(1 + below(2));  // ignored
    t.sizes.push_back(1 + below(3 * t.box[0]));
    std::uint64_t end = t.sizes[0] * each, elements = 1;
    for (std::size_t d = 1; d < rank; ++d) {
      t.sizes.push_back(1 + below(rank > 3 ? 5 : 20));
      t.strides.push_back((end + 15) / 16 * 16 + 16 * below(3));
      end = t.strides.back() * t.sizes.back();
      t.steps.push_back(below(3) ? 1 : 1 + below(8));
      const auto room = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, 64 / elements));
      t.box.push_back(std::min(256u, t.steps.back() * (1 + below(std::min(room, 12u)))));
      t.box.back() -= below(t.steps.back());
      elements *= (t.box.back() + t.steps.back() - 1) / t.steps.back();
    }
    t.promotion = static_cast<int>(below(4));
    t.fill = type >= TensorType::f16 && below(2);
    return t;
  }
  Tensor pixels(std::size_t rank, TensorType type) {
    Tensor t = tensor(rank, type);
    t.channels = t.box[0];
    t.pixels = 1 + below(60);
    for (std::size_t d = 1; d + 1 < rank; ++d) {
      t.steps[d] = 1 + below(2);
      t.lower.push_back(static_cast<int>(below(4)) - 2);
      t.upper.push_back(static_cast<int>(below(4)) - 2);
      if (static_cast<int>(t.sizes[d]) - 1 + t.upper.back() < t.lower.back())
        t.upper.back() = t.lower.back() = 0;
    }
    t.steps.back() = 1;
    return t;
  }
  std::vector<std::int32_t> corner(const Tensor& t) {
    std::vector<std::int32_t> at;
    for (std::size_t d = 0; d < t.rank(); ++d)
      at.push_back(
          static_cast<std::int32_t>(below(static_cast<std::uint32_t>(t.sizes[d] + t.box[d]) + 1)) -
          static_cast<std::int32_t>(t.box[d]));
    return at;
  }
  // A pixel of the box of pixels.
  std::vector<std::int32_t> pixel(const Tensor& t) {
    std::vector<std::int32_t> at = corner(t);
    for (std::size_t d = 0; d + 2 < t.rank(); ++d) {
      const int last = static_cast<int>(t.sizes[d + 1]) - 1 + t.upper[d],
                step = static_cast<int>(t.steps[d + 1]);
      const auto count = static_cast<std::uint32_t>((last - t.lower[d]) / step + 1);
      at[d + 1] = t.lower[d] + static_cast<int>(below(count)) * step;
    }
    return at;
  }

  struct Result {
    Bytes tensor, tile;
  };
  // Runs the kernel with a tensor of these bytes and the tile filled with `tile`.
  Result run(const std::string& text, const Tensor& t, const Bytes& tensor, const Bytes& tile,
             std::size_t box, std::size_t base, const std::vector<std::int32_t>& at,
             const std::vector<std::uint16_t>& offsets = {}) {
    const auto memory = gpu.array(tensor), in = gpu.array(tile);
    const auto out = gpu.array<std::uint8_t>(tile.size());
    std::array<std::int32_t, 5> c = {};
    std::copy(at.begin(), at.end(), c.begin());
    std::array<std::uint16_t, 4> o = {};
    std::copy(offsets.begin(), offsets.end(), o.begin());
    Map map = t.map(memory.address());
    const auto outcome =
        gpu.launch(text, {map, out.address(), in.address(), static_cast<std::uint32_t>(box),
                          static_cast<std::uint32_t>(base), c, o});
    REQUIRE(outcome.fault.message == "");
    this->outcome = outcome;
    Result result{memory.values(), out.values()};
    for (const auto& a : {memory.allocation, in.allocation, out.allocation})
      gpu.machine.memory().release(a->base);
    return result;
  }
  LaunchOutcome outcome;
};

std::uint64_t special_nan(const Tensor& t) {
  return t.size_of_element() == 2   ? 0x7fff
         : t.size_of_element() == 4 ? 0x7fffffff
                                    : 0x7fffffffffffffff;
}
// What a load makes of an element: only types with a conversion change it.
std::uint32_t loaded(TensorType type, std::uint32_t word) {
  const bool special = (word >> 23 & 255) == 255, tiny = (word >> 23 & 255) == 0;
  if (special) return word;
  if (tiny && type != TensorType::tf32) return word >> 31 << 31;
  if (type == TensorType::f32_ftz) return word;
  return word - word % 8192 + (word % 8192 >= 4096 ? 8192 : 0);
}

Bytes tile_after_load(const Tensor& t, const Bytes& tensor, const std::vector<Element>& elements,
                      std::size_t base, std::size_t size) {
  Bytes want(size);
  const std::size_t each = t.size_of_element();
  for (const Element& e : elements) {
    std::uint64_t value = t.fill ? special_nan(t) : 0;
    if (e.in_tensor >= 0) {
      value = 0;
      std::memcpy(&value, tensor.data() + e.in_tensor, each);
      if (t.type >= TensorType::f32_ftz) value = loaded(t.type, static_cast<std::uint32_t>(value));
    }
    for (std::size_t b = 0; b < each; ++b)
      want[in_shared(t, base, e.in_box + b) - base] = static_cast<std::uint8_t>(value >> 8 * b);
  }
  return want;
}

constexpr TensorType kElementTypes[] = {
    TensorType::u8,      TensorType::u16,  TensorType::u32,     TensorType::s32, TensorType::u64,
    TensorType::s64,     TensorType::f16,  TensorType::f32,     TensorType::f64, TensorType::bf16,
    TensorType::f32_ftz, TensorType::tf32, TensorType::tf32_ftz};

}  // namespace

TEST_CASE("tensor: loads of tiles bring each element, or what stands for it outside") {
  for (const std::string spelling : {"", ".tile"})
    for (const std::string to : {".shared::cluster", ".shared::cta"})
      for (const std::string hint : {"", ".L2::cache_hint"})
        for (std::size_t rank = 1; rank <= 5; ++rank) {
          Run r(static_cast<unsigned>(rank + spelling.size() * 8 + to.size() * 64 + hint.size()),
                hint.size());
          const std::string text =
              around("cp.async.bulk.tensor." + std::to_string(rank) + "d" + to + ".global" +
                         spelling + ".mbarrier::complete_tx::bytes" + hint + " [%r1], [%map, " +
                         coordinates(rank) + "], [%r2]" + (hint.empty() ? "" : ", %rd9") + ";\n",
                     true);
          for (const TensorType type : kElementTypes) {
            const Tensor t = r.tensor(rank, type);
            Bytes memory = r.noise(t.extent());
            for (std::size_t i = 0; type >= TensorType::tf32 && i + 4 <= memory.size(); i += 12)
              memory[i] = 0, memory[i + 1] = 16;
            const auto at = r.corner(t);
            const auto elements = elements_of_tile(t, at);
            const std::size_t box = elements.size() * t.size_of_element();
            const std::size_t base = 128 * r.below(8);
            INFO("rank ", rank, ", type ", name_of(type), ", swizzle ", t.swizzle);
            const auto got = r.run(text, t, memory, Bytes((box + 15) / 16 * 16), box, base, at);
            CHECK_SAME(got.tile, tile_after_load(t, memory, elements, base, got.tile.size()));
            CHECK_SAME(got.tensor, memory);
          }
        }
}

TEST_CASE("tensor: loads of pixels for a convolution, with the filter's offsets") {
  for (const std::string to : {".shared::cluster", ".shared::cta"})
    for (const std::string hint : {"", ".L2::cache_hint"})
      for (std::size_t rank = 3; rank <= 5; ++rank) {
        Run r(static_cast<unsigned>(rank + to.size() * 64 + hint.size()));
        const std::string text =
            around("cp.async.bulk.tensor." + std::to_string(rank) + "d" + to +
                       ".global.im2col.mbarrier::complete_tx::bytes" + hint + " [%r1], [%map, " +
                       coordinates(rank) + "], [%r2], " + offsets_of(rank) +
                       (hint.empty() ? "" : ", %rd9") + ";\n",
                   true);
        for (const TensorType type : kElementTypes) {
          const Tensor t = r.pixels(rank, type);
          const Bytes memory = r.noise(t.extent());
          const auto at = r.pixel(t);
          std::vector<std::uint16_t> offsets;
          for (std::size_t d = 0; d + 2 < rank; ++d)
            offsets.push_back(static_cast<std::uint16_t>(r.below(4)));
          const auto elements = elements_of_pixels(t, at, offsets);
          const std::size_t box = elements.size() * t.size_of_element();
          const std::size_t base = 128 * r.below(8);
          INFO("rank ", rank, ", type ", name_of(type), ", swizzle ", t.swizzle);
          const auto got =
              r.run(text, t, memory, Bytes((box + 15) / 16 * 16), box, base, at, offsets);
          CHECK_SAME(got.tile, tile_after_load(t, memory, elements, base, got.tile.size()));
        }
      }
}

TEST_CASE("tensor: stores write what lies inside the tensor and nothing else") {
  for (const std::string mode : {"", ".tile", ".im2col_no_offs"})
    for (const std::string hint : {"", ".L2::cache_hint"})
      for (std::size_t rank = mode.size() > 5 ? 3 : 1; rank <= 5; ++rank) {
        Run r(static_cast<unsigned>(rank + mode.size() * 64 + hint.size()), mode.size());
        const std::string text =
            around("cp.async.bulk.tensor." + std::to_string(rank) + "d.global.shared::cta" + mode +
                       ".bulk_group" + hint + " [%map, " + coordinates(rank) + "], [%r1]" +
                       (hint.empty() ? "" : ", %rd9") + ";\n",
                   false);
        for (const TensorType type : kElementTypes) {
          const bool im2col = mode.size() > 5;
          const Tensor t = im2col ? r.pixels(rank, type) : r.tensor(rank, type);
          const auto at = im2col ? r.pixel(t) : r.corner(t);
          const auto elements = im2col ? elements_of_pixels(t, at, {}) : elements_of_tile(t, at);
          const std::size_t each = t.size_of_element(), box = elements.size() * each;
          const Bytes memory = r.noise(t.extent()), tile = r.noise(box);
          const std::size_t base = 128 * r.below(8);
          Bytes want = memory;
          for (const Element& e : elements)
            for (std::size_t b = 0; b < each && e.in_tensor >= 0; ++b)
              want[static_cast<std::size_t>(e.in_tensor) + b] =
                  tile[in_shared(t, base, e.in_box + b) - base];
          INFO("rank ", rank, ", type ", name_of(type), ", swizzle ", t.swizzle);
          CHECK_SAME(r.run(text, t, memory, tile, box, base, at).tensor, want);
        }
      }
}

namespace {

template <class T>
T combined_values(const std::string& op, T old, T value) {
  using U = std::make_unsigned_t<T>;
  if (op == "add") return static_cast<T>(static_cast<U>(old) + static_cast<U>(value));
  if (op == "min") return std::min(old, value);
  if (op == "max") return std::max(old, value);
  if (op == "and") return old & value;
  if (op == "or") return old | value;
  if (op == "xor") return old ^ value;
  if (op == "inc") return old >= value ? T{0} : static_cast<T>(old + 1);
  return old == 0 || old > value ? value : static_cast<T>(old - 1);
}
// The bits of `old` and `value`, combined. Floats are small whole numbers.
std::uint64_t combined_bits(TensorType type, const std::string& op, std::uint64_t old,
                            std::uint64_t value) {
  const auto in = [&]<class T>(T) {
    return static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(
        combined_values(op, static_cast<T>(old), static_cast<T>(value))));
  };
  const auto float_of = [&]<class F, class U>(F, U) {
    F a, b;
    const U x = static_cast<U>(old), y = static_cast<U>(value);
    std::memcpy(&a, &x, sizeof a), std::memcpy(&b, &y, sizeof b);
    a += b;
    U sum;
    std::memcpy(&sum, &a, sizeof a);
    return static_cast<std::uint64_t>(sum);
  };
  switch (type) {
    case TensorType::u32:
      return in(std::uint32_t{});
    case TensorType::s32:
      return in(std::int32_t{});
    case TensorType::u64:
      return in(std::uint64_t{});
    case TensorType::s64:
      return in(std::int64_t{});
    case TensorType::f32:
      return float_of(float{}, std::uint32_t{});
    case TensorType::f64:
      return float_of(double{}, std::uint64_t{});
    default:
      break;
  }
  // Halves of the values 0, 1, 2 and -1: in both formats a positive one compares as its bits do.
  const bool brain = type == TensorType::bf16;
  const auto number = [&](std::uint64_t bits) {
    const std::uint64_t one = brain ? 0x3f80 : 0x3c00, two = 0x4000;
    return bits == 0 ? 0 : bits == one ? 1 : bits == two ? 2 : -1;
  };
  const int a = number(old), b = number(value);
  const int result = op == "add" ? a + b : op == "min" ? std::min(a, b) : std::max(a, b);
  for (const auto& [n, half, bfloat] : {std::tuple{-2, 0xc000, 0xc000},
                                        {-1, 0xbc00, 0xbf80},
                                        {0, 0, 0},
                                        {1, 0x3c00, 0x3f80},
                                        {2, 0x4000, 0x4000},
                                        {3, 0x4200, 0x4040},
                                        {4, 0x4400, 0x4080}})
    if (n == result) return static_cast<std::uint64_t>(brain ? bfloat : half);
  return ~std::uint64_t{0};
}
bool knows(TensorType type, const std::string& op) {
  const bool bits = op == "and" || op == "or" || op == "xor", counts = op == "inc" || op == "dec";
  switch (type) {
    case TensorType::u32:
      return true;
    case TensorType::s32:
    case TensorType::u64:
    case TensorType::s64:
      return !counts;
    case TensorType::f16:
    case TensorType::bf16:
      return !bits && !counts;
    case TensorType::f32:
    case TensorType::f64:
      return op == "add";
    default:
      return false;
  }
}

}  // namespace

TEST_CASE("tensor: every reduction on every type, inside the tensor") {
  for (const std::string mode : {"", ".tile", ".im2col_no_offs"})
    for (const std::string op : {"add", "min", "max", "inc", "dec", "and", "or", "xor"})
      for (const TensorType type : kElementTypes) {
        const bool im2col = mode.size() > 5;
        Run r(static_cast<unsigned>(static_cast<int>(type) + 16 * mode.size() + op[0] + op[1]));
        const std::size_t rank = im2col ? 3 + r.below(3) : 1 + r.below(5);
        if (!knows(type, op) && (mode.empty() || im2col)) continue;
        const std::string hint = r.below(2) ? ".L2::cache_hint" : "";
        const std::string text =
            around("cp.reduce.async.bulk.tensor." + std::to_string(rank) + "d.global.shared::cta." +
                       op + mode + ".bulk_group" + hint + " [%map, " + coordinates(rank) +
                       "], [%r1]" + (hint.empty() ? "" : ", %rd9") + ";\n",
                   false);
        Tensor t = im2col ? r.pixels(rank, type) : r.tensor(rank, type);
        auto at = im2col ? r.pixel(t) : r.corner(t);
        if (!knows(type, op)) at.assign(rank, 0);  // something is inside
        const auto elements = im2col ? elements_of_pixels(t, at, {}) : elements_of_tile(t, at);
        const std::size_t each = t.size_of_element(), box = elements.size() * each;
        Bytes memory = r.noise(t.extent()), tile = r.noise(box);
        for (Bytes* bytes : {&memory, &tile})
          for (std::size_t i = 0; i + each <= bytes->size() && type >= TensorType::f16; i += each) {
            const float f[] = {0, 1, 2, -1};
            const double d[] = {0, 1, 2, -1};
            const std::uint16_t h[] = {0, 0x3c00, 0x4000, 0xbc00},
                                b[] = {0, 0x3f80, 0x4000, 0xbf80};
            const std::uint32_t n = r.below(4);
            std::memcpy(bytes->data() + i,
                        each == 8                 ? static_cast<const void*>(&d[n])
                        : each == 4               ? static_cast<const void*>(&f[n])
                        : type == TensorType::f16 ? static_cast<const void*>(&h[n])
                                                  : static_cast<const void*>(&b[n]),
                        each);
          }
        const std::size_t base = 128 * r.below(8);
        INFO(op, mode, ", rank ", rank, ", type ", name_of(type), ", swizzle ", t.swizzle);
        if (!knows(type, op)) {
          const auto array = r.gpu.array(memory);
          const auto outcome =
              r.gpu.launch(text, {t.map(array.address()), array.address(), array.address(), 0u, 0u,
                                  std::array<std::int32_t, 5>{}, std::array<std::uint16_t, 4>{}});
          CHECK(outcome.fault.message.find(std::string("elements of type ") + name_of(type)) !=
                std::string::npos);
          continue;
        }
        Bytes want = memory;
        for (const Element& e : elements) {
          if (e.in_tensor < 0) continue;
          std::uint64_t old = 0, value = 0;
          for (std::size_t b = 0; b < each; ++b)
            value |= std::uint64_t{tile[in_shared(t, base, e.in_box + b) - base]} << 8 * b;
          std::memcpy(&old, memory.data() + e.in_tensor, each);
          const std::uint64_t sum = combined_bits(type, op, old, value);
          std::memcpy(want.data() + e.in_tensor, &sum, each);
        }
        CHECK_SAME(r.run(text, t, memory, tile, box, base, at).tensor, want);
      }
  // Each spelling once, whatever the dice said.
  Run r(1);
  for (const std::string mode : {".tile", ".im2col_no_offs"})
    for (std::size_t rank = mode.size() > 5 ? 3 : 1; rank <= 5; ++rank) {
      const bool im2col = mode.size() > 5;
      const Tensor t = im2col ? r.pixels(rank, TensorType::u32) : r.tensor(rank, TensorType::u32);
      const auto at = im2col ? r.pixel(t) : r.corner(t);
      const Bytes memory = r.noise(t.extent());
      const std::size_t box =
          4 * (im2col ? elements_of_pixels(t, at, {}) : elements_of_tile(t, at)).size();
      const auto got = r.run(
          around("cp.reduce.async.bulk.tensor." + std::to_string(rank) +
                     "d.global.shared::cta.add" + mode + ".bulk_group.L2::cache_hint [%map, " +
                     coordinates(rank) + "], [%r1], %rd9;\n",
                 false),
          t, memory, Bytes((box + 15) / 16 * 16), box, 0, at);
      CHECK_SAME(got.tensor, memory);  // zeros were added
    }
}
