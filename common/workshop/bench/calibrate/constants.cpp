#include "constants.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "../../../lab/errors.h"
#include "../../../vgpu/profile/devices.h"
#include "../../../vgpu/time/timing.h"

namespace calibrate {
namespace {

// The device file for a GPU, and a note where it is another one's.
std::optional<vgpu::DeviceSpec> spec_of(const std::string& name, int major, int minor,
                                        std::string& note) {
  std::optional<vgpu::DeviceSpec> like;
  for (const std::string& key : vgpu::device_keys()) {
    const auto spec = vgpu::find_device(key);
    if (spec->name == name) return spec;
    if (!like && spec->major == major && spec->minor == minor) like = spec;
  }
  if (like)
    note = "no device file has the name '" + name + "': figures are those of " + like->name +
           ", which has the same compute capability";
  return like;
}

}  // namespace

Model::Model(const std::string& device_name, int major, int minor) {
  const auto spec = spec_of(device_name, major, minor, note_);
  const vgpu::time::Timing timing = spec ? vgpu::time::timing_of(*spec) : vgpu::time::Timing{};
  if (!spec || !timing.why.empty())
    throw lab::LackError("the model of times has no constants for " + device_name +
                         " (compute capability " + std::to_string(major) + "." +
                         std::to_string(minor) +
                         "); a device file and a column of timing.cpp give it some");
  clock_mhz_ = spec->clock_mhz(false);
  for (const auto& [name, constant] : timing.all())
    entries_.push_back({std::string(name), {constant->value, constant->source}});
  const bool small = major * 10 + minor < 80;  // products of 16 x 8 x 8
  entries_.push_back({"tensor_interval",
                      {timing.tensor_interval(small ? "HMMA.1688.F32" : "HMMA.16816.F32"),
                       timing.tensor_fp16_fp32_sums.source}});
  entries_.push_back({"dram_gb_s",
                      {spec->dram_gb_s * timing.dram_share.value,
                       "the device's file; dram_share: " + timing.dram_share.source}});
}

Constant Model::at(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.name == name) return entry.constant;
  throw std::logic_error("the model of times has no constant '" + std::string(name) + "'");
}

std::vector<std::string> Model::from(std::string_view source) const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_)
    if (entry.constant.source.starts_with(source)) names.push_back(entry.name);
  return names;
}

void Model::replace(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.name == name; });
  if (equals == text.npos || entry == entries_.end())
    throw lab::UsageError("--constant '" + text +
                          "': must be NAME=VALUE, with a NAME of common/vgpu/time/timing.h");
  double value = 0;
  const char *const begin = text.data() + equals + 1, *const end = text.data() + text.size();
  const auto read = std::from_chars(begin, end, value);
  if (read.ec != std::errc() || read.ptr != end || !(value > 0))
    throw lab::UsageError("--constant '" + text + "': the value must be a number above 0");
  entry->constant = {value, "--constant"};
}

}  // namespace calibrate
