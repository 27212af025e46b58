#include "tensor_map.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace vgpu {
namespace {

using std::size_t, std::string, std::to_string, std::uint32_t, std::uint64_t;

static_assert(sizeof(TensorMap) <= kTensorMapBytes);
constexpr uint64_t kSignature = 0x70616d'55504756ull;  // "VGPUmap"
constexpr const char* kNames[] = {"UINT8",       "UINT16",   "UINT32",      "INT32",   "UINT64",
                                  "INT64",       "FLOAT16",  "FLOAT32",     "FLOAT64", "BFLOAT16",
                                  "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"};
constexpr uint32_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

uint32_t sum_of(const TensorMap& map) {
  unsigned char bytes[offsetof(TensorMap, sum)];
  std::memcpy(bytes, &map, sizeof bytes);
  uint32_t sum = 2166136261u;
  for (const unsigned char b : bytes) sum = (sum ^ b) * 16777619u;
  return sum;
}

string at(const char* field, size_t i) { return string(field) + "[" + to_string(i) + "]"; }

// Throws what is wrong: the field, its value, and what would be right.
[[noreturn]] void wrong(const string& field, const string& value, const string& right) {
  throw TensorMapFault{field + " is " + value + ": " + right};
}
void check(bool good, const string& field, const string& value, const string& right) {
  if (!good) wrong(field, value, right);
}
[[noreturn]] void lacks(const string& what, const string& why = "") {
  throw TensorMapFault{what + " is not supported by the virtual GPU" + why, false};
}

void check_pointers(const TensorMapRequest& r) {
  const auto need = [](const void* p, const char* field) {
    check(p != nullptr, field, "null", "it must point to an array");
  };
  need(r.sizes, "globalDim");
  if (r.rank > 1) need(r.strides, "globalStrides");
  need(r.element_strides, "elementStrides");
  if (!r.im2col) return need(r.box, "boxDim");
  need(r.lower, "pixelBoxLowerCorner");
  need(r.upper, "pixelBoxUpperCorner");
}

void check_kinds(const TensorMapRequest& r) {
  check(r.type >= 0 && r.type <= 15, "tensorDataType", to_string(r.type), "0 to 15 are types");
  check(r.interleave >= 0 && r.interleave <= 2, "interleave", to_string(r.interleave),
        "0 (NONE), 1 (16B) or 2 (32B)");
  check(r.swizzle >= 0 && r.swizzle <= 6, "swizzle", to_string(r.swizzle),
        "0 (NONE) to 3 (128B), and 4 to 6 for the 128B_ATOM ones");
  check(r.promotion >= 0 && r.promotion <= 3, "l2Promotion", to_string(r.promotion),
        "0 (NONE) to 3 (256B)");
  check(r.fill >= 0 && r.fill <= 1, "oobFill", to_string(r.fill),
        "0 (NONE) or 1 (NAN_REQUEST_ZERO_FMA)");
  const int least = r.im2col || r.interleave ? 3 : 1;
  check(r.rank >= static_cast<uint32_t>(least) && r.rank <= kTensorRanks, "tensorRank",
        to_string(r.rank),
        to_string(least) + " to 5" +
            (r.interleave ? " with interleave"
             : r.im2col   ? " for im2col"
                          : ""));
  if (r.interleave == 2)
    check(r.swizzle == 1, "swizzle", to_string(r.swizzle), "interleave 32B needs 1 (32B)");
  // (ptxas refuses both for sm_90a, where tensormap.replace would set them.)
  const string since = ": GPUs have it from compute capability 10.0 on";
  if (r.type >= kTensorTypes)
    lacks("tensorDataType " + to_string(r.type) + " (packed 16U4, 16U6)", since);
  if (r.swizzle > 3) lacks("swizzle " + to_string(r.swizzle) + " (128B_ATOM)", since);
  if (r.interleave)
    lacks("interleave " + string(r.interleave == 1 ? "16B" : "32B") +
          " (NVIDIA does not say where the slices lie)");
}

void check_address(uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  check(address != 0 && address % 16 == 0, "globalAddress", text,
        "it must be a device address that is a multiple of 16");
}

void fill_tensor(const TensorMapRequest& r, TensorMap& map) {
  for (size_t i = 0; i < r.rank; ++i) {
    check(r.sizes[i] >= 1 && r.sizes[i] <= uint64_t{1} << 32, at("globalDim", i),
          to_string(r.sizes[i]), "1 to 2^32");
    map.last[i] = static_cast<uint32_t>(r.sizes[i] - 1);
    check(i == 0 || (r.element_strides[i] >= 1 && r.element_strides[i] <= 8),
          at("elementStrides", i), to_string(r.element_strides[i]), "1 to 8");
    map.element_strides[i] = static_cast<std::uint8_t>(i == 0 ? 1 : r.element_strides[i]);
    if (i == 0) continue;
    const uint64_t stride = r.strides[i - 1];
    check(stride % 16 == 0 && stride < uint64_t{1} << 40, at("globalStrides", i - 1),
          to_string(stride), "a multiple of 16 below 2^40 (bytes)");
    map.strides[i - 1] = stride;
  }
}

void check_row(const TensorMap& map, const char* field, uint32_t elements) {
  const uint32_t bytes = map.row_bytes(), each = bytes_of(map.type);
  const string value = to_string(elements) + " (" + to_string(bytes) + " bytes)";
  check(bytes % 16 == 0, field, value,
        "its elements of " + to_string(each) + " bytes must be a multiple of 16 bytes");
  if (map.swizzle)
    check(bytes <= map.swizzle_bytes(), field, value,
          "swizzle " + to_string(map.swizzle_bytes()) + "B allows at most " +
              to_string(map.swizzle_bytes() / each) + " elements");
}

void fill_pixels(const TensorMapRequest& r, TensorMap& map) {
  check(r.channels >= 1 && r.channels <= 256, "channelsPerPixel", to_string(r.channels),
        "1 to 256");
  check(r.pixels >= 1 && r.pixels <= 1024, "pixelsPerColumn", to_string(r.pixels), "1 to 1024");
  map.channels = static_cast<std::uint16_t>(r.channels);
  map.pixels = static_cast<std::uint16_t>(r.pixels);
  check_row(map, "channelsPerPixel", r.channels);
  const int most = r.rank == 3 ? 32768 : r.rank == 4 ? 128 : 16;
  const string range =
      to_string(-most) + " to " + to_string(most - 1) + " for rank " + to_string(r.rank);
  for (size_t i = 0; i + 2 < r.rank; ++i) {
    check(r.lower[i] >= -most && r.lower[i] < most, at("pixelBoxLowerCorner", i),
          to_string(r.lower[i]), range);
    check(r.upper[i] >= -most && r.upper[i] < most, at("pixelBoxUpperCorner", i),
          to_string(r.upper[i]), range);
    map.lower[i] = static_cast<std::int16_t>(r.lower[i]);
    map.upper[i] = static_cast<std::int16_t>(r.upper[i]);
    check(r.lower[i] <= static_cast<std::int64_t>(map.last[i + 1]) + r.upper[i],
          at("pixelBoxUpperCorner", i), to_string(r.upper[i]),
          "with pixelBoxLowerCorner " + to_string(r.lower[i]) + " it leaves no pixel of " +
              to_string(map.size(static_cast<int>(i) + 1)));
  }
}

void fill_map(const TensorMapRequest& r, TensorMap& map) {
  check_kinds(r);
  check_pointers(r);
  check_address(r.address);
  map.im2col = r.im2col;
  map.type = static_cast<TensorType>(r.type);
  map.rank = static_cast<std::uint8_t>(r.rank);
  map.swizzle = static_cast<std::uint8_t>(r.swizzle);
  map.promotion = static_cast<std::uint8_t>(r.promotion);
  map.nan = r.fill == 1;
  check(!map.nan || map.type >= TensorType::f16, "oobFill", "1 (NAN_REQUEST_ZERO_FMA)",
        string("tensorDataType ") + name_of(map.type) + " has no NaN");
  map.address = r.address;
  fill_tensor(r, map);
  if (r.im2col) return fill_pixels(r, map);
  for (size_t i = 0; i < r.rank; ++i) {
    check(r.box[i] >= 1 && r.box[i] <= 256, at("boxDim", i), to_string(r.box[i]), "1 to 256");
    map.box[i] = static_cast<std::uint16_t>(r.box[i]);
  }
  check_row(map, "boxDim[0]", r.box[0]);
}

}  // namespace

