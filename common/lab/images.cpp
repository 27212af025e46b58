// Pictures in and out, and the heat map.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <tuple>

#include "errors.h"
#include "files.h"
#include "images.h"
#include "lab.cuh"

#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STBI_WRITE_NO_STDIO
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#if __has_include(<stb/stb_image_resize2.h>)
#include <stb/stb_image_resize2.h>
#else
#include <stb/stb_image_resize.h>
#endif

namespace lab {
namespace {

constexpr double kMaxImageFile = 512.0 * 1024 * 1024;  // bytes
constexpr double kMaxPixels = 100e6;

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), text.rbegin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

// stb paints what is missing of a cut JPEG grey; an end marker after the last scan says that it is
// whole.
bool jpeg_is_whole(const std::string& content) {
  const size_t scan = content.rfind("\xff\xda"), end = content.rfind("\xff\xd9");
  return scan != std::string::npos && end != std::string::npos && end > scan;
}

uint32_t big_endian(const std::string& content, size_t at) {
  uint32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(content[i]);
  return value;
}

// The checksum of a PNG's chunk (CRC-32, ISO 3309): type and data.
uint32_t checksum(const std::string& content, size_t begin, size_t end) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> remainders{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t rest = byte;
      for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0);
      remainders[byte] = rest;
    }
    return remainders;
  }();
  uint32_t rest = ~0u;
  for (size_t i = begin; i < end; ++i)
    rest = rest >> 8 ^ table[(rest ^ static_cast<unsigned char>(content[i])) & 255];
  return ~rest;
}

void require_size(const std::string& path, double width, double height) {
  if (width < 1 || height < 1)
    throw UsageError(format("%s: has %.0f x %.0f pixels, an image has at least 1 x 1", path.c_str(),
                            width, height));
  if (width * height > kMaxPixels)
    throw UsageError(format("%s: has %.0f x %.0f pixels, at most %.0f million are read",
                            path.c_str(), width, height, kMaxPixels / 1e6));
}

// Size, chunks and checksums, which stb takes as they are. Nothing is allocated before that.
void require_sound_png(const std::string& path, const std::string& content) {
  constexpr size_t kAround = 12;  // bytes of a chunk besides its data: length, type, checksum
  for (size_t at = 8;;) {
    const std::string where = format(" at byte %zu", at);
    if (content.size() - at < kAround)
      throw UsageError(path + ": is truncated: the chunk" + where + " is cut or missing");
    const size_t length = big_endian(content, at), data = at + 8;
    const std::string type = content.substr(at + 4, 4);
    const bool first = at == 8;
    if (!std::all_of(type.begin(), type.end(),
                     [](unsigned char c) { return std::isalpha(c) != 0; }) ||
        first != (type == "IHDR") || (first && length != 13))
      throw UsageError(path + ": is damaged: there is no chunk of a PNG" + where);
    if (length > content.size() - at - kAround)
      throw UsageError(format("%s: is truncated: chunk %s%s has %zu bytes, %zu are there",
                              path.c_str(), type.c_str(), where.c_str(), length,
                              content.size() - at - kAround));
    if (first) require_size(path, big_endian(content, data), big_endian(content, data + 4));
    const uint32_t noted = big_endian(content, data + length),
                   real = checksum(content, at + 4, data + length);
    if (noted != real)
      throw UsageError(format("%s: is damaged: chunk %s%s has the checksum %08x, its content %08x",
                              path.c_str(), type.c_str(), where.c_str(), noted, real));
    if (type == "IEND") return;
    at = data + length + 4;
  }
}

// "a GIF" of what is no PNG and no JPEG; "" when it is not known either.
std::string other_format(const std::string& content) {
  static const std::tuple<size_t, std::string, const char*> kFormats[] = {
      {0, "GIF8", "a GIF"},
      {0, "BM", "a BMP"},
      {8, "WEBP", "a WebP"},
      {0, std::string("II*\0", 4), "a TIFF"},
      {0, std::string("MM\0*", 4), "a TIFF"},
      {4, "ftyp", "an AVIF, HEIC or video"},
      {0, "%PDF", "a PDF"},
      {0, "P6", "a PPM"}};
  for (const auto& [at, mark, name] : kFormats)
    if (content.size() >= at + mark.size() && content.compare(at, mark.size(), mark) == 0)
      return name;
  return "";
}

