// What chapter 7 compares its steps with, and what it reports of a run.
#pragma once

#include <set>

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

// What every step must give, by the reference: [batch, queries, heads, channels]; empty with --predict, which
// compares nothing. Throws UsageError where an output of --input is beyond what fp16 holds.
std::vector<double> expected_output(const DeformableOptions& options,
                                    const DeformableProblem& problem);
// Where nothing is expected, nothing is compared.
Comparison compare_output(const std::vector<half>& out, const std::vector<double>& expected,
                          const Tolerance& tolerance, const DeformableShape& shape);

ReportHead report_head(const char* chapter, const DeformableOptions& options, const Device& device,
                       const DeformableProblem& problem);

// For Progress: the share of `out`, filled with NaN before, that a kernel which runs once has written
// so far, seen in 1000 places.
std::function<double()> share_written(const DeformableArrays& arrays, bool once);

// What the counters said while steps ran.
struct StepCounters {
  double loaded_by_vectorized = 0;  // bytes that its loads ask for
  std::set<std::string> unlimited;  // steps whose modelled limit leaves something out

  void read(const std::string& step);  // whose launch was the last one
};

// Each step against the one before, and why for some there is no ratio.
void add_ratios(const std::vector<DeformableStep>& steps, const StepCounters& counters,
                Report& report);
// What the L1 delivers to the loads of vectorized, 128 bytes a clock and SM, and what could be
// computed with that.
void note_intensity(const Device& device, const DeformableShape& shape,
                    const StepCounters& counters, Report& report);
// What the cache model says of each step's loads of values, for both distributions, on one image.
void add_hit_rates(const std::vector<DeformableStep>& steps, const DeformableShape& shape,
                   uint64_t seed, Report& report);

// `out` as a safetensors file.
void write_output(const std::string& path, const DeformableShape& shape,
                  const std::vector<half>& out);
// The step on the photo's pyramid, compared as all else is, and the picture of what it finds.
void draw_photo(const DeformableStep& step, const Image& photo, const DeformableOptions& options,
                Report& report);

}  // namespace lab
