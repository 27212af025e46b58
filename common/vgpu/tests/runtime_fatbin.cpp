// Fat binaries and cubins: containers built here by hand, damaged ones, and what nvcc writes.
#include <doctest/doctest.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "toolkit.h"
#include "vgpu/runtime/cubin.h"
#include "vgpu/runtime/fatbin.h"

using namespace vgpu::runtime;

namespace {

enum class Packing { none, lz4, zstd };

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof value) bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// An entry as nvcc lays it out: 0x40 bytes of header, 0x50 for PTX, content padded to 8.
std::vector<std::byte> entry(int kind, int arch, std::uint64_t scope, const std::string& text,
                             Packing packing) {
  std::string stored = text;
  std::uint64_t flags = 0x11 | scope;
  if (packing == Packing::lz4) {
    stored.resize(LZ4_compressBound(static_cast<int>(text.size())));
    stored.resize(LZ4_compress_default(text.data(), stored.data(), static_cast<int>(text.size()),
                                       static_cast<int>(stored.size())));
    flags |= 0x2000;
  } else if (packing == Packing::zstd) {
    stored.resize(ZSTD_compressBound(text.size()));
    stored.resize(ZSTD_compress(stored.data(), stored.size(), text.data(), text.size(), 3));
    flags |= 0x8000;
  }
  const std::uint32_t header = kind == 1 ? 0x50 : 0x40;
  const std::uint64_t padded = (stored.size() + 7) / 8 * 8;
  std::vector<std::byte> bytes(header + padded);
  put<std::uint16_t>(bytes, 0x00, static_cast<std::uint16_t>(kind));
  put<std::uint16_t>(bytes, 0x02, 0x101);
  put<std::uint32_t>(bytes, 0x04, header);
  put<std::uint64_t>(bytes, 0x08, padded);
  put<std::uint32_t>(bytes, 0x10,
                     packing == Packing::none ? 0u : static_cast<std::uint32_t>(stored.size()));
  put<std::uint32_t>(bytes, 0x1c, static_cast<std::uint32_t>(arch));
  put<std::uint64_t>(bytes, 0x28, flags);
  put<std::uint64_t>(bytes, 0x38, packing == Packing::none ? 0 : text.size());
  std::memcpy(bytes.data() + header, stored.data(), stored.size());
  return bytes;
}

std::vector<std::byte> container(const std::vector<std::vector<std::byte>>& entries) {
  std::vector<std::byte> bytes(16);
  for (const auto& e : entries) bytes.insert(bytes.end(), e.begin(), e.end());
  put<std::uint32_t>(bytes, 0, 0xba55ed50);
  put<std::uint16_t>(bytes, 4, 1);
  put<std::uint16_t>(bytes, 6, 16);
  put<std::uint64_t>(bytes, 8, bytes.size() - 16);
  return bytes;
}

constexpr std::uint64_t kPlain = 0, kSpecific = 0x100000, kFamily = 0x200000;

std::vector<std::byte> with_ptx(std::initializer_list<std::pair<int, std::uint64_t>> targets) {
  std::vector<std::vector<std::byte>> entries;
  for (const auto& [arch, scope] : targets)
    entries.push_back(entry(1, arch, scope, "x", Packing::none));
  return container(entries);
}

std::string chosen(const std::vector<std::byte>& bytes, int major, int minor) {
  const auto images = read_container(bytes);
  const Image* image = choose_ptx(images, major, minor);
  return image ? image->target() : "none";
}

std::string sample_text() {
  std::string text = ".version 9.0\n.target sm_90\n";
  for (int i = 0; i < 400; ++i)
    text += "add.s32 %r" + std::to_string(i * 7919 % 613) + ", %r1, 1;\n";
  return text;
}

// What a command prints, and its exit status in `status`.
std::string output_of(const std::string& command, int& status) {
  std::string text;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char part[4096];
  std::size_t n = 0;
  while ((n = std::fread(part, 1, sizeof part, pipe)) > 0) text.append(part, n);
  status = pclose(pipe);
  return text;
}

std::vector<std::byte> file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

