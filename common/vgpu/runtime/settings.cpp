// Parses VGPU_DEVICE, VGPU_THREADS, VGPU_INSTRUCTIONS, VGPU_SCHEDULE, VGPU_CHECK, VGPU_CACHE,
// VGPU_TRACE, VGPU_TIMELINE, VGPU_LOOK and VGPU_PROFILE. A value that is not understood switches the device off with
// a message: a check that silently does not run is worse.
#include "settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "../profile/devices.h"

namespace vgpu::runtime {
namespace {

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string quoted(const char* variable, std::string_view value) {
  return std::string(variable) + "='" + std::string(value) + "': ";
}

// Switches on the checks of a list, "race,init"; returns the first name that is none.
std::optional<std::string> choose_checks(std::string_view list, Settings& settings) {
  MachineOptions& options = settings.options;
  std::optional<std::string> none;
  while (true) {
    const auto comma = list.find(',');
    const std::string_view check = list.substr(0, comma);
    if (check == "all")
      options.check_race = options.check_init = options.check_sync = options.check_proxy =
          options.check_finite = options.check_bounds = settings.host = true;
    else if (check == "race")
      options.check_race = true;
    else if (check == "init")
      options.check_init = true;
    else if (check == "sync")
      options.check_sync = true;
    else if (check == "proxy")
      options.check_proxy = true;
    else if (check == "finite")
      options.check_finite = true;
    else if (check == "bounds")
      options.check_bounds = true;
    else if (check == "copies")
      settings.copies = options.check_init = true;
    else if (check == "host")
      settings.host = true;
    else if (check == "leaks")
      settings.leaks = true;
    else if (check != "memory" && !none)
      none = std::string(check);
    if (comma == std::string_view::npos) return none;
    list = list.substr(comma + 1);
  }
}

// Reads variables, and keeps the message about the first that is not understood.
class SettingsReader {
 public:
  explicit SettingsReader(const std::function<const char*(const char*)>& variable)
      : variable_(variable) {}

  Settings read() {
    read_device();
    read_execution();
    read_checks();
    read_model();
    read_outputs();
    return std::move(settings_);
  }

 private:
  std::optional<std::string_view> get(const char* name) const {
    const char* value = variable_(name);
    if (!value || !*value) return std::nullopt;  // set but empty means not set
    return value;
  }
  void wrong(std::string text) {
    if (settings_.error.empty()) settings_.error = std::move(text);
  }

  void read_device();
  void read_execution();
  void read_checks();
  void read_model();
  void read_outputs();

