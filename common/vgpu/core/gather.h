// The counters of a launch, put together from those of its host threads.
#pragma once
#include <memory>
#include <vector>

#include "block.h"

namespace vgpu {

// In an order that does not depend on who did what. Observers add what they alone know.
LaunchCounters gather(Launch& launch, std::vector<std::unique_ptr<Worker>>& workers,
                      const std::vector<std::unique_ptr<Observer>>& observers);

}  // namespace vgpu
