#include "devices.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "../../json/json.h"

namespace vgpu {
namespace {

using Json = json::Value;

struct DeviceFile {
  std::string_view key, json;
};

constexpr DeviceFile kFiles[] = {
#include "devices.inc"
};

class Reader {
 public:
  Reader(std::string_view key, std::string_view text) : key_(key) {
    json_ = json::parse_or_null(text);
    if (!json_.is_object()) throw std::runtime_error(where("") + "no JSON object");
    if (!json_.contains("documents") || !json_["documents"].is_object())
      throw std::runtime_error(where("documents") + "missing");
  }

  void read(const char* field, std::string& to) {
    const Json& value = entry(field, &Json::is_string, "a text");
    to = value.is_null() ? "unknown" : value.get<std::string>();
  }
  void read(const char* field, bool& to) {
    const Json& value = entry(field, &Json::is_boolean, "true or false");
    to = !value.is_null() && value.get<bool>();
  }
  void read(const char* field, double& to) {
    const Json& value = entry(field, &Json::is_number, "a number");
    to = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  void read(const char* field, int& to) {
    const Json& value = entry(field, &Json::is_number_integer, "a whole number");
    to = value.is_null() ? 0 : value.get<int>();
  }
  void read(const char* field, std::int64_t& to) {
    const Json& value = entry(field, &Json::is_number_integer, "a whole number");
    to = value.is_null() ? 0 : value.get<std::int64_t>();
  }

 private:
  std::string where(const std::string& field) const {
    return "device '" + key_ + "': " + (field.empty() ? "" : "'" + field + "': ");
  }

  const Json& entry(const char* field, bool (Json::*right_type)() const,
                    const char* type_name) const {
    const Json* const found = json_.find(field);
    if (!found) throw std::runtime_error(where(field) + "missing");
    if (!found->is_object() || !found->contains("value") || !found->contains("source") ||
        !(*found)["source"].is_string())
      throw std::runtime_error(where(field) + "needs a value and a source");
    const Json& value = (*found)["value"];
    const std::string source = (*found)["source"].get<std::string>();
    if (value.is_null() != (source == "unknown"))
      throw std::runtime_error(where(field) + "null goes with the source 'unknown', and only null");
    if (source == "guessed") {
      const Json* const note = found->find("note");
      if (!note || !note->is_string() || note->get<std::string>().empty())
        throw std::runtime_error(where(field) + "a guess needs a 'note' that says from what");
    } else if (!value.is_null() && !json_["documents"].contains(source)) {
      throw std::runtime_error(where(field) + "the source '" + source + "' is not in 'documents'");
    }
    if (!value.is_null() && !(value.*right_type)())
      throw std::runtime_error(where(field) + "must be " + type_name);
    return value;
  }

  std::string key_;
  Json json_;
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

DeviceSpec parse_device(std::string_view key, std::string_view json) {
  Reader reader(key, json);
  DeviceSpec spec;
  spec.key = std::string(key);
#define READ(field) reader.read(#field, spec.field)
  READ(name);
  READ(major);
  READ(minor);
  READ(sm_count);
  READ(max_warps_per_sm);
  READ(max_blocks_per_sm);
  READ(max_threads_per_block);
  READ(registers_per_sm);
  READ(registers_per_block);
  READ(max_registers_per_thread);
  READ(register_unit);
  READ(shared_per_sm);
  READ(shared_per_block);
  READ(shared_per_block_optin);
  READ(shared_reserved);
  READ(shared_unit);
  READ(l1_bytes);
  READ(l2_bytes);
  READ(memory_bytes);
  READ(memory_bus_bits);
  READ(sm_clock_mhz);
  READ(load_clock_mhz);
  READ(tensor_clock_mhz);
  READ(memory_clock_mhz);
  READ(dram_gb_s);
  READ(l2_gb_s);
  READ(pcie_gb_s);
  READ(l1_bytes_per_clock_sm);
  READ(distributed_bytes_per_clock_sm);
  READ(fp32_fma_per_clock_sm);
  READ(fp16_fma_per_clock_sm);
  READ(fp64_fma_per_clock_sm);
  READ(special_per_clock_sm);
  READ(tensor_fp16_fma_per_clock_sm);
  READ(tensor_mma_sync_fp16_fma_per_clock_sm);
  READ(tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm);
  READ(tensor_mma_sync_fp8_fma_per_clock_sm);
  READ(tensor_tf32_fma_per_clock_sm);
  READ(tensor_int8_fma_per_clock_sm);
  READ(schedulers_per_sm);
  READ(cooperative);
  READ(clusters);
#undef READ
  return spec;
}

std::string_view device_file(std::string_view key) {
  const std::string wanted = lower(key);
  for (const DeviceFile& file : kFiles)
    if (file.key == wanted) return file.json;
  return {};
}

std::optional<DeviceSpec> find_device(std::string_view key) {
  const std::string_view file = device_file(key);
  if (file.empty()) return std::nullopt;
  return parse_device(lower(key), file);
}

std::vector<std::string> device_keys() {
  std::vector<std::string> keys;
  for (const DeviceFile& file : kFiles) keys.emplace_back(file.key);
  std::sort(keys.begin(), keys.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a != "h200", a) < std::pair(b != "h200", b);
  });
  return keys;
}

}  // namespace vgpu