void append_bytes(void* text, void* data, int size) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(data), size_t(size));
}

}  // namespace

Image load_image(const std::string& path) {
  const std::string content = read_file(path, kMaxImageFile);
  const bool is_png = content.starts_with("\x89PNG\r\n\x1a\n");
  const bool is_jpeg = content.starts_with("\xff\xd8\xff");
  if (!is_png && !is_jpeg) {
    const std::string other = other_format(content);
    throw UsageError(path + ": is no PNG or JPEG image, " +
                     (other.empty() ? "whatever its name says" : "but " + other + " file"));
  }
  if (is_png) require_sound_png(path, content);

  const auto* bytes = reinterpret_cast<const stbi_uc*>(content.data());
  Image image;
  int channels = 0;
  if (!stbi_info_from_memory(bytes, int(content.size()), &image.width, &image.height, &channels))
    throw UsageError(path + ": is truncated or damaged: " + stbi_failure_reason());
  require_size(path, image.width, image.height);
  if (is_jpeg && !jpeg_is_whole(content))
    throw UsageError(path + ": is truncated: the image's end is missing");
  stbi_uc* pixels =
      stbi_load_from_memory(bytes, int(content.size()), &image.width, &image.height, &channels, 3);
  if (!pixels) throw UsageError(path + ": is truncated or damaged: " + stbi_failure_reason());
  image.rgb.assign(pixels, pixels + size_t(image.width) * image.height * 3);
  stbi_image_free(pixels);
  return image;
}

void require_not_flat(const Image& photo) {
  for (size_t i = 3; i < photo.rgb.size(); ++i)
    if (photo.rgb[i] != photo.rgb[i % 3]) return;
  throw UsageError("the photo has one flat colour: there are no edges and lines in it");
}

void save_image(const std::string& path, const Image& image) {
  std::string content;
  bool done = false;
  if (ends_with(path, ".png"))
    done = stbi_write_png_to_func(append_bytes, &content, image.width, image.height, 3,
                                  image.rgb.data(), image.width * 3);
  else if (ends_with(path, ".jpg") || ends_with(path, ".jpeg"))
    done = stbi_write_jpg_to_func(append_bytes, &content, image.width, image.height, 3,
                                  image.rgb.data(), 92);
  else
    throw UsageError(path + ": the name must end in .png, .jpg or .jpeg");
  if (!done)
    throw UsageError(
        format("%s: %d x %d pixels cannot be encoded", path.c_str(), image.width, image.height));
  write_file(path, content);
}

Image square(const Image& image, int size) {
  if (size < 1 || image.width < 1 || image.height < 1)
    throw std::invalid_argument(
        format("square: %d x %d pixels to %d", image.width, image.height, size));
  const int side = std::min(image.width, image.height);
  const int left = (image.width - side) / 2, top = (image.height - side) / 2;
  const unsigned char* corner = image.rgb.data() + (size_t(top) * image.width + left) * 3;
  Image result{size, size, std::vector<unsigned char>(size_t(size) * size * 3)};
  if (side == size) {  // the filters would soften it
    for (int y = 0; y < size; ++y)
      std::copy_n(corner + size_t(y) * image.width * 3, size_t(size) * 3,
                  &result.rgb[size_t(y) * size * 3]);
    return result;
  }
#if __has_include(<stb/stb_image_resize2.h>)
  stbir_resize_uint8_linear(corner, side, side, image.width * 3, result.rgb.data(), size, size, 0,
                            STBIR_RGB);
#else
  stbir_resize_uint8(corner, side, side, image.width * 3, result.rgb.data(), size, size, 0, 3);
#endif
  return result;
}

}  // namespace lab