std::uint32_t bytes_of(TensorType type) { return kBytes[static_cast<size_t>(type)]; }
const char* name_of(TensorType type) { return kNames[static_cast<size_t>(type)]; }

void TensorMap::seal() {
  signature = kSignature;
  sum = sum_of(*this);
}
bool TensorMap::sealed() const { return signature == kSignature && sum == sum_of(*this); }

TensorMapFault encode(const TensorMapRequest& request, TensorMap& map) {
  try {
    std::memset(static_cast<void*>(&map), 0, sizeof map);  // its gaps, too
    fill_map(request, map);
  } catch (TensorMapFault& fault) {
    return fault;
  }
  map.seal();
  return {};
}

TensorMapFault replace_address(TensorMap& map, std::uint64_t address) {
  if (!map.sealed()) return {"tensorMap is no tensor map: cuTensorMapEncode... makes them"};
  try {
    check_address(address);
  } catch (TensorMapFault& fault) {
    return fault;
  }
  map.address = address;
  map.seal();
  return {};
}

namespace {

void replace_field(TensorMap& map, TensorMapField field, size_t d, uint64_t value) {
  // The types in the order of the PTX manual.
  using enum TensorType;
  constexpr TensorType kTypes[] = {u8,  u16,     u32, s32,  u64,  s64,     f16,
                                   f32, f32_ftz, f64, bf16, tf32, tf32_ftz};
  const string name = kTensorMapFields[static_cast<size_t>(field)], text = to_string(value);
  const auto at_most = [&](uint64_t most, const string& right) {
    check(value <= most, name, text, right);
  };
  switch (field) {
    case TensorMapField::global_address:
      map.address = value;
      break;
    case TensorMapField::rank:
      at_most(kTensorRanks - 1, "0 to 4, one less than the number of dimensions");
      map.rank = static_cast<std::uint8_t>(value + 1);
      break;
    case TensorMapField::box_dim:
      check(value >= 1 && value <= 256, at("box_dim", d), text, "1 to 256");
      map.box[d] = static_cast<std::uint16_t>(value);
      break;
    case TensorMapField::global_dim:
      map.last[d] = static_cast<uint32_t>(value - 1);
      map.changed = static_cast<std::uint8_t>((map.changed & ~(2u << d)) | (value ? 0 : 2u << d));
      break;
    case TensorMapField::global_stride:
      check(d + 1 < kTensorRanks, "ordinal of global_stride", to_string(d), "0 to 3");
      map.strides[d] = value;
      break;
    case TensorMapField::element_stride:
      check(value >= 1 && value <= 8, at("element_stride", d), text, "1 to 8");
      map.element_strides[d] = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::elemtype:
      at_most(std::size(kTypes) - 1, "0 to 12 are types");
      map.type = kTypes[value];
      break;
    case TensorMapField::interleave_layout:
      at_most(2, "0 (none), 1 (16B) or 2 (32B)");
      map.interleave = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::swizzle_mode:
      at_most(3, "0 (none) to 3 (128B)");
      map.swizzle = static_cast<std::uint8_t>(value);
      break;
    case TensorMapField::fill_mode:
      at_most(1, "0 (zeros) or 1 (NaN)");
      map.nan = value;
      break;
  }
}

}  // namespace

