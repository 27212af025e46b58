// Chapter 14: attention as Hopper wants it, in four steps behind the last one of chapter 13.
#include "kernels.h"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

lab::ExitCode chapter(const lab::Run& run) {
  if (const std::string lack = hopper::why_not(); !lack.empty())
    throw lab::LackError("chapter 14 " + lack);
  return lab::run_ladder(run);
}

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(argc, argv,
                             {"14_hopper", "Chapter 14: attention on tensor maps and warpgroups.",
                              scratch_bytes, chapter, hopper::steps()});
}
