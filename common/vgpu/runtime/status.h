// How a service of the runtime ended. Services of this room return a Status. A face of NVIDIA's
// interface (cudart/) says what its own error codes for them are, and then a Status becomes one where
// an error code of the face is wanted.
#pragma once
#include <concepts>

namespace vgpu::runtime {

// A face specializes it for its type of error: `static Error of(Status)`.
template <class Error>
struct Translation;

struct Status {
  enum Code {
    success,
    invalid_value,
    out_of_memory,
    not_initialized,  // the settings are wrong, or the process is a fork of one that used the device
    invalid_configuration,
    invalid_pitch,
    invalid_symbol,
    invalid_copy_direction,
    invalid_device_function,
    no_device,
    no_kernel_image,
    invalid_kernel_image,
    invalid_ptx,
    invalid_handle,
    not_permitted,
    not_supported,
    // How a launch went wrong.
    illegal_address,
    launch_out_of_resources,
    launch_timeout,
    cooperative_launch_too_large,
    invalid_cluster_size,
    device_assert,
    illegal_instruction,
    misaligned_address,
    invalid_address_space,
    launch_failure,
    // What stream capture forbids.
    capture_unsupported,
    capture_invalidated,
    capture_merge,
    capture_isolation,
    capture_implicit,
    captured_event,
    unknown,
    count_
  };
  constexpr Status(Code c = success) : code(c) {}
  friend constexpr bool operator==(Status, Status) = default;
  template <class Error>
  requires requires(Status status) {
    { Translation<Error>::of(status) } -> std::same_as<Error>;
  }
  operator Error() const { return Translation<Error>::of(*this); }

  Code code;
};

// "out of memory": the status in words, for people.
const char* words(Status status);

}  // namespace vgpu::runtime
