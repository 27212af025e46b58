// Photos: other formats, damaged and cut files, sizes that are none. A PNG has checksums, so that any
// changed byte is found; of a JPEG it is asked that nothing worse than a wrong picture comes of it.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "bad_input.h"
#include "lab.cuh"
#include "lab/images.h"
#include "testing/testing.h"

using namespace bad_input;
namespace fs = std::filesystem;

namespace {

// The program that reads it, and what keeps it short where the photo is right.
Command reads_image(const std::string& file) {
  static int turn = 0;
  const std::vector<std::string> programs = {"chapter1", "chapter7", "chapter8", "chapter3",
                                             "chapter0"};
  const std::string program = programs[std::size_t(turn++) % programs.size()];
  std::vector<std::string> arguments = {"--image", file, "--size", "16", "--out", "drawn.png"};
  if (program == "chapter7")
    for (const char* more : {"--step", "simple", "--batch", "1", "--queries", "1"})
      arguments.push_back(more);
  return {program, arguments};
}

const std::vector<int> kRefused = {2}, kReadOrRefused = {0, 2};

void refused(const std::string& content, const std::vector<std::string>& words) {
  Bench::get().write("photo", content);
  std::vector<std::string> all = words;
  all.push_back("photo: ");
  expect(reads_image("photo"), kRefused, all);
}

std::string with_chunk(const std::string& chunk) {
  const std::string good = png(20, 20);
  return good.substr(0, 33) + chunk + good.substr(33);  // behind IHDR
}

}  // namespace

TEST_CASE("bad input: photos of other kinds") {
  Bench& bench = Bench::get();
  bench.clear();
  fs::create_directory(bench.path("folder"));
  REQUIRE(mkfifo(bench.path("pipe").c_str(), 0600) == 0);
  fs::create_symlink("nowhere", bench.path("link"));
  for (const std::string file :
       {"none", "folder", "pipe", "link", "/dev/zero", "photo/x", "folder/"})
    expect(reads_image(file), kRefused, {file + ": "});
  bench.write("flat", png(1, 1));
  for (const std::string program : {"chapter1", "chapter7", "chapter8"})
    if (lab::testing::has_device())
      expect({program, {"--image", "flat", "--size", "16", "--out", "drawn.png"}}, kRefused,
             {"one flat colour"});
  refused("", {"empty"});
  refused("just text\n", {"no PNG or JPEG"});
  refused(std::string(1000, '\0'), {"no PNG or JPEG"});
  refused("GIF89a" + std::string(100, '\1'), {"no PNG or JPEG", "a GIF"});
  refused("BM" + std::string(100, '\1'), {"no PNG or JPEG", "a BMP"});
  refused("RIFF\1\1\1\1WEBPVP8 ", {"no PNG or JPEG", "a WebP"});
  refused(std::string("II*\0\1\1\1\1", 8), {"no PNG or JPEG", "a TIFF"});
  refused("%PDF-1.7\n", {"no PNG or JPEG", "a PDF"});
  refused("P6 16 16 255\n" + std::string(768, 'x'), {"no PNG or JPEG", "a PPM"});
  refused("\x89PNG\r\n\x1a", {});
  refused("\x89PNG\n\x1a\n", {"no PNG or JPEG"});
  refused("\xff\xd8", {});
  refused("\xff\xd8\xff", {});
  refused(safetensors("{}", ""), {"no PNG or JPEG"});
  bench.clear();
}

