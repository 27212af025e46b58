// Accesses to protected pages of the host's memory: they are noted, and go on.
//
// The handler of SIGSEGV stands in front of the program's own while pages are protected, and passes on what is
// none of its business. Where the program puts another in its place, nothing is protected.
#pragma once
#include <memory>
#include <vector>

#include "host_guard.h"

namespace vgpu {

// One access. `guard` lives until the next call of watch() after it has been taken.
struct FaultHit {
  const HostGuard::Guard* guard = nullptr;
  const void *at = nullptr, *code = nullptr;  // the byte, the instruction
  bool writes = false;
};

namespace fault_handler {

using Guards = std::vector<std::shared_ptr<HostGuard::Guard>>;

// Looks for accesses to these pages from now on; false when it cannot, and then none may be protected.
bool watch(const Guards& guards);
// Between these two accesses are let in without a note.
void pause();
void resume();
// What has been noted since, and whether a page has been opened for it.
std::vector<FaultHit> take_hits();
bool opened();

}  // namespace fault_handler
}  // namespace vgpu
