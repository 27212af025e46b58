// What a run of chapter 11 reports beside its steps' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

ReportHead report_head(const char* chapter, const MlpOptions& options, const Device& device,
                       const MlpProblem& problem);

// "wmma: 105 TFLOP/s as predicted"; on a GPU by the measured
// time. Nothing where a time or a file is not there.
void note_rate(const Device& device, const MlpStep& step, const MlpSizes& sizes,
               const std::vector<Timing>& launches, const Timing& whole, Report& report);

// The last step's y to --output, and its hidden units as a picture where the problem is a photo.
void write_results(const MlpOptions& options, const MlpProblem& problem, const MlpOnDevice& arrays,
                   const std::string& last_step, Report& report);

}  // namespace lab
