// What results as JSON say of the machine and the compiler behind them.
#pragma once

#include <string>

#include "../json/json.h"
#include "device.h"

namespace lab {

json::Value device_json(const Device& device);
std::string nvcc_version();  // "13.0"

}  // namespace lab