TensorMapFault replace(TensorMap& map, TensorMapField field, size_t dimension, uint64_t value) {
  if (map.im2col)
    return {"the map is one of cuTensorMapEncodeIm2col, and .tile wants one of tiles"};
  try {
    replace_field(map, field, dimension, value);
  } catch (TensorMapFault& fault) {
    return fault;
  }
  map.changed |= 1;
  map.seal();
  return {};
}

// As if the program had asked for a map like this.
TensorMapFault fault_of(const TensorMap& map) {
  if (!map.changed) return {};
  std::array<uint64_t, kTensorRanks> sizes = {};
  std::array<uint32_t, kTensorRanks> box = {}, steps = {};
  for (size_t d = 0; d < kTensorRanks; ++d) {
    sizes[d] = map.changed >> (d + 1) & 1 ? 0 : map.size(static_cast<int>(d));
    box[d] = map.box[d];
    steps[d] = map.element_strides[d];
  }
  TensorMapRequest request;
  request.type = static_cast<int>(map.type);
  request.rank = map.rank;
  request.address = map.address;
  request.sizes = sizes.data(), request.strides = map.strides.data();
  request.box = box.data(), request.element_strides = steps.data();
  request.interleave = map.interleave;
  request.swizzle = map.swizzle;
  request.promotion = map.promotion;
  request.fill = map.nan;
  TensorMap again;
  return encode(request, again);
}

