// Loads PTX files and decodes every function in them; lists what the table of forms does not hold.
// Usage: ptx-coverage FILE.ptx...   Exit status 0: nothing refused, 1: something was, 2: usage.
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "../core/machine.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: ptx-coverage FILE.ptx...\n");
    return 2;
  }
  vgpu::Machine machine(vgpu::DeviceSpec{}, {});
  int functions = 0, refused = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i]);
    if (!in) {
      std::fprintf(stderr, "ptx-coverage: cannot read %s\n", argv[i]);
      return 2;
    }
    std::ostringstream text;
    text << in.rdbuf();
    try {
      const auto module = machine.load(text.str());
      functions += static_cast<int>(module->module->functions.size());
      for (const std::string& message : machine.refusals(*module)) {
        std::printf("%s: %s\n", argv[i], message.c_str());
        ++refused;
      }
    } catch (const vgpu::PtxError& error) {
      std::printf("%s: %s\n", argv[i], error.what());
      ++refused;
    }
  }
  std::printf("ptx-coverage: %d files, %d functions, %d refused\n", argc - 1, functions, refused);
  return refused ? 1 : 0;
}
