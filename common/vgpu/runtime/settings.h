// What the environment variables VGPU_* ask for.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "../core/device_spec.h"
#include "../core/machine.h"
#include "../profile/trace.h"

namespace vgpu::runtime {

struct Settings {
  DeviceSpec spec;
  MachineOptions options;
  bool profile_text = false;                // VGPU_PROFILE=text
  std::string profile_json;                 // VGPU_PROFILE=json:FILE
  std::optional<TraceSpec> trace;           // VGPU_TRACE
  std::string timeline;                     // VGPU_TIMELINE, a file
  std::string look;                         // VGPU_LOOK, a file
  bool no_time = false;                     // VGPU_TIME=0: no predictions, whoever asks for them
  bool leaks = false;                       // VGPU_CHECK=leaks
  bool copies = false;                      // VGPU_CHECK=copies: init, also where the host copies
  bool host = false;                        // VGPU_CHECK=host
  std::uint64_t instruction_limit = ~0ull;  // VGPU_INSTRUCTIONS, of a host thread in a launch
  std::string error;            // what is wrong with a value, in words; the device stays off
  bool unknown_device = false;  // the error is VGPU_DEVICE's
};

// `variable` gives a variable's value or null, as getenv does.
// "" or what is wrong with the first variable VGPU_... in `environment` that nobody reads: a name
// that is misspelt switches nothing on. `environment`: "NAME=value"s, the last one null.
std::string unknown_variable(const char* const* environment);

Settings read_settings(const std::function<const char*(const char*)>& variable);

}  // namespace vgpu::runtime
