// Answers that are kept on disk from one program to the next: $VGPU_CACHE_DIR, else
// $XDG_CACHE_HOME/vgpu, else ~/.cache/vgpu. Where nothing can be written nothing is kept.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "hash.h"

namespace vgpu::time {

inline constexpr std::uint64_t kMostCached = 256ull << 20;  // bytes of all entries; the oldest go

// The folder, whether it is there or not; "" when the environment names none.
std::string cache_folder();
// False when there is no such entry or it is damaged.
bool read_cached(const Hash& name, std::string_view kind, std::string& content);
// Replaces the entry as a whole. Many programs may do so at once.
void write_cached(const Hash& name, std::string_view kind, std::string_view content,
                  std::uint64_t most_bytes = kMostCached);

}  // namespace vgpu::time
