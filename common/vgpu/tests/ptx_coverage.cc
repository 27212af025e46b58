// Loads all PTX in what nvcc has made (objects, programs, fat binaries) and decodes every function;
// lists what the table of forms does not hold.
// Usage: ptx-coverage FILE...   Exit status 0: nothing refused, 1: something was, 2: bad usage, or a
// file without PTX.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "../core/machine.h"
#include "../runtime/fatbin.h"

namespace {

// All PTX images of a file, wherever in it the containers stand (nvcc aligns them to 8 bytes).
std::vector<vgpu::runtime::Image> ptx_images(std::span<const std::byte> file) {
  std::vector<vgpu::runtime::Image> found;
  for (std::size_t at = 0; at + 8 <= file.size(); at += 8) {
    std::uint32_t magic;
    std::memcpy(&magic, file.data() + at, sizeof magic);
    if (magic != vgpu::runtime::kContainerMagic) continue;
    for (const vgpu::runtime::Image& image : vgpu::runtime::read_container(file.subspan(at)))
      if (image.kind == vgpu::runtime::Image::Kind::ptx) found.push_back(image);
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: ptx-coverage FILE...\n");
    return 2;
  }
  vgpu::Machine machine(vgpu::DeviceSpec{}, {});
  int images = 0, functions = 0, refused = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    const std::string content(std::istreambuf_iterator<char>(in), {});
    try {
      const auto found = ptx_images(std::as_bytes(std::span(content)));
      if (!in || found.empty()) {
        std::fprintf(stderr, "ptx-coverage: no PTX in %s\n", argv[i]);
        return 2;
      }
      images += static_cast<int>(found.size());
      for (const vgpu::runtime::Image& image : found) {
        const auto module = machine.load(image_text(image));
        functions += static_cast<int>(module->module->functions.size());
        for (const std::string& message : machine.refusals(*module)) {
          std::printf("%s for %s: %s\n", argv[i], image.target().c_str(), message.c_str());
          ++refused;
        }
      }
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", argv[i], error.what());
      ++refused;
    }
  }
  std::printf("ptx-coverage: %d files, %d PTX images, %d functions, %d refused\n", argc - 1, images,
              functions, refused);
  return refused ? 1 : 0;
}
