// Step 4, resident: patches and filters are copied once and stay on the device, the tokens come back in
// one copy. The launches are those of the step before.
#pragma once

#include "2_unified.cuh"

namespace patch_embedding {

// Device memory of the step: the part's patches, its filters, and its tokens without class rows.
inline size_t resident_bytes(const Part& part) {
  const int64_t patches = int64_t(part.images) * part.patches;
  return size_t(patches * kPatchValues + int64_t(part.channels) * kPatchValues +
                patches * part.channels) *
         sizeof(half);
}

inline Traffic resident_traffic(const Part& part) {
  const int64_t out = part.outputs() * int64_t(sizeof(half));
  return {part.outputs(),
          1,
          2,
          int64_t(resident_bytes(part)) - out,
          1,
          out,
          int64_t(resident_bytes(part))};
}

// Where they lie.
struct Resident {
  half *patches, *filters, *tokens;
  Resident(void* memory, const Part& part)
      : patches(static_cast<half*>(memory)),
        filters(patches + int64_t(part.images) * part.patches * kPatchValues),
        tokens(filters + int64_t(part.channels) * kPatchValues) {}
};

// The copies in, a launch for each output, the copy out: [images, patches, channels] into `answers`,
// in pinned host memory. Everything goes into one stream and nothing waits.
inline void submit_resident(const Inputs& in, const half* patches, half* answers,
                            const Shape& shape, const Part& part, void* memory,
                            cudaStream_t stream) {
  const Resident device(memory, part);
  const int64_t patch_values = int64_t(part.images) * part.patches * kPatchValues;
  copy_to_device(device.patches, patches, size_t(patch_values) * sizeof(half), stream);
  copy_to_device(device.filters, in.weight, size_t(part.channels) * kPatchValues * sizeof(half),
                 stream);
  int64_t output = 0;
  for_each_output(part, [&](int image, int patch, int channel) {
    const int64_t number = int64_t(image) * part.patches + patch;
    dot_kernel<<<1, kDotThreads, 0, stream>>>(
        device.patches + number * kPatchValues, device.filters + int64_t(channel) * kPatchValues,
        offset_of(in, shape, patch, channel), device.tokens + output++);
    require_success(cudaGetLastError(), "launch");
  });
  copy_to_host(answers, device.tokens, size_t(part.outputs()) * sizeof(half), stream);
}

// From the order of `answers` to that of the tokens.
inline void place_answers(const half* answers, half* tokens, const Shape& shape, const Part& part) {
  int64_t output = 0;
  for_each_output(part, [&](int image, int patch, int channel) {
    tokens[token_at(shape, image, 1 + patch, channel)] = answers[output++];
  });
}

// The tokens of a part. `patches` and `answers`: pinned host memory for the part's patches, 768 values
// each, and for its outputs; `memory`: resident_bytes() on the device. Throws as channel_launches().
inline void resident(const Inputs& in, half* tokens, const Shape& shape, const Part& part,
                     half* patches, half* answers, void* memory, cudaStream_t stream) {
  require_shape(shape, part);
  write_class_rows(in, tokens, shape, part);
  sort_by_patches(in.image, patches, shape, part.images, part.patches);
  submit_resident(in, patches, answers, shape, part, memory, stream);
  require_success(cudaStreamSynchronize(stream), "all outputs");
  place_answers(answers, tokens, shape, part);
}

}  // namespace patch_embedding
