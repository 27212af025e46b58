// Tests of tile.cuh: layouts, copies, loads of fragments and products, each beside a plain loop on
// the host; bank conflicts by the counters.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <set>

#include "lab.cuh"
#include "lab/device.h"
#include "lab/random.h"
#include "testing/checks.h"
#include "tile/tile.cuh"
#include "tile_example.cuh"

using namespace lab::testing;

namespace {

// Small whole numbers: sums of their products are exact in any order.
template <class Element>
std::vector<Element> whole_numbers(size_t count, uint64_t seed) {
  std::vector<Element> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = Element(float(int(lab::random_bits(seed, i) % 17) - 8));
  return values;
}

// The counter of the last launch, of both operands' tiles: /shared/...
double shared(const char* what) { return lab::vgpu::counter(std::string("/shared/") + what); }

}  // namespace

// ---- Layouts ------------------------------------------------------------------------------------

namespace {

// Each piece has a place of its own within rows of kPitch bytes.
template <class Layout>
void check_places(int row_bytes) {
  CAPTURE(row_bytes);
  std::set<unsigned> places;
  for (int row = 0; row < 32; ++row)
    for (int piece = 0; piece < row_bytes / 16; ++piece) {
      const unsigned place = Layout::byte_of(row, piece);
      CHECK(place % 16 == 0);
      CHECK(place / Layout::kPitch == unsigned(row));
      CHECK(places.insert(place).second);
    }
}
// Whether a piece of eight rows from each multiple of 8 on lies in eight different groups of banks.
template <class Layout>
bool eight_rows_free(int row_bytes) {
  for (int first = 0; first < 32; first += 8)
    for (int piece = 0; piece < row_bytes / 16; ++piece) {
      std::set<unsigned> groups;
      for (int row = first; row < first + 8; ++row)
        groups.insert(Layout::byte_of(row, piece) / 16 % 8);
      if (groups.size() != 8) return false;
    }
  return true;
}

}  // namespace

TEST_CASE("layouts: a place for each piece; swizzled and padded rows meet no bank twice") {
  check_places<tile::Plain<128>>(128);
  check_places<tile::Padded<64>>(64);
  check_places<tile::Padded<128>>(128);
  check_places<tile::Swizzled<32>>(32);
  check_places<tile::Swizzled<64>>(64);
  check_places<tile::Swizzled<128>>(128);
  check_places<tile::Swizzled<256>>(256);
  CHECK_FALSE(eight_rows_free<tile::Plain<128>>(128));
  CHECK(eight_rows_free<tile::Padded<64>>(64));
  CHECK(eight_rows_free<tile::Padded<128>>(128));
  CHECK(eight_rows_free<tile::Swizzled<32>>(32));
  CHECK(eight_rows_free<tile::Swizzled<64>>(64));
  CHECK(eight_rows_free<tile::Swizzled<128>>(128));
  CHECK(eight_rows_free<tile::Swizzled<256>>(256));
}

// ---- Copies -------------------------------------------------------------------------------------

namespace {

// Copies [kRows, kColumns] to a tile and back, element by element. Pieces that are not there become
// zeros: of each three the last one.
template <class Tile>
__global__ void copy_kernel(const half* from, half* to, bool all) {
  __shared__ Tile shared;
  for (unsigned i = threadIdx.x; i < Tile::kRows * Tile::kPieces; i += blockDim.x)
    tile::copy_async(shared.address(i / Tile::kPieces, i % Tile::kPieces), from + 8 * i,
                     all || i % 3 != 2);
  tile::end_copies();
  tile::wait_for_copies<0>();
  __syncthreads();
  for (unsigned i = threadIdx.x; i < Tile::kRows * Tile::kColumns; i += blockDim.x)
    to[i] = shared.at(i / Tile::kColumns, i % Tile::kColumns);
}

template <class Tile>
void check_copies(double conflicts) {
  const std::vector<half> values = whole_numbers<half>(Tile::kRows * Tile::kColumns, 1);
  lab::DeviceArray<half> from(values, "from"), to(values.size(), "to");
  for (const bool all : {true, false}) {
    to.fill_nan();
    copy_kernel<Tile><<<1, 64>>>(from.data(), to.data(), all);
    lab::check(cudaDeviceSynchronize());
    const std::vector<half> got = to.download();
    int wrong = 0;
    for (size_t i = 0; i < got.size(); ++i)
      wrong += __half2float(got[i]) != (all || i / 8 % 3 != 2 ? __half2float(values[i]) : 0.0f);
    CHECK(wrong == 0);
    if (lab::vgpu::present()) CHECK(shared("store/conflicts") == conflicts);
  }
}

}  // namespace

TEST_CASE("copies arrive where the layout says; pieces that are not there are zeros") {
  if (skipped("copies")) return;
  check_copies<tile::SharedTile<half, 16, 64, tile::Plain>>(0);
  check_copies<tile::SharedTile<half, 16, 64, tile::Padded>>(0);
  check_copies<tile::SharedTile<half, 16, 64, tile::Swizzled>>(0);
  check_copies<tile::SharedTile<half, 16, 32, tile::Swizzled>>(0);
  check_copies<tile::SharedTile<half, 32, 16, tile::Swizzled>>(0);
  // Two rows of 64 bytes at 80 bytes from each other share banks: each turn of eight lanes takes
  // two.
  check_copies<tile::SharedTile<half, 16, 32, tile::Padded>>(8);
}

