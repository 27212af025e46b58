// Reads fat binaries. Layout of an entry (found with nvcc 13.0, see the tests): 0x00 u16 kind,
// 0x04 u32 header size, 0x08 u64 padded size, 0x10 u32 compressed size, 0x1c u32 architecture,
// 0x28 u64 flags, 0x38 u64 uncompressed size; the next entry begins after header and padded size.
#include "fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace vgpu::runtime {
namespace {

constexpr std::size_t kContainerHeader = 16;
constexpr std::size_t kEntryHeader = 0x40;
constexpr std::uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr std::uint64_t kFlagSpecific = 0x100000, kFlagFamily = 0x200000;
// More entries than any toolkit has architectures; a damaged container must not cost gigabytes.
constexpr std::size_t kMaxEntries = 4096;

template <class T>
T read(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  if (offset > bytes.size() || bytes.size() - offset < sizeof value)
    throw FatbinError("fat binary: ends at byte " + std::to_string(bytes.size()) +
                      " inside a header");
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::string Image::target() const {
  return "sm_" + std::to_string(arch) +
         (scope == Scope::specific ? "a"
          : scope == Scope::family ? "f"
                                   : "");
}

std::uint64_t container_size(std::span<const std::byte> header) {
  if (read<std::uint32_t>(header, 0) != kContainerMagic)
    throw FatbinError("fat binary: does not begin with the container's magic number");
  const auto header_size = read<std::uint16_t>(header, 6);
  const auto payload = read<std::uint64_t>(header, 8);
  if (header_size < kContainerHeader)
    throw FatbinError("fat binary: header of " + std::to_string(header_size) + " bytes");
  if (payload > (std::uint64_t{1} << 40))
    throw FatbinError("fat binary: claims " + std::to_string(payload) + " bytes of content");
  return header_size + payload;
}

std::vector<Image> read_container(std::span<const std::byte> bytes) {
  const std::uint64_t size = container_size(bytes);
  if (size > bytes.size())
    throw FatbinError("fat binary: claims " + std::to_string(size) + " bytes, has " +
                      std::to_string(bytes.size()));
  bytes = bytes.first(size);
  std::vector<Image> images;
  std::size_t at = read<std::uint16_t>(bytes, 6);
  while (at < bytes.size()) {
    const std::string where = "fat binary: entry at byte " + std::to_string(at) + ": ";
    const auto kind = read<std::uint16_t>(bytes, at);
    const auto header_size = read<std::uint32_t>(bytes, at + 0x04);
    const auto padded = read<std::uint64_t>(bytes, at + 0x08);
    const auto compressed = read<std::uint32_t>(bytes, at + 0x10);
    if (header_size < kEntryHeader || header_size > bytes.size() - at)
      throw FatbinError(where + "header of " + std::to_string(header_size) + " bytes");
    if (padded > bytes.size() - at - header_size)
      throw FatbinError(where + "content of " + std::to_string(padded) + " bytes, " +
                        std::to_string(bytes.size() - at - header_size) + " are left");
    Image image;
    image.kind = kind == 1 ? Image::Kind::ptx : kind == 2 ? Image::Kind::elf : Image::Kind::other;
    image.arch = static_cast<int>(read<std::uint32_t>(bytes, at + 0x1c) & 0xffff);
    image.flags = read<std::uint64_t>(bytes, at + 0x28);
    image.scope = image.flags & kFlagSpecific ? Image::Scope::specific
                  : image.flags & kFlagFamily ? Image::Scope::family
                                              : Image::Scope::plain;
    std::uint64_t stored = padded;
    if (image.flags & (kFlagLz4 | kFlagZstd)) {
      image.uncompressed = read<std::uint64_t>(bytes, at + 0x38);
      if (compressed > padded)
        throw FatbinError(where + std::to_string(compressed) + " compressed bytes in a room of " +
                          std::to_string(padded));
      if (image.uncompressed == 0 || image.uncompressed > kMaxImageBytes)
        throw FatbinError(where + "claims " + std::to_string(image.uncompressed) +
                          " bytes when decompressed");
      stored = compressed;
    }
    image.stored = bytes.subspan(at + header_size, stored);
    images.push_back(image);
    if (images.size() > kMaxEntries) throw FatbinError("fat binary: too many entries");
    at += header_size + padded;
  }
  return images;
}

std::vector<std::byte> image_bytes(const Image& image) {
  if (image.uncompressed == 0) {
    if (image.stored.size() > kMaxImageBytes) throw FatbinError("fat binary: image too large");
    return {image.stored.begin(), image.stored.end()};
  }
  std::vector<std::byte> out(image.uncompressed);
  if (image.flags & kFlagZstd) {
    const std::size_t n =
        ZSTD_decompress(out.data(), out.size(), image.stored.data(), image.stored.size());
    if (ZSTD_isError(n))
      throw FatbinError("fat binary: damaged zstd image for " + image.target() + ": " +
                        ZSTD_getErrorName(n));
    if (n != out.size())
      throw FatbinError("fat binary: zstd image for " + image.target() + " is short");
  } else {
    const int n = LZ4_decompress_safe(
        reinterpret_cast<const char*>(image.stored.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(image.stored.size()), static_cast<int>(out.size()));
    if (n < 0 || static_cast<std::size_t>(n) != out.size())
      throw FatbinError("fat binary: damaged LZ4 image for " + image.target());
  }
  return out;
}

std::string image_text(const Image& image) {
  const std::vector<std::byte> bytes = image_bytes(image);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto end = text.find('\0'); end != std::string::npos) text.resize(end);
  return text;
}

bool runs_ptx(const Image& image, int major, int minor) {
  const int device = 10 * major + minor;
  switch (image.scope) {
    case Image::Scope::plain:
      return image.arch <= device;
    case Image::Scope::family:
      return image.arch / 10 == major && image.arch <= device;
    case Image::Scope::specific:
      return image.arch == device;
  }
  return false;
}

const Image* choose_ptx(std::span<const Image> images, int major, int minor) {
  const Image* best = nullptr;
  for (const Image& image : images) {
    if (image.kind != Image::Kind::ptx || !runs_ptx(image, major, minor)) continue;
    if (!best || image.arch > best->arch || (image.arch == best->arch && image.scope > best->scope))
      best = &image;
  }
  return best;
}

const Image* choose_cubin(std::span<const Image> images, int major, int minor) {
  const int device = 10 * major + minor;
  const Image* best = nullptr;
  for (const Image& image : images) {
    if (image.kind != Image::Kind::elf) continue;
    const bool runs = image.scope == Image::Scope::specific
                          ? image.arch == device
                          : image.arch / 10 == major && image.arch <= device;
    if (!runs) continue;
    if (!best || image.arch > best->arch || (image.arch == best->arch && image.scope > best->scope))
      best = &image;
  }
  return best;
}

std::string explain_no_ptx(std::span<const Image> images, int major, int minor) {
  const std::string cc = std::to_string(major) + std::to_string(minor);
  const std::string mend =
      "compile with -gencode arch=compute_" + cc + ",code=[compute_" + cc + ",sm_" + cc + "]";
  std::set<std::pair<int, std::string>> ptx, machine;
  for (const Image& image : images) {
    if (image.kind == Image::Kind::ptx) ptx.insert({image.arch, image.target()});
    if (image.kind == Image::Kind::elf) machine.insert({image.arch, image.target()});
  }
  const auto list = [](const auto& targets) {
    std::string text;
    for (const auto& [arch, name] : targets) text += (text.empty() ? "" : ", ") + name;
    return text;
  };
  if (!ptx.empty())
    return "it has PTX for " + list(ptx) + " only, which a device of compute capability " +
           std::to_string(major) + "." + std::to_string(minor) + " does not run; " + mend;
  if (!machine.empty())
    return "it has machine code for " + list(machine) +
           " but no PTX, and PTX is what the virtual GPU executes; " + mend;
  return "it has no device code; " + mend;
}

}  // namespace vgpu::runtime
