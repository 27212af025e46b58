// What a run of chapter 10 reports beside its steps' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

ReportHead report_head(const char* chapter, const LayerNormOptions& options, const Device& device,
                       const LayerNormProblem& problem);

// Launches beside one that does the same: "add, then rows: 10.6 us; fused residual: 5.03 us".
void note_beside(const Device& device, const std::string& several,
                 const std::vector<Timing>& launches, const std::string& one, const Timing& launch,
                 Report& report);

// How many of the sums in `now` differ in any bit from those in `before`.
int count_changed(const std::vector<float>& before, const std::vector<float>& now);

// y of the last step to --output and as a picture, where these are asked for.
void write_results(const LayerNormOptions& options, const LayerNormProblem& problem,
                   const std::vector<float>& y, Report& report);

}  // namespace lab