  const std::function<const char*(const char*)>& variable_;
  Settings settings_;
};

void SettingsReader::read_device() {
  const std::string_view device = get("VGPU_DEVICE").value_or("h200");
  if (auto spec = find_device(device)) {
    settings_.spec = *spec;
  } else {
    std::string names;
    for (const std::string& key : device_keys()) names += (names.empty() ? "" : ", ") + key;
    wrong(quoted("VGPU_DEVICE", device) + "no such device; there are " + names);
    settings_.unknown_device = true;
  }
}

// How much may be executed, by how many, in which order.
void SettingsReader::read_execution() {
  if (const auto value = get("VGPU_THREADS")) {
    const auto threads = number<int>(*value);
    if (threads && *threads >= 1 && *threads <= 1024)
      settings_.options.threads = *threads;
    else
      wrong(quoted("VGPU_THREADS", *value) + "say a number of host threads from 1 to 1024");
  }

  if (const auto value = get("VGPU_INSTRUCTIONS")) {
    const auto limit = number<std::uint64_t>(*value);
    if (limit && *limit > 0)
      settings_.instruction_limit = *limit;
    else
      wrong(quoted("VGPU_INSTRUCTIONS", *value) +
            "say a whole number from 1, warp instructions of a host thread in one launch");
  }

  if (const auto value = get("VGPU_SCHEDULE")) {
    constexpr std::string_view kRandom = "random:", kHostile = "hostile:";
    std::optional<std::uint64_t> seed;
    for (const std::string_view kind : {kRandom, kHostile})
      if (value->starts_with(kind)) seed = number<std::uint64_t>(value->substr(kind.size()));
    if (seed && *seed > 0) {
      settings_.options.schedule_seed = *seed;
      settings_.options.hostile = value->starts_with(kHostile);
    } else {
      wrong(quoted("VGPU_SCHEDULE", *value) +
            "say random:SEED or hostile:SEED with a whole number from 1");
    }
  }
}

void SettingsReader::read_checks() {
  if (const auto value = get("VGPU_CHECK")) {
    if (const auto none = choose_checks(*value, settings_))
      wrong(quoted("VGPU_CHECK", *value) + "no check '" + *none +
            "'; say a list of memory (always on), leaks, copies, race, init, sync, proxy, finite, "
            "bounds, host, or all");
  }
}

// What of a GPU is modelled besides: its cache and its time.
void SettingsReader::read_model() {
  if (const auto value = get("VGPU_CACHE")) {
    if (*value == "1" || *value == "cold")
      settings_.options.cache = CacheMode::cold;
    else if (*value == "warm")
      settings_.options.cache = CacheMode::warm;
    else if (*value != "0")
      wrong(quoted("VGPU_CACHE", *value) +
            "say 1 (or cold: each launch begins with an empty L2), warm, or 0");
  }

  if (const auto value = get("VGPU_TIME")) {
    if (*value == "1")
      settings_.options.time = TimeMode::on;
    else if (*value == "sample")
      settings_.options.time = TimeMode::sample;
    else if (*value == "0")
      settings_.no_time = true;
    else
      wrong(quoted("VGPU_TIME", *value) +
            "say 1 (predict how long launches take), sample (and execute only the blocks that this "
            "needs: results are incomplete) or 0");
  }

  if (const auto value = get("VGPU_TIME_ROUNDS")) {
    const auto rounds = number<int>(*value);
    if (rounds && *rounds >= 1)
      settings_.options.time_rounds = *rounds;
    else
      wrong(quoted("VGPU_TIME_ROUNDS", *value) +
            "say a whole number from 1: how many times as many blocks as an SM holds a prediction "
            "simulates at most (4 unless you say it)");
  }
}

void SettingsReader::read_outputs() {
  if (const auto value = get("VGPU_TRACE")) {
    std::string error;
    settings_.trace = parse_trace(*value, error);
    if (!settings_.trace) wrong(quoted("VGPU_TRACE", *value) + error);
  }

  if (const auto value = get("VGPU_TIMELINE")) settings_.timeline = *value;
  if (const auto value = get("VGPU_LOOK")) settings_.look = *value;

  if (const auto value = get("VGPU_PROFILE")) {
    constexpr std::string_view kJson = "json:";
    if (*value == "text")
      settings_.profile_text = true;
    else if (value->starts_with(kJson) && value->size() > kJson.size())
      settings_.profile_json = value->substr(kJson.size());
    else
      wrong(quoted("VGPU_PROFILE", *value) + "say text or json:FILE");
  }
}

}  // namespace

Settings read_settings(const std::function<const char*(const char*)>& variable) {
  return SettingsReader(variable).read();
}

std::string unknown_variable(const char* const* environment) {
  constexpr std::array<std::string_view, 14> kKnown = {
      "VGPU_CACHE", "VGPU_CACHE_DIR", "VGPU_CHECK",       "VGPU_DEVICE",   "VGPU_INSTRUCTIONS",
      "VGPU_LOOK",  "VGPU_PROFILE",   "VGPU_PTXAS",       "VGPU_SCHEDULE", "VGPU_THREADS",
      "VGPU_TIME",  "VGPU_TIMELINE",  "VGPU_TIME_ROUNDS", "VGPU_TRACE"};
  constexpr std::array<std::string_view, 2> kOfTests = {"VGPU_LIST_MISSING", "VGPU_SEED"};
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    const auto is = [&](std::string_view known) { return known == name; };
    if (!name.starts_with("VGPU_") || std::any_of(kKnown.begin(), kKnown.end(), is) ||
        std::any_of(kOfTests.begin(), kOfTests.end(), is))
      continue;
    std::string names;
    for (const std::string_view known : kKnown)
      names += (names.empty() ? "" : ", ") + std::string(known);
    return std::string(name) + ": no such variable, nothing is switched on; there are " + names;
  }
  return "";
}

}  // namespace vgpu::runtime
