// The environment variables VGPU_*.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "vgpu/runtime/settings.h"

using vgpu::runtime::read_settings;
using vgpu::runtime::Settings;

namespace {

Settings with(const std::map<std::string, std::string>& variables) {
  return read_settings([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string error_with(const std::string& name, const std::string& value) {
  return with({{name, value}}).error;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("settings: nothing set") {
  const Settings settings = with({});
  CHECK(settings.error == "");
  CHECK(settings.spec.key == "h200");
  CHECK(settings.options.threads == 0);
  CHECK(settings.options.schedule_seed == 0);
  CHECK_FALSE(settings.options.check_race);
  CHECK_FALSE(settings.options.check_init);
  CHECK_FALSE(settings.options.check_sync);
  CHECK_FALSE(settings.options.check_proxy);
  CHECK_FALSE(settings.options.check_finite);
  CHECK_FALSE(settings.options.check_bounds);
  CHECK_FALSE(settings.leaks);
  CHECK_FALSE(settings.profile_text);
  CHECK(settings.profile_json == "");
  CHECK(settings.timeline == "");
}

TEST_CASE("settings: everything set") {
  const Settings settings = with({{"VGPU_DEVICE", "t4"},
                                  {"VGPU_THREADS", "3"},
                                  {"VGPU_INSTRUCTIONS", "12345678901"},
                                  {"VGPU_SCHEDULE", "random:18446744073709551615"},
                                  {"VGPU_CHECK", "race,leaks"},
                                  {"VGPU_TIMELINE", "a timeline.json"},
                                  {"VGPU_PROFILE", "json:a b.json"}});
  CHECK(settings.error == "");
  CHECK(settings.spec.key == "t4");
  CHECK(settings.options.threads == 3);
  CHECK(settings.instruction_limit == 12345678901ull);
  CHECK(settings.options.schedule_seed == 18446744073709551615ull);
  CHECK(settings.options.check_race);
  CHECK_FALSE(settings.options.check_init);
  CHECK_FALSE(settings.options.check_sync);
  CHECK_FALSE(settings.options.check_proxy);
  CHECK_FALSE(settings.options.check_finite);
  CHECK_FALSE(settings.options.check_bounds);
  CHECK(settings.leaks);
  CHECK(settings.profile_json == "a b.json");
  CHECK(settings.timeline == "a timeline.json");
  CHECK_FALSE(settings.profile_text);
}

TEST_CASE("settings: a hostile schedule") {
  const Settings settings = with({{"VGPU_SCHEDULE", "hostile:7"}});
  CHECK(settings.error == "");
  CHECK(settings.options.schedule_seed == 7);
  CHECK(settings.options.hostile);
  CHECK_FALSE(with({{"VGPU_SCHEDULE", "random:7"}}).options.hostile);
}

TEST_CASE("settings: all means the seven checks with findings") {
  const Settings settings = with({{"VGPU_CHECK", "all"}, {"VGPU_PROFILE", "text"}});
  CHECK(settings.options.check_race);
  CHECK(settings.options.check_init);
  CHECK(settings.options.check_sync);
  CHECK(settings.options.check_proxy);
  CHECK(settings.options.check_finite);
  CHECK(settings.options.check_bounds);
  CHECK(settings.host);
  CHECK_FALSE(settings.copies);
  CHECK_FALSE(settings.leaks);
  CHECK(settings.profile_text);
  CHECK(with({{"VGPU_CHECK", "memory"}}).error == "");
}

TEST_CASE("settings: what is not understood is named, with what would be") {
  const Settings device = with({{"VGPU_DEVICE", "h2000"}});
  CHECK(device.unknown_device);
  CHECK(has(device.error, "VGPU_DEVICE='h2000'"));
  CHECK(has(device.error, "h200, "));
  CHECK(has(device.error, "t4"));
  for (const char* value : {"0", "-1", "2x", "x", "1.5", "99999999999", "1025", " 2"})
    CHECK(has(error_with("VGPU_THREADS", value), "VGPU_THREADS='" + std::string(value) + "'"));
  for (const char* value : {"0", "-1", "x", "1e6", "5 ", "18446744073709551616"})
    CHECK(has(error_with("VGPU_INSTRUCTIONS", value), "VGPU_INSTRUCTIONS='" + std::string(value)));
  for (const char* value :
       {"random", "random:", "random:0", "random:x", "seed:1", "random:1:2", "random:-1",
        "random:18446744073709551616", "hostile", "hostile:0", "hostile:x", "hostile:random:1"})
    CHECK(has(error_with("VGPU_SCHEDULE", value), "random:SEED or hostile:SEED"));
  for (const char* value : {"rcae", "race,", ",race", "race;init", "ALL"})
    CHECK(has(error_with("VGPU_CHECK", value), "no check '"));
  for (const char* value : {"json", "json:", "xml:a", "Text", "text,json:a"})
    CHECK(has(error_with("VGPU_PROFILE", value), "say text or json:FILE"));
  CHECK_FALSE(with({{"VGPU_THREADS", "x"}}).unknown_device);
}

TEST_CASE("settings: an empty variable is as good as none") {
  CHECK(with({{"VGPU_DEVICE", ""},
              {"VGPU_CHECK", ""},
              {"VGPU_THREADS", ""},
              {"VGPU_PROFILE", ""},
              {"VGPU_TIMELINE", ""},
              {"VGPU_SCHEDULE", ""}})
            .error == "");
}

TEST_CASE("settings: a variable that nobody reads is named") {
  const auto unknown = [](std::vector<const char*> environment) {
    environment.push_back(nullptr);
    return vgpu::runtime::unknown_variable(environment.data());
  };
  CHECK(unknown({"VGPU_CHEK=all", "HOME=/"}).find("VGPU_CHEK: no such variable") == 0);
  CHECK(has(unknown({"A=VGPU_X", "VGPU_=1"}), "there are VGPU_CACHE, VGPU_CACHE_DIR, VGPU_CHECK,"));
  CHECK(unknown({"VGPU_CHECK=all", "VGPU_TIME=1", "VGPU_TIMELINE=t", "VGPU_TRACE",
                 "VGPU_PROFILE=", "vgpu_x=1", "VGPU_PTXAS=/x", "VGPU_CACHE_DIR=/x"}) == "");
  CHECK(unknown({}) == "");
  CHECK(vgpu::runtime::unknown_variable(nullptr) == "");
}

TEST_CASE("settings: predicted time") {
  using vgpu::TimeMode;
  CHECK(with({}).options.time == TimeMode::off);
  CHECK(with({{"VGPU_TIME", "0"}}).options.time == TimeMode::off);
  CHECK(with({{"VGPU_TIME", "1"}}).options.time == TimeMode::on);
  CHECK(with({{"VGPU_TIME", "sample"}}).options.time == TimeMode::sample);
  CHECK(with({}).options.time_rounds == 4);
  CHECK(with({{"VGPU_TIME_ROUNDS", "1000"}}).options.time_rounds == 1000);
  for (const char* wrong : {"0", "-1", "all", "4.5", "99999999999"})
    CHECK(has(error_with("VGPU_TIME_ROUNDS", wrong),
              "VGPU_TIME_ROUNDS='" + std::string(wrong) + "': say a whole number from 1"));
  for (const char* wrong : {"2", "yes", "Sample", "1 ", "sample:3"}) {
    const std::string error = error_with("VGPU_TIME", wrong);
    CHECK_MESSAGE(has(error, "VGPU_TIME='" + std::string(wrong) + "'"), error);
    CHECK(has(error, "say 1 (predict how long launches take), sample"));
  }
}
