// What a report is made of, for the files that make it: report.cpp, report_table.cpp, report_files.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "json/json.h"
#include "lab.cuh"
#include "lab/report.h"

namespace lab {

// The least time that DRAM and the units that compute allow, and which of the two it is.
struct Bound {
  double us = std::nan("");
  const char* name = "unknown";
};
Bound bound_of(const Device& device, const Cost& cost);

// What the virtual GPU predicts for one launch or several together.
struct Predicted {
  double us = std::nan(""), error = std::nan("");      // the error as a share of it
  std::string why;                                     // there is none; "" where there is one
  std::vector<std::pair<std::string, double>> stalls;  // why warps wait: shares of their time
};

// The lines as they were added, and the table, JSON and CSV made of them.
struct Report::Body {
  enum class Kind { kStep, kLaunch, kTotal, kBeside };
  struct Row {
    std::string name;
    Timing timing;
    Cost cost;
    Comparison comparison;
    Kind kind;
    Errors errors = Errors::kOfLaunch;  // of what this line wrote itself
    std::vector<std::pair<std::string, double>> numbers = {};
    int launches = 1;  // alike, which the line stands for; its counters are those of one
  };
  std::vector<size_t> launches_of(size_t row) const;  // of a total; of a step, itself
  std::vector<size_t> order() const;                  // of the table: a step before its launches
  std::string table() const;
  std::string stated_error() const;
  std::vector<std::string> heads() const;
  std::string lines() const;
  std::vector<std::string> cells(size_t row) const;
  std::string ratio_notes() const;
  std::string ratio_of(const std::string& name) const;
  std::string timing_notes() const;
  std::string json() const;
  std::string csv() const;
  std::string prediction_notes() const;
  const json::Value& counters(size_t row) const;
  double modelled_limit_us(size_t row) const;
  Predicted predicted(size_t row) const;
  double predicted_us(size_t row) const { return predicted(row).us; }
  double measured_us(size_t row) const { return rows[row].timing.median_us; }
  std::string launches_text(size_t row) const;
  double share_of_total(size_t row, double (Body::*us)(size_t) const) const;
  size_t row_of(const std::string& name) const;
  struct Ratio {
    const char* of;  // what is divided: "medians", "predicted times" or "modelled limits"
    std::string after, before;
    double before_us, after_us;
    bool of_bounds() const { return of == kOfBounds; }
  };
  static constexpr const char* kOfBounds = "modelled limits";
  ReportHead head;
  std::vector<Row> rows;
  std::vector<Ratio> ratios;
  std::vector<std::string> notes;
  bool failed = false;
  // What counters() has read, with its text: it is long, and each cell of the table asks for it.
  mutable std::map<size_t, std::pair<std::string, json::Value>> read = {};
};

}  // namespace lab