const char* const kSource = R"(
__constant__ float coefficient[4] = {1, 2, 3, 4};
__global__ void __launch_bounds__(128) sums(const float* in, float* out, int n) {
  __shared__ float tile[192];
  float local[24];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = in[i];
  __syncthreads();
  for (int k = 0; k < 24; ++k) local[k * n % 24] = tile[(i + k) % 192] * coefficient[k & 3];
  if (i < n) out[i] = local[n % 24] + local[in[i] > 0];
}
extern "C" __global__ void tiny(int* out) { extern __shared__ int dynamic[]; out[0] = dynamic[1]; }
)";

// Directory for what nvcc writes, empty when there is no nvcc to be found.
struct Nvcc {
  std::string nvcc, directory;
  Nvcc() {
    nvcc = vgpu_tests::nvcc();
    int status = 0;
    output_of(nvcc + " --version", status);
    REQUIRE_MESSAGE(status == 0, "nvcc is needed (environment variable NVCC)");
    directory = vgpu_tests::temporary("runtime_fatbin");
    output_of("mkdir -p '" + directory + "'", status);
    std::ofstream(directory + "/k.cu") << kSource;
  }
  std::string run(const std::string& arguments) const {
    int status = 0;
    const std::string text =
        output_of("cd '" + directory + "' && " + nvcc + " " + arguments, status);
    REQUIRE_MESSAGE(status == 0, text);
    return text;
  }
};

}  // namespace

TEST_CASE("fatbin: stored, LZ4 and zstd images come out as they went in") {
  const std::string text = sample_text();
  for (const Packing packing : {Packing::none, Packing::lz4, Packing::zstd}) {
    const auto bytes =
        container({entry(2, 90, 0, "machine code", Packing::none), entry(1, 90, 0, text, packing),
                   entry(1, 75, 0, "other", packing)});
    const auto images = read_container(bytes);
    REQUIRE(images.size() == 3);
    CHECK(images[0].kind == Image::Kind::elf);
    CHECK(images[1].kind == Image::Kind::ptx);
    CHECK(images[1].target() == "sm_90");
    CHECK(image_text(images[1]) == text);
    CHECK(image_text(images[2]) == "other");
  }
}

TEST_CASE("fatbin: the PTX that is chosen") {
  CHECK(chosen(with_ptx({{75, kPlain}, {90, kPlain}, {80, kPlain}}), 9, 0) == "sm_90");
  CHECK(chosen(with_ptx({{75, kPlain}, {80, kPlain}}), 9, 0) == "sm_80");
  CHECK(chosen(with_ptx({{90, kPlain}, {90, kSpecific}}), 9, 0) == "sm_90a");
  CHECK(chosen(with_ptx({{90, kSpecific}, {90, kPlain}}), 9, 0) == "sm_90a");
  // 90a runs on 9.0 and nowhere else.
  CHECK(chosen(with_ptx({{90, kSpecific}, {80, kPlain}}), 10, 0) == "sm_80");
  CHECK(chosen(with_ptx({{90, kSpecific}}), 8, 0) == "none");
  // 100f runs on 10.0 and 10.3, not on 12.0.
  CHECK(chosen(with_ptx({{100, kFamily}, {100, kPlain}}), 10, 3) == "sm_100f");
  CHECK(chosen(with_ptx({{100, kFamily}}), 12, 0) == "none");
  CHECK(chosen(with_ptx({{103, kFamily}}), 10, 0) == "none");
  CHECK(chosen(with_ptx({{90, kPlain}}), 7, 5) == "none");
  CHECK(chosen(with_ptx({{100, kPlain}, {120, kPlain}}), 12, 0) == "sm_120");
}

TEST_CASE("fatbin: the cubin that is chosen") {
  const auto images_of = [](const std::vector<std::byte>& bytes) { return read_container(bytes); };
  const auto bytes =
      container({entry(2, 80, 0, "a", Packing::none), entry(2, 86, 0, "b", Packing::none),
                 entry(2, 90, kSpecific, "c", Packing::none)});
  const auto images = images_of(bytes);
  CHECK(choose_cubin(images, 8, 0)->arch == 80);
  CHECK(choose_cubin(images, 8, 6)->arch == 86);
  CHECK(choose_cubin(images, 8, 9)->arch == 86);
  CHECK(choose_cubin(images, 9, 0)->arch == 90);
  CHECK(choose_cubin(images, 7, 5) == nullptr);
  CHECK(choose_cubin(images, 10, 0) == nullptr);
}

