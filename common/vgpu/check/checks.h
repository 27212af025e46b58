// The checks beyond memory errors: race, init and sync (VGPU_CHECK).
#pragma once
#include <memory>
#include <vector>

#include "../core/machine.h"
#include "../core/observer.h"

namespace vgpu {

// One observer for each check that is asked for.
std::vector<std::unique_ptr<Observer>> make_checks(const MachineOptions& options);

}  // namespace vgpu
