// The container in which nvcc embeds device code: PTX and cubin images for several architectures,
// stored as they are, LZ4 or zstd compressed. All reads are bounds checked; sizes are limited.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace vgpu::runtime {

struct FatbinError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Image {
  enum class Kind { ptx, elf, other };
  // Which devices run it: plain sm_90 from 9.0 on, sm_90a 9.0 only, sm_100f 10.x from 10.0 on.
  enum class Scope { plain, family, specific };
  Kind kind = Kind::other;
  Scope scope = Scope::plain;
  int arch = 0;  // 90
  std::uint64_t flags = 0;
  std::span<const std::byte> stored;  // in the container, padding cut off where it is known
  std::uint64_t uncompressed = 0;     // bytes; 0: not compressed
  std::string target() const;         // "sm_90a"
};

// What __cudaRegisterFatBinary gets.
struct FatbinWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* container;
  const void* const* prelinked;  // version 2 (-rdc=true): containers before linking, ends with null
};
inline constexpr std::uint32_t kWrapperMagic = 0x466243b1;
inline constexpr std::uint32_t kContainerMagic = 0xba55ed50;
inline constexpr std::uint64_t kMaxImageBytes = 1u << 30;

// Bytes of the container that begins here, as its header says. Throws FatbinError.
std::uint64_t container_size(std::span<const std::byte> header);
// The images of a container. Throws FatbinError, naming the offset.
std::vector<Image> read_container(std::span<const std::byte> bytes);
// The image's bytes, decompressed. Throws FatbinError.
std::vector<std::byte> image_bytes(const Image& image);
// The same as text, the padding after its end cut off.
std::string image_text(const Image& image);

// Whether a device of this compute capability runs the image's PTX.
bool runs_ptx(const Image& image, int major, int minor);
// The best PTX for a device of this compute capability: the newest target that it runs, and of
// these the most specific. Null when there is none.
const Image* choose_ptx(std::span<const Image> images, int major, int minor);
// The cubin that ptxas made for this device (exactly or, in the same major version, for an older
// minor one). Null when there is none.
const Image* choose_cubin(std::span<const Image> images, int major, int minor);
// Why choose_ptx found none, and the nvcc flag that mends it.
std::string explain_no_ptx(std::span<const Image> images, int major, int minor);

}  // namespace vgpu::runtime