namespace {

// Sums slices of 64 numbers that come through the stages: each thread reads another one's copy.
template <int kCount>
__global__ void stages_kernel(const float* slices, int count, float* sums) {
  __shared__ tile::SharedTile<float, 8, 8, tile::Plain> shared[kCount];
  const auto copy = [&](int slice, int stage) {
    if (slice < count && threadIdx.x < 16)
      tile::copy_async(shared[stage].address(threadIdx.x / 2, threadIdx.x % 2),
                       slices + 64 * slice + 4 * threadIdx.x);
    tile::end_copies();
  };
  tile::Stages<kCount> stages;
  for (int slice = 0; slice < stages.kAhead; ++slice) copy(slice, slice);
  float sum = 0;
  for (int slice = 0; slice < count; ++slice) {
    stages.wait();
    copy(slice + stages.kAhead, stages.write);
    sum += shared[stages.read].at(threadIdx.x / 8, threadIdx.x % 8);
    stages.next();
  }
  sums[threadIdx.x] = sum;
}

template <int kCount>
void check_stages() {
  for (const int count : {1, 2, 3, 7}) {
    const std::vector<float> values = whole_numbers<float>(64 * count, 2);
    lab::DeviceArray<float> slices(values, "slices"), sums(64, "sums");
    stages_kernel<kCount><<<1, 64>>>(slices.data(), count, sums.data());
    lab::check(cudaDeviceSynchronize());
    const std::vector<float> got = sums.download();
    for (int i = 0; i < 64; ++i) {
      float expected = 0;
      for (int slice = 0; slice < count; ++slice) expected += values[64 * slice + i];
      CHECK(got[i] == expected);
    }
  }
}

}  // namespace

TEST_CASE("checked: stages: each slice is read once, when it has arrived") {
  if (rerun_with_checks("checked: stages*")) return;
  const int findings = lab::vgpu::findings();
  check_stages<2>();
  check_stages<3>();
  check_stages<4>();
  CHECK(lab::vgpu::findings() == findings);
}

// ---- Fragments and products ---------------------------------------------------------------------

namespace {

__global__ void ldmatrix_kernel(const half* from, unsigned* to, bool transposed) {
  __shared__ tile::SharedTile<half, 32, 16, tile::Plain> shared;  // each 8 x 8 in columns 0 to 7
  for (unsigned i = threadIdx.x; i < 256; i += 32) shared.at(i / 8, i % 8) = from[i];
  __syncwarp();
  uint32_t registers[4];
  const uint32_t address = shared.address(threadIdx.x, 0);
  transposed ? tile::ldmatrix_transposed(registers, address) : tile::ldmatrix(registers, address);
  for (int r = 0; r < 4; ++r) to[4 * threadIdx.x + r] = registers[r];
}

}  // namespace

TEST_CASE("ldmatrix: four matrices, as they are and transposed") {
  if (skipped("ldmatrix")) return;
  const std::vector<half> values = whole_numbers<half>(256, 3);
  lab::DeviceArray<half> from(values, "from");
  lab::DeviceArray<unsigned> to(128, "to");
  for (const bool transposed : {false, true}) {
    ldmatrix_kernel<<<1, 32>>>(from.data(), to.data(), transposed);
    lab::check(cudaDeviceSynchronize());
    const std::vector<unsigned> got = to.download();
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix)
        for (int i = 0; i < 2; ++i) {
          const int row = lane / 4, column = lane % 4 * 2 + i;
          const half expected =
              values[64 * matrix + (transposed ? 8 * column + row : 8 * row + column)];
          const __half_raw half_of{static_cast<unsigned short>(got[4 * lane + matrix] >> (16 * i))};
          CHECK(__half2float(half(half_of)) == __half2float(expected));
        }
  }
}

namespace {

// sums [16, 16] = left [16, k] rightᵀ [16, k], by one warp, through tiles in that layout.
template <class Element, template <int> class Layout>
__global__ void product_kernel(const Element* left, const Element* right, float* sums) {
  constexpr int kColumns = 128 / int(sizeof(Element));
  using Tile = tile::SharedTile<Element, 16, kColumns, Layout>;
  __shared__ Tile lefts, rights;
  for (unsigned i = threadIdx.x; i < 16 * Tile::kPieces; i += 32) {
    const unsigned row = i / Tile::kPieces, piece = i % Tile::kPieces;
    tile::copy_async(lefts.address(row, piece), left + i * tile::kOfPiece<Element>);
    tile::copy_async(rights.address(row, piece), right + i * tile::kOfPiece<Element>);
  }
  tile::end_copies();
  tile::wait_for_copies<0>();
  __syncwarp();
  tile::Sums sum[2];
  for (int piece = 0; piece < Tile::kPieces; piece += 2) {
    tile::LeftFragment<Element> a;
    tile::RightFragment<Element> b[2];
    tile::load_left(a, lefts, 0, piece);
    tile::load_right(b, rights, 0, piece);
    for (int j = 0; j < 2; ++j) tile::multiply_add(sum[j], a, b[j]);
  }
  const int lane = threadIdx.x;
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 4; ++i)
      sums[tile::Sums::row(lane, i) * 16 + 8 * j + tile::Sums::column(lane, i)] = sum[j].value[i];
}

