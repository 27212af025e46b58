// Step 3, streams: the launches and copies of the step before, dealt out to several streams. Nothing
// waits until all of them are submitted.
#pragma once

#include "2_unified.cuh"

namespace patch_embedding {

inline Traffic streams_traffic(const Part& part, int streams) {
  Traffic traffic = unified_traffic(part);
  traffic.waits = streams;
  traffic.device_bytes = streams * int64_t(kDotBytes);
  return traffic;
}

// The tokens of a part. All of `in`, `patches` and `tokens` lie in pinned memory, or copies wait after
// all; `memory`: kDotBytes on the device for each stream. Throws as channel_launches().
inline void streams(const Inputs& in, half* tokens, const Shape& shape, const Part& part,
                    half* patches, void* memory, const std::vector<cudaStream_t>& streams) {
  require_shape(shape, part);
  if (streams.empty())
    throw std::invalid_argument("patch embedding: at least one stream is needed");
  constexpr size_t kBytes = kPatchValues * sizeof(half);
  write_class_rows(in, tokens, shape, part);
  sort_by_patches(in.image, patches, shape, part.images, part.patches);
  size_t next = 0;
  for_each_output(part, [&](int image, int patch, int channel) {
    const size_t turn = next++ % streams.size();
    const cudaStream_t stream = streams[turn];
    const DotMemory device(static_cast<char*>(memory) + turn * kDotBytes);
    const int64_t number = int64_t(image) * part.patches + patch;
    copy_to_device(device.patch, patches + number * kPatchValues, kBytes, stream);
    copy_to_device(device.filter, in.weight + int64_t(channel) * kPatchValues, kBytes, stream);
    dot_kernel<<<1, kDotThreads, 0, stream>>>(device.patch, device.filter,
                                              offset_of(in, shape, patch, channel), device.token);
    copy_to_host(tokens + token_at(shape, image, 1 + patch, channel), device.token, sizeof(half),
                 stream);
  });
  for (const cudaStream_t stream : streams)
    require_success(cudaStreamSynchronize(stream), "all outputs");
}

}  // namespace patch_embedding
