// The GPU models that the virtual GPU can stand for: devices/*.json, built into the library.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/device_spec.h"

namespace vgpu {

// Figures of a model by its key ("h200", case does not matter), nothing when there is none.
std::optional<DeviceSpec> find_device(std::string_view key);

// All keys, the default one (h200) first, then by alphabet.
std::vector<std::string> device_keys();

// Reads one device file: an object with one entry {"value": .., "source": ..} for each field of
// DeviceSpec. A value of null goes with the source "unknown" and becomes NaN (numbers with a
// fraction) or 0 (whole numbers). The source "guessed" needs a "note" that says from what the value
// was guessed. Throws std::runtime_error naming the field that is missing, has the wrong type, no
// source, or a source that "documents" does not list.
DeviceSpec parse_device(std::string_view key, std::string_view json);

// Text of the file as built in, for tools that want the sources; "" when there is none.
std::string_view device_file(std::string_view key);

}  // namespace vgpu
