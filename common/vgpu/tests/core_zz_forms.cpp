// Runs last (doctest goes by file name): each form that the executor's own files implement was run.
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE(
    "forms: data movement, lanes, synchronization, atomics and control flow are all run by a "
    "test") {
  const std::set<std::string> mine = {"mov",           "ld",
                                      "ldu",           "st",
                                      "prefetch",      "prefetchu",
                                      "applypriority", "discard",
                                      "createpolicy",  "cvta",
                                      "isspacep",      "shfl",
                                      "vote",          "match",
                                      "redux",         "elect",
                                      "activemask",    "bar",
                                      "barrier",       "membar",
                                      "fence",         "griddepcontrol",
                                      "nanosleep",     "mbarrier",
                                      "atom",          "red",
                                      "bra",           "brx",
                                      "call",          "ret",
                                      "exit",          "trap",
                                      "brkpt",         "pmevent"};
  if (touched_points().size() < 300) return;  // only some tests were asked for
  touch("trap");                              // ends its launch with an error: tests of faults
  std::string missing;
  for (const std::string& point : form_points())
    if (mine.count(point.substr(0, point.find(' '))) && !touched_points().count(point))
      missing += "\n" + point;
  CHECK(missing == "");
}