TEST_CASE("bad input: PNG sizes and headers") {
  Bench::get().clear();
  const std::string data = stored(std::string(100, '\0'));
  struct Size {
    std::uint32_t width, height;
  };
  for (const auto& [width, height] : {Size{0, 16},
                                      {16, 0},
                                      {0, 0},
                                      {50'000, 50'000},
                                      {65'535, 65'535},
                                      {0x7fffffff, 1},
                                      {0x7fffffff, 0x7fffffff},
                                      {0xffffffff, 0xffffffff},
                                      {1, 0x80000000},
                                      {100'000'001, 1},
                                      {16'777'217, 7}}) {
    const std::string text = std::to_string(width) + " x " + std::to_string(height) + " pixels";
    refused(png_of(png_header(width, height), data), {text});
    // The checksum of the smaller picture: what is wrong with the size still comes first.
    std::string changed = png(16, 16);
    put_big_endian(changed, 16, width);
    put_big_endian(changed, 20, height);
    refused(changed, {text});
  }
  const std::string rows = stored(std::string(16 * 200, '\0'));
  for (const int depth : {0, 3, 5, 7, 9, 32, 255})
    refused(png_of(png_header(16, 16, depth), rows), {});
  for (const int colour : {1, 3, 5, 7, 8, 255})  // 3: a palette that is not there
    refused(png_of(png_header(16, 16, 8, colour), rows), {});
  refused(png_of(png_header(16, 16, 8, 2, 2), rows), {});
  refused(png_of(png_header(16, 16), "not compressed"), {});
  refused(png_of(png_header(16, 16), ""), {});
  refused(png_of(png_header(16, 16), stored("too few")), {});
  refused(png_of(png_header(16, 16), stored(std::string(16 * 49, '\7'))), {});  // no such filter
  refused(png_of(png_header(16, 16).substr(0, 12), rows), {"damaged"});
  refused(png_of(png_header(16, 16) + "x", rows), {"damaged"});
  refused("\x89PNG\r\n\x1a\n" + png_chunk("IDAT", rows) + png_chunk("IEND", ""), {"damaged"});
  refused("\x89PNG\r\n\x1a\n" + png_chunk("IHDR", png_header(16, 16)) + png_chunk("IEND", ""), {});
  refused(with_chunk(png_chunk("XXXX", "critical, and nobody knows it")), {});
  refused(with_chunk(png_chunk("IHDR", png_header(20, 20))), {"damaged"});
  refused(with_chunk(png_chunk("a\0bc", "")), {"damaged"});
  Bench::get().clear();
}

TEST_CASE("bad input: any changed byte of a PNG, and any cut") {
  Bench::get().clear();
  const std::string good = png(20, 20);
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    std::string changed = good;
    // Headers and checksums more often than pixels.
    const std::size_t at = i % 3 == 0   ? random.below(45)
                           : i % 3 == 1 ? good.size() - 1 - random.below(20)
                                        : random.below(good.size());
    changed[at] = char(changed[at] ^ (1 << random.below(8)));
    CAPTURE(at);
    refused(changed, {});
  }
  for (int i = 0; i < 30; ++i) refused(good.substr(0, 1 + random.below(good.size() - 1)), {});
  refused(good.substr(0, good.size() - 1), {"truncated"});
  Bench::get().clear();
}

TEST_CASE("bad input: damaged JPEGs") {
  Bench& bench = Bench::get();
  bench.clear();
  lab::Image image{40, 30, {}};
  for (int i = 0; i < 40 * 30 * 3; ++i)
    image.rgb.push_back(static_cast<unsigned char>(i * 7 % 251));
  lab::save_image(bench.path("good.jpg"), image);
  const std::string good = lab::testing::file_content(bench.path("good.jpg"));
  if (lab::testing::has_device()) expect(reads_image("good.jpg"), {0}, {}, {"drawn.png"});
  fs::remove(bench.path("good.jpg"));
  Random random(4);
  for (int i = 0; i < 60; ++i) {
    std::string changed = good;
    for (int n = 0; n < 1 + i % 8; ++n)
      changed[2 + random.below(i % 2 ? 400 : good.size() - 2)] = char(random.below(256));
    bench.write("photo", changed);
    if (lab::testing::has_device()) expect(reads_image("photo"), kReadOrRefused, {}, {"drawn.png"});
  }
  for (int i = 0; i < 20; ++i) refused(good.substr(0, 3 + random.below(good.size() - 5)), {});
  for (int i = 0; i < 10; ++i) {
    std::string garbage = "\xff\xd8\xff\xe0";
    for (int n = 0; n < 500; ++n) garbage += char(random.below(256));
    refused(garbage + "\xff\xd9", {});
  }
  std::string large = good;  // SOF0: marker, length, precision, height, width
  const std::size_t frame = large.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  std::fill_n(large.begin() + std::ptrdiff_t(frame) + 5, 4, '\xff');
  refused(large, {"65535 x 65535 pixels, at most 100 million"});
  std::fill_n(large.begin() + std::ptrdiff_t(frame) + 5, 4, '\0');
  refused(large, {});
  bench.clear();
}

TEST_CASE("good input: 16 bits, chunks that nobody knows, bytes behind the end") {
  if (!lab::testing::has_device()) return;
  Bench& bench = Bench::get();
  bench.clear();
  for (const std::string& content :
       {png(20, 20), png(20, 20, 16), with_chunk(png_chunk("teXt", "not critical")),
        with_chunk(png_chunk("tEXt", "")), png(20, 20) + "behind it"}) {
    bench.write("photo", content);
    expect(reads_image("photo"), {0}, {}, {"drawn.png"});
  }
  bench.clear();
}
