// The file of a timeline, read back: its events, and what must be true of any such file.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "json/json.h"

namespace vgpu_tests {

struct Event {
  std::string phase, name, category;
  std::int64_t process = 0, thread = 0, begin = 0, end = 0, id = -1;  // times in ns
  json::Value args;
};

struct TimelineFile {
  json::Value about;
  std::vector<Event> events;  // in the order of the file
  std::map<std::int64_t, std::string> processes;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> threads;

  // Slices of a name, or of a category when the name is "", in the order of time.
  std::vector<Event> slices(const std::string& name, const std::string& category = "") const {
    std::vector<Event> found;
    for (const Event& e : events)
      if (e.phase == "X" && (name.empty() || e.name == name) &&
          (category.empty() || e.category == category))
        found.push_back(e);
    return found;
  }
  Event slice(const std::string& name, const std::string& category = "") const {
    const auto found = slices(name, category);
    REQUIRE_MESSAGE(found.size() == 1, found.size(), " slices '", name, "'");
    return found[0];
  }
  std::string track(const Event& e) const {
    return processes.at(e.process) + "/" + threads.at({e.process, e.thread});
  }
  // Arrows of a category, as pairs of their two ends.
  std::vector<std::pair<Event, Event>> arrows(const std::string& category) const {
    std::map<std::int64_t, std::pair<Event, Event>> by_id;
    for (const Event& e : events) {
      if (e.category != category || (e.phase != "s" && e.phase != "f")) continue;
      (e.phase == "s" ? by_id[e.id].first : by_id[e.id].second) = e;
    }
    std::vector<std::pair<Event, Event>> found;
    for (const auto& [id, ends] : by_id) found.push_back(ends);
    return found;
  }
  // The slice that an event of the same track lies in, the innermost one; null when there is none.
  const Event* around(const Event& at) const {
    const Event* found = nullptr;
    for (const Event& e : events)
      if (e.phase == "X" && e.process == at.process && e.thread == at.thread &&
          e.begin <= at.begin && (at.begin < e.end || at.begin == e.begin))
        found = &e;
    return found;
  }
};

inline bool overlap(const Event& a, const Event& b) { return a.begin < b.end && b.begin < a.end; }

// What Perfetto's importer of this format asks for, beyond what the format does. Its rules, from its
// sources (src/trace_processor/importers: json, common/process_tracker, slice_tracker, flow_tracker):
// - A process or thread is a whole number of 32 bits. 0 is its own. Each process brings a thread of its
//   number along, and a thread's name goes to the latest thread of that number in any process.
// - Times are doubles, multiplied by 1000 and cut to whole nanoseconds.
// - Events are taken by time, at one time the longer slice first and what is no slice last. A slice that
//   begins inside another of its track and ends after it is dropped.
// - An arrow's end belongs to the innermost slice of its track that is open, "f" only with "bp": "e".
//   Without a slice, a beginning or an id of its own (beside name and category) it is dropped.
// - No value of an event itself is an array. Of the file's members, "traceEvents" comes last.
inline void check_as_perfetto_imports(const json::Value& file) {
  struct Read {
    const json::Value* event;
    char phase;
    std::int64_t begin, length;
  };
  using Track = std::pair<std::int64_t, std::int64_t>;
  CHECK(file.names().back() == "traceEvents");
  std::vector<Read> events;
  std::map<std::int64_t, std::set<std::int64_t>> processes_of;  // by number of a thread
  const auto number = [](const json::Value& value) {
    REQUIRE(value.is_number_integer());
    const auto n = value.get<std::int64_t>();
    CHECK(n > 0);
    CHECK(n <= 0xffffffff);
    return n;
  };
  const auto cut_ns = [](const json::Value& us) {
    REQUIRE(us.is_number());
    const double exact = 1e3 * us.get<double>();
    const auto ns = static_cast<std::int64_t>(exact);
    CHECK(exact - static_cast<double>(ns) < 1e-3);  // nothing was cut off
    return ns;
  };
  for (const json::Value& e : file["traceEvents"]) {
    for (const json::Value& member : e) CHECK_FALSE(member.is_array());
    const std::string phase = e["ph"].get<std::string>();
    REQUIRE(phase.size() == 1);
    const json::Value* length = e.find("dur");
    const std::int64_t process = number(e["pid"]);
    processes_of[number(e["tid"])].insert(process);
    processes_of[process].insert(process);
    events.push_back({&e, phase[0], cut_ns(e["ts"]), phase[0] == 'X' ? cut_ns(*length) : -1});
  }
  for (const auto& [thread, processes] : processes_of) {
    CAPTURE(thread);
    CHECK(processes.size() == 1);
  }
  std::stable_sort(events.begin(), events.end(), [](const Read& a, const Read& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.length > b.length;
  });
  std::map<Track, std::vector<Read>> open;
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::string> arrows;
  for (const Read& e : events) {
    const json::Value& event = *e.event;
    std::vector<Read>& stack =
        open[{event["pid"].get<std::int64_t>(), event["tid"].get<std::int64_t>()}];
    CAPTURE(event["name"].get<std::string>());
    CAPTURE(e.begin);
    if (e.phase == 'X') {
      while (!stack.empty() && stack.back().begin + stack.back().length <= e.begin)
        stack.pop_back();
      for (const Read& outer : stack) CHECK(e.begin + e.length <= outer.begin + outer.length);
      stack.push_back(e);
    } else if (e.phase == 's' || e.phase == 'f') {
      REQUIRE_FALSE(stack.empty());
      CHECK(e.begin <= stack.back().begin + stack.back().length);
      if (e.phase == 'f') CHECK(event["bp"].get<std::string>() == "e");
      arrows[{event["cat"].get<std::string>(), event["name"].get<std::string>(),
              event["id"].get<std::int64_t>()}] += e.phase;
    } else if (e.phase == 'C') {
      for (const json::Value& value : event["args"]) CHECK(value.is_number());
    } else {
      REQUIRE(e.phase == 'M');
    }
  }
  for (const auto& [arrow, both] : arrows) CHECK(both == "sf");
}

// Reads a file and checks its form: what each phase must have, names of all tracks, order, arrows with
// two ends that lie in slices, and no two slices of a track at the same time.
inline TimelineFile read_timeline(const std::string& text) {
  TimelineFile file;
  const json::Value json = json::parse(text);
  REQUIRE(json.is_object());
  check_as_perfetto_imports(json);
  CHECK(json["displayTimeUnit"].get<std::string>() == "ns");
  file.about = json["otherData"];
  CHECK(file.about["clock"].get<std::string>().find("virtual") == 0);
  const auto ns = [](const json::Value& us) {
    const double exact = 1e3 * us.get<double>();
    CHECK(std::abs(exact - std::round(exact)) < 1e-3);
    return static_cast<std::int64_t>(std::llround(exact));
  };
  for (const json::Value& e : json["traceEvents"]) {
    Event event;
    event.phase = e["ph"].get<std::string>();
    event.name = e["name"].get<std::string>();
    CHECK_FALSE(event.name.empty());
    event.process = e["pid"].get<std::int64_t>();
    event.thread = e["tid"].get<std::int64_t>();
    event.begin = event.end = ns(e["ts"]);
    CHECK(event.begin >= 0);
    if (const json::Value* args = e.find("args")) event.args = *args;
    if (event.phase == "M") {
      if (event.name == "process_name")
        file.processes[event.process] = event.args["name"].get<std::string>();
      else if (event.name == "thread_name")
        file.threads[{event.process, event.thread}] = event.args["name"].get<std::string>();
      else
        CHECK(event.args["sort_index"].is_number_integer());
    } else if (event.phase == "X") {
      event.category = e["cat"].get<std::string>();
      event.end += ns(e["dur"]);
      CHECK(event.end >= event.begin);
      CHECK(event.args.is_object());
    } else if (event.phase == "s" || event.phase == "f") {
      event.category = e["cat"].get<std::string>();
      event.id = e["id"].get<std::int64_t>();
      if (event.phase == "f") CHECK(e["bp"].get<std::string>() == "e");
    } else {
      CHECK(event.phase == "C");
      CHECK(event.args["percent"].get<double>() >= 0);
      CHECK(event.args["percent"].get<double>() <= 100);
    }
    file.events.push_back(std::move(event));
  }
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> ends;
  std::map<std::int64_t, std::string> phases;  // arrows' phases, by id
  std::int64_t last = 0;
  for (const Event& e : file.events) {
    CAPTURE(e.name);
    CAPTURE(e.begin);
    CHECK(e.begin >= last);  // metadata, at 0, stands first
    last = e.begin;
    if (e.phase == "X") {
      CHECK(file.processes.count(e.process) == 1);
      CHECK(file.threads.count({e.process, e.thread}) == 1);
      CHECK(e.begin >= ends[{e.process, e.thread}]);
      ends[{e.process, e.thread}] = e.end;
    }
    if (e.id < 0) continue;
    phases[e.id] += e.phase;
    CHECK(file.around(e) != nullptr);
  }
  for (const auto& [id, both] : phases) CHECK(both == "sf");
  return file;
}

}  // namespace vgpu_tests
