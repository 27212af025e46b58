// Counters of a student's launches, as aims ask for them.
#include "counters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "json/json.h"

namespace lab::grader {
namespace {

using Json = json::Value;

constexpr double kSectorBytes = 32, kWarpBytes = 512;
// Local memory that a thread may load and store freely: a printf's arguments need less.
constexpr double kFreeLocalBytes = 512;
// Floating-point instructions for so large a part of the multiply-adds mean that a product is not
// on tensor cores: softmax takes a tenth of them, each of two products a half.
constexpr double kByHand = 0.4;

// 0 where it is not there.
double number(const Json& json, const std::string& pointer) {
  const Json* const found = json.find_path(pointer);
  return found && found->is_number() ? found->get<double>() : 0;
}

// What accesses of one kind move; `needed`: sectors if the same bytes lay side by side.
struct Traffic {
  double bytes = 0, requests = 0, sectors = 0, needed = 0;
};

// What warps' instructions move: "load" or "store" of an allocation.
Traffic instruction_traffic(const Json& json) {
  const double requests = number(json, "/requests");
  return {number(json, "/bytes_asked"), requests, number(json, "/sectors"),
          number(json, "/ideal_sectors_per_request") * requests};
}

// What the copy engine moves, counted as loads of 16 bytes a lane.
Traffic copy_traffic(const Json& json) {
  const double bytes = number(json, "/bytes");
  return {bytes, std::ceil(bytes / kWarpBytes), number(json, "/l2_sectors"), bytes / kSectorBytes};
}

// An atomic operation loads and stores.
constexpr const char* kAtomic = "atomic";

double local_bytes(const Json& launch) {
  double bytes = 0;
  for (const char* access : {"load", "store", kAtomic})
    bytes += number(launch, std::string("/local/") + access + "/bytes_asked");
  return bytes > kFreeLocalBytes * number(launch, "/threads") ? bytes : 0;
}

}  // namespace

struct Counters::Data {
  Json launches;
  std::set<std::string> arrays;

  // Calls f(traffic of an array) with its launch's number.
  template <class F>
  void each(const std::string& array, const std::string& access, F&& f) const {
    for (size_t i = 0; i < launches.size(); ++i) {
      const Json& launch = launches.item(i);
      const Json& allocations = launch.at("allocations");
      for (size_t k = 0; k < allocations.size(); ++k) {
        const std::string& name = allocations.names()[k];
        if (array == kScratch ? arrays.contains(name) : name != array) continue;
        const Json& allocation = allocations.item(k);
        for (const std::string& kind : {access, std::string(kAtomic)}) {
          if (const Json* const found = allocation.find(kind)) f(i, instruction_traffic(*found));
          if (const Json* const engine = allocation.find_path("/copy_engine/" + kind))
            f(i, copy_traffic(*engine));
        }
      }
      if (array == kScratch && local_bytes(launch) > 0)
        f(i, instruction_traffic(launch.at("local").at(access)));
    }
  }

  double sum(const std::string& array, const std::string& access, double Traffic::*what) const {
    double sum = 0;
    each(array, access, [&](size_t, const Traffic& traffic) { sum += traffic.*what; });
    return sum;
  }
};

Counters::Counters(const std::string& launches, const std::vector<std::string>& arrays) {
  const Json all = json::parse_or_null(launches);
  if (!all.is_array()) throw std::runtime_error("the counters are no JSON list");
  data_ = std::make_shared<Data>(Data{all, {arrays.begin(), arrays.end()}});
}

double Counters::sum(const std::string& pointer) const {
  double sum = 0;
  for (const Json& launch : data_->launches) sum += number(launch, pointer);
  return sum;
}

double Counters::launches() const { return double(data_->launches.size()); }

double Counters::bytes(const std::string& array, const std::string& access) const {
  return data_->sum(array, access, &Traffic::bytes);
}
double Counters::requests(const std::string& array, const std::string& access) const {
  return data_->sum(array, access, &Traffic::requests);
}
double Counters::sectors(const std::string& array, const std::string& access) const {
  return data_->sum(array, access, &Traffic::sectors);
}

double Counters::loaded_tiles() const {
  double sum = bytes("K", "load") + bytes("V", "load") + bytes(kScratch, "load");
  // The copy engine's way into memory of the student's own is one of theirs, too.
  for (const Json& launch : data_->launches) {
    const Json& allocations = launch.at("allocations");
    for (size_t k = 0; k < allocations.size(); ++k)
      if (!data_->arrays.contains(allocations.names()[k]))
        sum += number(allocations.item(k), "/copy_engine/store/bytes");
  }
  return sum;
}

double Counters::stored() const {
  double bytes = sum("/global/store/bytes_asked") + sum("/global/atomic/bytes_asked") +
                 sum("/copy_engine/store/bytes") + sum("/copy_engine/atomic/bytes");
  for (const Json& launch : data_->launches)
    if (local_bytes(launch) > 0) bytes += number(launch, "/local/store/bytes_asked");
  return bytes;
}

double Counters::brought_to_shared() const {
  double bytes = sum("/copy_engine/load/bytes");
  for (const char* access : {"store", kAtomic})
    bytes += sum(std::string("/shared/") + access + "/bytes_asked") +
             sum(std::string("/distributed_shared/") + access + "/bytes");
  return bytes;
}

double Counters::on_tensor_cores(double multiply_adds) const {
  // A half2 instruction has two.
  const double by_hand =
      sum("/classes/fp32/thread") + sum("/classes/fp64/thread") + 2 * sum("/classes/fp16/thread");
  return by_hand > kByHand * multiply_adds ? 0 : sum("/tensor_macs");
}

Counters Counters::chosen(const std::string& array, bool both) const {
  std::vector<bool> loads(data_->launches.size()), stores(loads.size());
  data_->each(array, "load", [&](size_t i, const Traffic& t) {
    if (t.requests != 0) loads[i] = true;
  });
  data_->each(array, "store", [&](size_t i, const Traffic& t) {
    if (t.requests != 0) stores[i] = true;
  });
  Counters result = *this;
  Json launches = Json::array();
  for (size_t i = 0; i < loads.size(); ++i)
    if ((loads[i] && stores[i]) == both) launches.push_back(data_->launches.item(i));
  result.data_ = std::make_shared<Data>(Data{launches, data_->arrays});
  return result;
}
Counters Counters::load_and_store(const std::string& array) const { return chosen(array, true); }
Counters Counters::load_or_store(const std::string& array) const { return chosen(array, false); }

double Counters::moved_over_needed(const std::string& array, const std::string& access,
                                   double most_bytes) const {
  std::map<size_t, Traffic> by_launch;
  data_->each(array, access, [&](size_t launch, const Traffic& t) {
    if (t.requests == 0) return;
    by_launch[launch].sectors += t.sectors;
    by_launch[launch].needed += t.needed;
  });
  double worst = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [launch, traffic] : by_launch)
    worst = std::fmax(worst, traffic.sectors / std::min(traffic.needed, most_bytes / kSectorBytes));
  return std::round(worst * 1000) / 1000;
}

double Counters::bank_conflict_share(double multiply_adds) const {
  double conflicts = 0, ideal = 0;
  for (const char* access : {"load", "store", kAtomic}) {
    conflicts += sum(std::string("/shared/") + access + "/conflicts");
    ideal += sum(std::string("/shared/") + access + "/ideal");
  }
  ideal = std::min(ideal, 2 * multiply_adds / 32);
  return ideal > 0 ? conflicts / ideal : 0;
}

}  // namespace lab::grader