TEST_CASE("fatbin: why there is no PTX") {
  const auto why = [](const std::vector<std::byte>& bytes) {
    return explain_no_ptx(read_container(bytes), 7, 5);
  };
  CHECK(why(with_ptx({{90, kPlain}})).find("PTX for sm_90 only") != std::string::npos);
  CHECK(why(container({entry(2, 75, 0, "x", Packing::none)})).find("no PTX") != std::string::npos);
  CHECK(why(container({})).find("no device code") != std::string::npos);
  // Each names what mends it.
  for (const auto& bytes : {with_ptx({{90, kPlain}}), container({})})
    CHECK(why(bytes).find("-gencode arch=compute_75,code=[compute_75,sm_75]") != std::string::npos);
}

TEST_CASE("fatbin: every truncation is refused") {
  const auto bytes = container({entry(1, 90, 0, sample_text(), Packing::zstd),
                                entry(2, 90, 0, "machine code", Packing::none)});
  CHECK(read_container(bytes).size() == 2);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    // A copy of exactly n bytes, so that a read behind them is seen by a sanitizer.
    const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<long>(n));
    CHECK_THROWS_AS(read_container(part), FatbinError);
  }
}

TEST_CASE("fatbin: damaged fields are refused") {
  const auto good = container({entry(1, 90, 0, sample_text(), Packing::lz4)});
  const auto broken = [&](std::size_t at, auto value) {
    auto bytes = good;
    put(bytes, at, value);
    return bytes;
  };
  CHECK_THROWS_AS(read_container(broken(0, std::uint32_t{1})), FatbinError);
  CHECK_THROWS_AS(read_container(broken(6, std::uint16_t{3})), FatbinError);
  CHECK_THROWS_AS(read_container(broken(8, ~std::uint64_t{0})), FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 4, std::uint32_t{0})), FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 4, ~std::uint32_t{0})), FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 8, ~std::uint64_t{0} - 100)), FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 8, std::uint64_t{good.size() - 16 - 0x50 + 8})),
                  FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 0x10, ~std::uint32_t{0})), FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 0x38, std::uint64_t{1} << 50)), FatbinError);
  CHECK_THROWS_AS(read_container(broken(16 + 0x38, std::uint64_t{0})), FatbinError);
  // A wrong length or damaged content shows when the image is taken out.
  const auto longer = broken(16 + 0x38, std::uint64_t{1} << 20);
  CHECK_THROWS_AS(image_bytes(read_container(longer).at(0)), FatbinError);
  auto noise = good;
  std::fill(noise.begin() + 16 + 0x50, noise.end(), std::byte{0xff});
  CHECK_THROWS_AS(image_bytes(read_container(noise).at(0)), FatbinError);
}

