#include "look.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include "../core/block.h"
#include "../core/names.h"
#include "../profile/report.h"
#include "../time/assembler.h"
#include "warps.h"

namespace vgpu::look {
namespace {

using Json = json::Value;

// An object, of values that are JSON already.
class Object {
 public:
  Object& raw(std::string_view name, const std::string& json) {
    text_ += (text_.empty() ? "{\"" : ",\n\"") + std::string(name) + "\":" + json;
    return *this;
  }
  Object& add(std::string_view name, const Json& value) { return raw(name, value.dump()); }
  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

template <class List, class F>
std::string joined(const List& list, F text_of) {
  std::string text = "[";
  for (const auto& item : list) text += (text.size() > 1 ? ",\n" : "\n") + text_of(item);
  return text + "]";
}

// The program's own words, as the system has them.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// Per second of the whole device; null where a figure is unknown.
Json rate(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json device_json(const DeviceSpec& d) {
  const double clocks = 2e6 * d.sm_clock_mhz * d.sm_count;  // a multiply-add is two operations
  return {{"name", d.name},
          {"key", d.key},
          {"compute_capability", std::to_string(d.major) + "." + std::to_string(d.minor)},
          {"sms", d.sm_count},
          {"clock_mhz", rate(d.sm_clock_mhz)},
          {"peaks",
           {{"DRAM", rate(1e9 * d.dram_gb_s)},
            {"L2", rate(1e9 * d.l2_gb_s)},
            {"fp32", rate(clocks * d.fp32_fma_per_clock_sm)},
            {"tensor", rate(clocks * d.tensor_mma_sync_fp16_fp32_sums_fma_per_clock_sm)},
            {"wgmma", rate(d.major == 9 ? clocks * d.tensor_fp16_fma_per_clock_sm : 0)}}}};
}

// What of a launch is known that failed, and so was not counted.
Json failed_report(const LaunchRequest& request, const DeviceSpec& device) {
  const Dim3 g = request.grid, b = request.block;
  return {{"kernel", full_name(request.function->name)},
          {"mangled", request.function->name},
          {"device", device.name},
          {"device_key", device.key},
          {"grid", {g.x, g.y, g.z}},
          {"block", {b.x, b.y, b.z}},
          {"blocks", g.count()},
          {"dynamic_shared", request.dynamic_shared},
          {"failed", true}};
}

// The events of a timeline, those of an SM's warps left out: launches have them. At most kEvents: names
// of tracks, then the first slices, then the arrows between them.
Json events_of(const std::string& timeline) {
  const Json whole = json::parse_or_null(timeline);
  const Json* const events = whole.is_object() ? whole.find("traceEvents") : nullptr;
  if (!events) return nullptr;
  constexpr std::int64_t kFirstSm = 100'000;
  std::vector<const Json*> names, slices, arrows;
  for (const Json& event : *events) {
    if (event.at("pid").get<std::int64_t>() >= kFirstSm) continue;
    const std::string kind = event.at("ph").get<std::string>();
    (kind == "M" ? names : kind == "s" || kind == "f" ? arrows : slices).push_back(&event);
  }
  const std::size_t all = names.size() + slices.size() + arrows.size();
  slices.resize(std::min(slices.size(), kEvents - std::min(kEvents, names.size())));
  if (all > kEvents) arrows.clear();  // an arrow without one of its ends leads nowhere
  Json shown = Json::array();
  for (const auto* list : {&names, &slices, &arrows})
    for (const Json* event : *list) shown.push_back(*event);
  const std::size_t left_out = all - shown.size();
  return {{"traceEvents", std::move(shown)}, {"left_out", left_out}};
}

}  // namespace

struct Look::Shown {
  Key key;
  std::uint64_t first = 0, count = 1;
  std::string head;  // the object's part that is never thinned out, without its last brace
  std::string sass;  // "sass" and what goes with it, two members
  double us = 0;     // predicted, else the largest limit: long launches are kept longest
  std::shared_ptr<const BlockAccesses> accesses;
  std::vector<int> ptx_of;  // by instruction of accesses: index into the PTX listing
  Warps warps;

