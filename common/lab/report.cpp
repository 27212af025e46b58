// The report: its lines as they come in, and what follows from the counters of each.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "files.h"
#include "report_body.h"

namespace lab {
namespace {

json::Value counters_of(const std::string& text) {
  json::Value json = json::parse_or_null(text);
  return json.is_null() ? json::Value::object() : json;
}

std::string why_not_asked() {
  return !vgpu::can_predict()         ? "this virtual GPU does not predict times"
         : vgpu::prediction_refused() ? "switched off (VGPU_TIME=0)"
                                      : "none was asked for";
}

Predicted predicted_of(const json::Value& counters) {
  Predicted launch;
  const json::Value* const us = counters.find_path("/predicted/us");
  if (!us || !us->is_number()) {
    const json::Value* const why = counters.find_path("/predicted/why");
    launch.why = why ? why->get<std::string>() : why_not_asked();
    return launch;
  }
  launch.us = us->get<double>();
  launch.error = counters.at("predicted").at("error").get<double>();
  if (const json::Value* const stalls = counters.find_path("/predicted/stalls"))
    for (size_t i = 0; i < stalls->size(); ++i)
      launch.stalls.emplace_back(stalls->names()[i], stalls->item(i).get<double>());
  return launch;
}

// Times add up, stalls by how long each launch takes; without one of the launches there is no sum.
Predicted summed(const std::vector<Predicted>& launches) {
  if (launches.size() == 1) return launches[0];
  Predicted sum;
  sum.us = sum.error = 0;
  for (const Predicted& launch : launches) {
    if (!launch.why.empty()) {
      Predicted none;
      none.why = launch.why;
      return none;
    }
    sum.us += launch.us;
    sum.error = std::max(sum.error, launch.error);
    for (const auto& [name, share] : launch.stalls) {
      const auto same = std::find_if(sum.stalls.begin(), sum.stalls.end(),
                                     [&](const auto& stall) { return stall.first == name; });
      if (same == sum.stalls.end())
        sum.stalls.emplace_back(name, share * launch.us);
      else
        same->second += share * launch.us;
    }
  }
  for (auto& [name, share] : sum.stalls) share /= sum.us;
  return sum;
}

}  // namespace

Bound bound_of(const Device& device, const Cost& cost) {
  const double peak =
      cost.tensor_cores ? device.tensor_flop_per_s * cost.tensor_rate : device.fp32_flop_per_s;
  if (device.dram_bytes_per_s <= 0 || peak <= 0) return {};
  const double dram = 1e6 * cost.bytes / device.dram_bytes_per_s, compute = 1e6 * cost.flops / peak;
  if (dram >= compute) return {dram, "DRAM"};
  return {compute, !cost.tensor_cores ? "fp32" : cost.tensor_rate == 1 ? "tensor" : "tf32"};
}

Report::Report(ReportHead head) : body_(new Body{std::move(head), {}, {}, {}}) {}
Report::~Report() { delete body_; }
Report::Report(Report&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
void Report::note(const std::string& line) { body_->notes.push_back(line); }

void Report::add_number(const std::string& line, const std::string& name, double value) {
  body_->rows[body_->row_of(line)].numbers.emplace_back(name, value);
}

double Report::predicted_us(const std::string& line) const {
  return body_->predicted_us(body_->row_of(line));
}

void Report::require(bool ok, const std::string& otherwise) {
  if (ok) return;
  body_->failed = true;
  body_->notes.push_back("FAIL: " + otherwise);
}

void Report::add(const std::string& name, const Timing& timing, const Cost& cost,
                 const Comparison& comparison) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kStep});
}

void Report::add_launch(const std::string& name, const Timing& timing, const Cost& cost,
                        const Comparison& comparison, Errors of, int launches) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kLaunch, of, {}, launches});
}

void Report::add_total(const std::string& name, const Timing& timing, const Cost& cost,
                       const Comparison& comparison) {
  body_->rows.push_back({name, timing, cost, comparison, Body::Kind::kTotal});
}

void Report::add_beside(const std::string& name, const Timing& timing,
                        const Comparison& comparison) {
  body_->rows.push_back({name, timing, {}, comparison, Body::Kind::kBeside, Errors::kOfStep});
}

size_t Report::Body::row_of(const std::string& name) const {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == name) return i;
  throw std::invalid_argument("no line '" + name + "' in the report");
}

void Report::add_ratio(const std::string& after, const std::string& before) {
  const size_t after_row = body_->row_of(after), before_row = body_->row_of(before);
  if (!body_->head.device.is_virtual) {
    body_->ratios.push_back({"medians", after, before, body_->rows[before_row].timing.median_us,
                             body_->rows[after_row].timing.median_us});
    return;
  }
  const double before_us = body_->predicted(before_row).us,
               after_us = body_->predicted(after_row).us;
  if (std::isfinite(before_us / after_us))
    body_->ratios.push_back({"predicted times", after, before, before_us, after_us});
  else
    body_->ratios.push_back({Body::kOfBounds, after, before, body_->modelled_limit_us(before_row),
                             body_->modelled_limit_us(after_row)});
}

std::vector<size_t> Report::Body::launches_of(size_t row) const {
  if (rows[row].kind != Kind::kTotal) return {row};
  size_t first = row;
  while (first > 0 && rows[first - 1].kind == Kind::kLaunch) --first;
  std::vector<size_t> launches(row - first);
  std::iota(launches.begin(), launches.end(), first);
  return launches;
}

const json::Value& Report::Body::counters(size_t row) const {
  const std::string& text = rows[row].timing.counters;
  const auto [it, added] = read.try_emplace(row);
  if (added || it->second.first != text) it->second = {text, counters_of(text)};
  return it->second.second;
}

double Report::Body::modelled_limit_us(size_t row) const {
  double sum = 0;
  for (const size_t launch : launches_of(row)) {
    const json::Value* const us = counters(launch).find_path("/limit/us");
    if (counters(launch).contains("sampled")) return std::nan("");  // of the executed blocks alone
    sum += us && us->is_number() ? us->get<double>() * rows[launch].launches : std::nan("");
  }
  return sum;
}

Predicted Report::Body::predicted(size_t row) const {
  std::vector<Predicted> launches;
  for (const size_t launch : launches_of(row)) {
    launches.push_back(predicted_of(counters(launch)));
    launches.back().us *= rows[launch].launches;
  }
  return summed(launches);
}

std::vector<size_t> Report::Body::order() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].kind == Kind::kLaunch) continue;
    order.push_back(i);
    if (rows[i].kind == Kind::kTotal)
      for (const size_t launch : launches_of(i)) order.push_back(launch);
  }
  return order;
}

ExitCode Report::finish() const {
  std::fputs(body_->table().c_str(), stdout);
  if (body_->head.options.profile)
    for (const Body::Row& row : body_->rows)
      if (row.kind != Body::Kind::kTotal) std::printf("\n%s\n", row.timing.profile.c_str());
  if (!body_->head.options.json.empty()) write_file(body_->head.options.json, body_->json());
  if (!body_->head.options.csv.empty()) write_file(body_->head.options.csv, body_->csv());

  bool pass = !body_->failed && !body_->rows.empty();
  for (const Body::Row& row : body_->rows) pass = pass && row.comparison.pass;
  if (!pass) return kWrong;
  if (body_->head.options.predict && body_->stated_error().empty()) return kLacking;  // said above
  if (vgpu::findings() > 0) {
    std::printf("%d findings of the virtual GPU's checks\n", vgpu::findings());
    return kFindings;
  }
  return kCorrect;
}

}  // namespace lab