TEST_CASE("fatbin: random damage never gets further than an error") {
  std::mt19937 random(1);
  const auto good = container({entry(1, 90, 0, sample_text(), Packing::zstd),
                               entry(1, 80, 0, sample_text(), Packing::lz4),
                               entry(2, 90, 0, "machine code", Packing::none)});
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    auto bytes = good;
    for (int i = 0; i < 1 + round % 5; ++i)
      bytes[random() % (round % 2 ? 200 : bytes.size())] = static_cast<std::byte>(random());
    try {
      for (const Image& image : read_container(bytes))
        if (image.uncompressed < 1u << 20) image_bytes(image);
    } catch (const FatbinError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("fatbin: what nvcc writes with each compression" * doctest::test_suite("toolkit")) {
  const Nvcc nvcc;
  // -fatbin leaves the PTX that it embeds beside it.
  std::string first;
  for (const std::string mode : {"none", "speed", "balance", "size"}) {
    nvcc.run(
        "-std=c++20 -fatbin -gencode arch=compute_90,code=[compute_90,sm_90] --compress-mode=" +
        mode + " k.cu -o " + mode + ".fatbin");
    const auto bytes = file_bytes(nvcc.directory + "/" + mode + ".fatbin");
    const auto images = read_container(bytes);
    const Image* ptx = choose_ptx(images, 9, 0);
    REQUIRE(ptx != nullptr);
    CHECK((ptx->uncompressed != 0) == (mode != "none"));
    const std::string text = image_text(*ptx);
    CHECK(text.find(".target sm_90") != std::string::npos);
    CHECK(text.find(".entry tiny") != std::string::npos);
    CHECK(text.rfind('}') > text.size() - 8);  // to its end
    if (first.empty()) first = text;
    CHECK(text == first);
    CHECK(choose_cubin(images, 9, 0) != nullptr);
  }
}

TEST_CASE("cubin: registers, stack and shared memory as ptxas says" *
          doctest::test_suite("toolkit")) {
  const Nvcc nvcc;
  for (const std::string arch : {"75", "80", "86", "89", "90", "100", "120"}) {
    CAPTURE(arch);
    const std::string said =
        nvcc.run("-std=c++20 -cubin -Xptxas -v -arch=sm_" + arch + " k.cu -o k" + arch + ".cubin");
    const auto kernels = read_cubin(file_bytes(nvcc.directory + "/k" + arch + ".cubin"));
    REQUIRE(kernels.size() == 2);
    std::istringstream lines(said);
    std::string line, kernel;
    int seen = 0;
    // The number before these words, 0 where the line does not have them.
    const auto number = [&](const std::string& words) {
      const auto at = line.find(" " + words);
      if (at == std::string::npos) return 0;
      return std::stoi(line.substr(line.find_last_of(" ,", at - 1) + 1));
    };
    while (std::getline(lines, line)) {
      const std::string opening = "Compiling entry function '";
      if (const auto at = line.find(opening); at != std::string::npos)
        kernel = line.substr(at + opening.size(),
                             line.find('\'', at + opening.size()) - at - opening.size());
      if (line.find("Used ") == std::string::npos) continue;
      REQUIRE(kernels.count(kernel) == 1);
      const CubinKernel& facts = kernels.at(kernel);
      CHECK(facts.registers == number("registers"));
      CHECK(facts.shared_bytes == number("bytes smem"));
      CHECK(facts.local_bytes == number("bytes cumulative stack size"));
      ++seen;
    }
    CHECK(seen == 2);
    CHECK(kernels.at("_Z4sumsPKfPfi").shared_bytes == 192 * 4);
    CHECK(kernels.at("_Z4sumsPKfPfi").local_bytes >= 24 * 4);
  }
}

TEST_CASE("cubin: the stack is the larger of frame and least stack, whatever their order") {
  const Nvcc nvcc;
  nvcc.run("-std=c++20 -cubin -arch=sm_90 k.cu -o stack.cubin");
  const auto good = file_bytes(nvcc.directory + "/stack.cubin");
  for (const int attribute : {0x11, 0x12}) {
    auto bytes = good;
    int changed = 0;
    for (std::size_t at = 0; at + 12 <= bytes.size(); ++at)
      if (bytes[at] == std::byte{4} && bytes[at + 1] == std::byte(attribute) &&
          bytes[at + 2] == std::byte{8} && bytes[at + 3] == std::byte{0}) {
        put<std::uint32_t>(bytes, at + 8, 4096);
        ++changed;
      }
    CHECK(changed >= 2);
    for (const auto& [name, facts] : read_cubin(bytes)) CHECK(facts.local_bytes == 4096);
  }
}

TEST_CASE("cubin: truncated and damaged files give fewer facts, never a fault") {
  const Nvcc nvcc;
  nvcc.run("-std=c++20 -cubin -arch=sm_90 k.cu -o damage.cubin");
  const auto good = file_bytes(nvcc.directory + "/damage.cubin");
  REQUIRE(read_cubin(good).size() == 2);
  for (std::size_t n = 0; n < good.size(); n += 7) {
    const std::vector<std::byte> part(good.begin(), good.begin() + static_cast<long>(n));
    CHECK(read_cubin(part).size() <= 2);
  }
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = good;
    for (int i = 0; i < 8; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (round % 2) bytes[random() % 64] = static_cast<std::byte>(random());
    CHECK(read_cubin(bytes).size() < 100);
  }
}