  std::string json(double share, bool with_sass) const;
  std::string accesses_json(std::size_t most) const;
};

Look::Look(DeviceSpec device) : device_(std::move(device)) {}
Look::~Look() = default;

Look::Key Look::key_of(const LaunchRequest& request) {
  const Dim3 g = request.grid, b = request.block, c = request.cluster;
  return {request.function->name,
          {g.x, g.y, g.z, b.x, b.y, b.z, c.x, c.y, c.z, request.dynamic_shared},
          request.cooperative};
}

Look::Shown* Look::find(const Key& key) {
  for (const auto& shown : shown_)
    if (shown->key == key) return shown.get();
  return nullptr;
}

std::unique_ptr<Observer> Look::watch(const Launch& launch) {
  watched_ = key_of(launch.request);
  accesses_.reset();
  if (find(watched_) || shown_.size() >= kLaunches) return nullptr;
  accesses_ = std::make_shared<BlockAccesses>();
  return watch_block(accesses_);
}

void Look::add(const Launched& launched) {
  const LaunchRequest& request = launched.request;
  const LaunchCounters& counters = launched.outcome.counters;
  const std::uint64_t index = launches_++;
  const Key key = key_of(request);
  const auto accesses =
      key == watched_ ? std::exchange(accesses_, nullptr) : std::shared_ptr<BlockAccesses>();
  if (Shown* const before = find(key)) {
    ++before->count;
    return;
  }
  if (shown_.size() >= kLaunches) {
    ++left_out_;
    return;
  }
  Shown& shown = *shown_.emplace_back(std::make_unique<Shown>());
  shown.key = key;
  shown.first = index;
  const bool failed = launched.outcome.fault.kind != FaultKind::none;
  Json findings = Json::array();
  if (failed) findings.push_back(launched.outcome.fault.message);
  for (const std::string& finding : launched.outcome.findings) findings.push_back(finding);

  const PtxListing ptx = list_ptx(*request.function, counters, sources_);
  const Flops flops = count_flops(counters);
  const Json report =
      failed ? failed_report(request, device_) : json::parse(report_json(counters, device_));
  const Json* const dram = report.find("dram_bytes");
  Object head;
  head.add("kernel", full_name(request.function->name))
      .add("index", index)
      .add("report", report)
      .add("findings", findings)
      .add("flops", flops.fp64 + flops.fp32 + flops.fp16 + flops.tensor)
      .add("flops_by", Json{{"fp64", flops.fp64},
                            {"fp32", flops.fp32},
                            {"fp16", flops.fp16},
                            {"tensor", flops.tensor}})
      .add("dram_bytes", dram ? *dram : Json(0))
      .raw("ptx", joined(ptx.lines, [](const Json& line) { return line.dump(); }));
  const bool has_code = launched.code && launched.code->why.empty();
  machine_code_ |= has_code;
  if (has_code) {
    const Json sass = list_machine_code(launched.code->code, launched.blocks, ptx);
    shown.sass = ",\n\"sass\":" + joined(sass, [](const Json& line) { return line.dump(); });
  } else {
    const Json why = failed          ? "the launch failed"
                     : launched.code ? launched.code->why
                                     : "predictions of time are switched off (VGPU_TIME=0)";
    shown.sass = ",\n\"sass\":null,\n\"sass_why\":" + why.dump();
  }
  const PredictedTime& predicted = counters.predicted;
  const Json* const limit = report.find_path("/limit/us");
  shown.us = predicted.asked && predicted.why.empty() ? predicted.us
             : limit                                  ? limit->get<double>()
                                                      : 0;
  shown.head = head.text();
  shown.head.pop_back();
  if (launched.blocks && has_code)
    shown.warps =
        Warps(*launched.blocks, launched.code->code, ptx, launched.block, predicted.clock_mhz);
  shown.accesses = accesses;
  if (!accesses) return;
  for (const AccessInstruction& i : accesses->instructions)
    shown.ptx_of.push_back(ptx.at(i.ptx_line));
}

std::string Look::Shown::accesses_json(std::size_t most) const {
  if (!accesses) return "null";
  const std::vector<AccessInstruction>& all = accesses->instructions;
  Json instructions = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i)
    instructions.push_back({{"p", ptx_of[i]},
                            {"space", space_name(all[i].space)},
                            {"kind", all[i].kind},
                            {"bytes", all[i].bytes},
                            {"executed", all[i].executed}});
  const std::vector<std::size_t> shares = fair_shares(all, most);
  std::string list;
  std::uint64_t listed = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t n = 0; n < shares[i]; ++n, ++listed)
      list += (list.empty() ? "\n" : ",\n") + all[i].rows[n];
  return Object()
      .add("block", accesses->block)
      .raw("instructions", joined(instructions, [](const Json& i) { return i.dump(); }))
      .raw("list", "[" + list + "]")
      .add("left_out", accesses->executed - listed)
      .text();
}

std::string Look::Shown::json(double share, bool with_sass) const {
  const auto of = [&](std::size_t most) {
    return static_cast<std::size_t>(share * static_cast<double>(most));
  };
  static constexpr std::string_view kLeftOut =
      ",\n\"sass\":null,\n\"sass_why\":\"it was left out: the page would be too large\"";
  return head + (with_sass ? sass : std::string(kLeftOut)) +
         ",\n\"count\":" + std::to_string(count) +
         ",\n\"accesses\":" + accesses_json(of(kAccesses)) +
         ",\n\"warps\":" + warps.json(of(kPieces)) + "}";
}

std::string Look::data(const Ending& ending, std::size_t most_bytes) const {
  std::vector<std::string> command = command_line();
  const std::string program = command.empty() ? "" : command[0];
  Json arguments = Json::array();
  for (std::size_t i = 1; i < command.size(); ++i) arguments.push_back(command[i]);
  Json toolkit;
  std::string why;
  if (machine_code_)
    if (const std::string ptxas = time::find_ptxas(why); !ptxas.empty())
      if (const std::string version = time::ptxas_version(ptxas, why); !version.empty())
        toolkit = "ptxas " + version;
  Object head;
  head.add("version", 1)
      .add("program", program.substr(program.rfind('/') + 1))
      .add("arguments", arguments)
      .add("toolkit", toolkit)
      .add("device", device_json(device_))
      .add("findings", Json(ending.findings))
      .raw("sources", joined(sources_.json(), [](const Json& source) { return source.dump(); }))
      .add("timeline", events_of(ending.timeline));
  const std::string begin = head.text();

  // What does not fit: accesses and warps are thinned out, the same of all launches; then the machine code
  // of the shortest launches goes, then the last launches go.
  std::vector<std::size_t> shortest(shown_.size());
  std::iota(shortest.begin(), shortest.end(), std::size_t{0});
  std::stable_sort(shortest.begin(), shortest.end(),
                   [&](std::size_t a, std::size_t b) { return shown_[a]->us < shown_[b]->us; });
  std::vector<bool> with_sass(shown_.size(), true);
  std::vector<std::string> launches;
  std::size_t shown = shown_.size(), without = 0;
  double share = 1;
  constexpr double kLess = 0.75, kLeast = 0.1;
  while (true) {
    launches.clear();
    std::size_t bytes = begin.size() + 200;
    for (std::size_t i = 0; i < shown; ++i)
      bytes += launches.emplace_back(for_script(shown_[i]->json(share, with_sass[i]))).size() + 2;
    if (bytes <= most_bytes || shown == 0) break;
    if (share > kLeast)
      share *= kLess;
    else if (without < shortest.size())
      with_sass[shortest[without++]] = false;
    else
      --shown;
  }
  std::uint64_t left_out = left_out_;
  for (std::size_t i = shown; i < shown_.size(); ++i) left_out += shown_[i]->count;
  std::string text = for_script(begin);
  text.pop_back();
  text += ",\n\"launches_left_out\":" + std::to_string(left_out) +
          ",\n\"detail\":" + json::number_text(share) + ",\n\"launches\":[";
  for (std::size_t i = 0; i < launches.size(); ++i) text += (i ? ",\n" : "\n") + launches[i];
  return text + "]}";
}

std::string Look::page(const Ending& ending) const {
  constexpr std::string_view kMarker = "<!-- look:data -->";
  std::string text = page_template();
  const std::size_t at = text.find(kMarker);
  const std::size_t most = kPageBytes - std::min(kPageBytes, text.size());
  return text.substr(0, at) + data(ending, most) + text.substr(at + kMarker.size());
}

std::string for_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char next = i + 1 < json.size() ? json[i + 1] : ' ';
    if (json[i] == '<' && next == '/')
      text += "<\\";
    else if (json[i] == '<' && (next == '!' || next == 's' || next == 'S'))
      text += "\\u003c";
    else
      text += json[i];
  }
  return text;
}

}  // namespace vgpu::look