namespace {

using Coordinates = std::array<std::int64_t, kTensorRanks>;

// Adds the elements from `at` along the first dimension that the tensor has: `count` of them, the
// first of which is at `offset` of the box.
void add_row(const TensorMap& map, const Coordinates& at, uint32_t count, uint32_t offset,
             std::vector<TensorRow>& rows) {
  uint64_t address = map.address;
  for (int d = 1; d < map.rank; ++d) {
    const std::int64_t c = at[static_cast<size_t>(d)];
    if (c < 0 || c > map.last[static_cast<size_t>(d)]) return;
    address += static_cast<uint64_t>(c) * map.stride(d);
  }
  const uint32_t each = bytes_of(map.type);
  const std::int64_t first = std::max<std::int64_t>(at[0], 0),
                     end = std::min<std::int64_t>(at[0] + count, std::int64_t{map.last[0]} + 1);
  if (first >= end) return;
  const TensorRow row{address + static_cast<uint64_t>(first) * each,
                      offset + static_cast<uint32_t>(first - at[0]) * each,
                      static_cast<uint32_t>(end - first) * each};
  if (!rows.empty() && rows.back().address + rows.back().bytes == row.address &&
      rows.back().offset + rows.back().bytes == row.offset)
    rows.back().bytes += row.bytes;
  else
    rows.push_back(row);
}

// Elements along a dimension of a box.
uint32_t steps(const TensorMap& map, size_t d) {
  return (map.box[d] + map.element_strides[d] - 1u) / map.element_strides[d];
}

std::vector<TensorRow> tile_rows(const TensorMap& map, const std::int32_t* coordinates) {
  std::vector<TensorRow> rows;
  Coordinates at = {}, step = {};
  for (size_t d = 0; d < map.rank; ++d) at[d] = coordinates[d];
  const uint32_t bytes = map.row_bytes();
  for (uint32_t offset = 0, end = box_bytes(map); offset < end; offset += bytes) {
    add_row(map, at, map.box[0], offset, rows);
    for (size_t d = 1; d < map.rank; ++d) {
      at[d] += map.element_strides[d];
      if (++step[d] < steps(map, d)) break;
      at[d] = coordinates[d];
      step[d] = 0;
    }
  }
  return rows;
}

// Pixels are taken along w, then h, then d inside the box of pixels, then from the next image.
// `offsets` say which place of a filter they are for.
std::vector<TensorRow> pixel_rows(const TensorMap& map, const std::int32_t* coordinates,
                                  const std::uint16_t* offsets) {
  std::vector<TensorRow> rows;
  Coordinates at = {};
  for (size_t d = 0; d < map.rank; ++d) at[d] = coordinates[d];
  const size_t image = map.rank - 1u;
  const uint32_t bytes = map.row_bytes();
  for (uint32_t pixel = 0; pixel < map.pixels; ++pixel) {
    Coordinates shifted = at;
    for (size_t d = 1; offsets && d < image; ++d) shifted[d] += offsets[d - 1];
    add_row(map, shifted, map.channels, pixel * bytes, rows);
    size_t d = 1;
    for (; d < image; ++d) {
      at[d] += map.element_strides[d];
      if (at[d] <= std::int64_t{map.last[d]} + map.upper[d - 1]) break;
      at[d] = map.lower[d - 1];
    }
    if (d == image) at[d] += map.element_strides[d];
  }
  return rows;
}

}  // namespace

std::uint32_t box_bytes(const TensorMap& map) {
  uint32_t bytes = map.row_bytes();
  if (map.im2col) return bytes * map.pixels;
  for (size_t d = 1; d < map.rank; ++d) bytes *= steps(map, d);
  return bytes;
}

std::vector<TensorRow> box_rows(const TensorMap& map, const std::int32_t* coordinates,
                                const std::uint16_t* offsets) {
  return map.im2col ? pixel_rows(map, coordinates, offsets) : tile_rows(map, coordinates);
}

}  // namespace vgpu