template <class Element, template <int> class Layout>
void check_product(const std::vector<Element>& left, const std::vector<Element>& right,
                   double conflicts) {
  const int k = 128 / int(sizeof(Element));
  lab::DeviceArray<Element> lefts(left, "left"), rights(right, "right");
  lab::DeviceArray<float> sums(256, "sums");
  sums.fill_nan();
  product_kernel<Element, Layout><<<1, 32>>>(lefts.data(), rights.data(), sums.data());
  lab::check(cudaDeviceSynchronize());
  const std::vector<float> got = sums.download();
  int wrong = 0;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 16; ++column) {
      float expected = 0;
      for (int i = 0; i < k; ++i)
        expected += float(left[row * k + i]) * float(right[column * k + i]);
      wrong += got[16 * row + column] != expected;
    }
  CHECK(wrong == 0);
  if (!lab::vgpu::present()) return;
  CHECK(shared("load/conflicts") == conflicts);
  CHECK(lab::vgpu::counter("/tensor_macs") == 16.0 * 16 * k);
}

bool has_tf32() {
  int major = 0;
  lab::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return major >= 8;
}

}  // namespace

TEST_CASE("products of fragments are those of a plain loop; swizzled loads have no conflict") {
  if (skipped("products")) return;
  const auto left = whole_numbers<half>(16 * 64, 4), right = whole_numbers<half>(16 * 64, 5);
  check_product<half, tile::Swizzled>(left, right, 0);
  check_product<half, tile::Padded>(left, right, 0);
  // Rows of 128 bytes side by side: each of the 4 x 2 loads has four times eight turns in place of
  // four.
  check_product<half, tile::Plain>(left, right, 8 * (32 - 4));
  if (!has_tf32()) return;
  const auto floats = whole_numbers<float>(16 * 32, 6), others = whole_numbers<float>(16 * 32, 7);
  check_product<float, tile::Swizzled>(floats, others, 0);
  check_product<float, tile::Padded>(floats, others, 0);
}

TEST_CASE("floats become tf32 rounded to nearest, in both operands") {
  if (skipped("tf32") || !has_tf32()) return;
  // 1 + 2^-10 is a number of tf32; 1 + 3 2^-12 lies nearer to it than to 1, 1 + 2^-12 nearer to 1.
  const float up = 1 + 3 * 0x1p-12f, down = 1 + 0x1p-12f;
  for (const auto& [left, right] : {std::pair(up, 1.0f), {1.0f, up}, {down, 1.0f}, {1.0f, down}}) {
    CAPTURE(left);
    CAPTURE(right);
    std::vector<float> lefts(16 * 32, 0.0f), rights(16 * 32, 0.0f);
    for (int row = 0; row < 16; ++row) lefts[row * 32 + row] = left, rights[row * 32 + row] = right;
    lab::DeviceArray<float> a(lefts, "left"), b(rights, "right"), sums(256, "sums");
    product_kernel<float, tile::Swizzled><<<1, 32>>>(a.data(), b.data(), sums.data());
    lab::check(cudaDeviceSynchronize());
    const std::vector<float> got = sums.download();
    const bool rounds_up = left == up || right == up;
    for (int i = 0; i < 256; ++i)
      CHECK(got[i] == (i % 17 ? 0.0f : rounds_up ? 1 + 0x1p-10f : 1.0f));
  }
}

TEST_CASE("checked: the example of its README is a product, of any number of rows and columns") {
  if (rerun_with_checks("checked: the example*")) return;
  if (skipped("the example")) return;
  for (const auto [m, n, k] : {std::array{1, 1, 64}, {16, 16, 128}, {17, 31, 192}, {37, 29, 320}}) {
    CAPTURE(m);
    const auto x = whole_numbers<half>(size_t(m) * k, 8), w = whole_numbers<half>(size_t(n) * k, 9);
    const lab::DeviceArray<half> on_device_x(x, "x"), on_device_w(w, "w");
    lab::DeviceArray<float> y(size_t(m) * n, "y");
    y.fill_nan();
    tile_example::product<<<dim3((n + 15) / 16, (m + 15) / 16), 32>>>(
        on_device_x.data(), on_device_w.data(), y.data(), m, n, k);
    lab::check(cudaDeviceSynchronize());
    const std::vector<float> got = y.download();
    int wrong = 0;
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column) {
        float expected = 0;
        for (int i = 0; i < k; ++i) expected += float(x[row * k + i]) * float(w[column * k + i]);
        wrong += got[row * n + column] != expected;
      }
    CHECK(wrong == 0);
    if (lab::vgpu::present()) CHECK(shared("load/conflicts") == 0);
  }
}
