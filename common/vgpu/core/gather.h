// The counters of a launch, put together from those of its host threads.
#pragma once
#include <memory>
#include <vector>

#include "block.h"

namespace vgpu {

class CacheModel;

// In an order that does not depend on who did what. `cache`: null, or what modelled the caches.
LaunchCounters gather(Launch& launch, std::vector<std::unique_ptr<Worker>>& workers,
                      const CacheModel* cache);

}  // namespace vgpu
