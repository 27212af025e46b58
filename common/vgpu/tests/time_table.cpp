// The table of predicted times at the end of a program (VGPU_TIME).
#include "../runtime/time_table.h"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

using namespace vgpu;
using vgpu::runtime::TimeTable;

namespace {

LaunchCounters launch(const std::string& kernel, double us, const std::string& why = "") {
  LaunchCounters counters;
  counters.kernel = kernel;
  counters.predicted.asked = true;
  counters.predicted.why = why;
  if (!why.empty()) return counters;
  counters.predicted.us = us;
  counters.predicted.error = 0.25;
  counters.predicted.stall_names = {"selected", "long_scoreboard", "barrier"};
  counters.predicted.stalls = {0.5, 0.3, 0.2};
  return counters;
}

DeviceSpec device() {
  DeviceSpec spec;
  spec.name = "a device";
  return spec;
}

std::vector<std::string> lines(const TimeTable& table) {
  std::istringstream text(table.text(device()));
  std::vector<std::string> all;
  for (std::string line; std::getline(text, line);) all.push_back(line);
  return all;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("time table: nothing was launched") { CHECK(TimeTable().text(device()) == ""); }

TEST_CASE("time table: the kernel that takes longest in all comes first") {
  TimeTable table;
  table.add(launch("once", 5));
  for (int i = 0; i < 4; ++i) table.add(launch("often", 2));
  const auto all = lines(table);
  REQUIRE(all.size() == 4);
  CHECK(all[0] == "predicted time on a device, each +-25 %");
  CHECK(holds(all[1], "launches"));
  CHECK(all[2] ==
        "often                                          4         8.00         2.00  "
        "long_scoreboard 30 %");
  CHECK(holds(all[3], "once "));
  for (const std::string& line : all) CHECK(line.size() <= 100);
}

TEST_CASE("time table: reasons are weighted with the time, and issuing is none") {
  TimeTable table;
  table.add(launch("k", 1));
  LaunchCounters slow = launch("k", 9);
  slow.predicted.stalls = {0.7, 0.1, 0.2};
  table.add(slow);
  // barrier: 0.2 + 9 x 0.2 of 10; long_scoreboard: 0.3 + 0.9.
  CHECK(holds(lines(table)[2], "barrier 20 %"));
}

TEST_CASE("time table: launches without a time are counted, the first reason said") {
  TimeTable table;
  table.add(launch("mixed", 3));
  table.add(launch("mixed", 0, "mixed: because"));
  table.add(launch("mixed", 0, "mixed: another"));
  table.add(launch("never", 0, "never: because"));
  const auto all = lines(table);
  REQUIRE(all.size() == 6);
  // The mean is that of the launches with a time.
  CHECK(holds(all[2], "mixed "));
  CHECK(holds(all[2], "    3         3.00         3.00  long_scoreboard"));
  CHECK(all[3] == "  2 without: mixed: because");
  CHECK(all[4] == "never                                          1            -            -");
  CHECK(all[5] == "  1 without: never: because");
  // No time at all: no error of it either.
  TimeTable none;
  none.add(launch("never", 0, "never: because"));
  CHECK(lines(none)[0] == "predicted time on a device: none");
}

TEST_CASE("time table: long names are cut, big numbers keep their columns") {
  TimeTable table;
  table.add(launch(std::string(60, 'x'), 123456789.125));
  const auto all = lines(table);
  CHECK(all[2].substr(0, 39) == std::string(35, 'x') + "... ");
  CHECK(holds(all[2], " 123456789.12 "));
  CHECK(all[2].size() <= 100);
}

TEST_CASE("time table: launches of which only some blocks ran are marked") {
  TimeTable table;
  LaunchCounters sampled = launch("k", 1);
  sampled.sampled = true;
  table.add(sampled);
  table.add(launch("k", 1));
  CHECK(holds(table.text(device()),
              "only the blocks that it needs were executed: results are incomplete"));
  for (const std::string& line : lines(table)) CHECK(line.size() <= 100);
}
