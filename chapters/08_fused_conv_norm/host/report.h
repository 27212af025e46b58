// What a run of chapter 8 reports beside its steps' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

ReportHead report_head(const char* chapter, const ConvNormOptions& options, const Device& device,
                       const ConvNormProblem& problem);

// What the step does with the shape, and what counters say of the traffic of its launches.
void note_step(const ConvNormOptions& options, const Device& device, const ConvNormStep& step,
               const ConvNormShape& shape, const std::vector<Timing>& launches, Report& report);

// How long it takes to pack the weights of a step on arrays in fp16, as a line of its own; `right` is the step's.
void note_packing(const ConvNormOptions& options, const Device& device, const ConvNormStep& step,
                  const ConvNormShape& shape, std::vector<ConvNormArrays>& arrays,
                  const Comparison& right, Report& report);

// y of the last step to --output, and as a picture where the problem is a photo.
void write_results(const ConvNormOptions& options, const ConvNormProblem& problem,
                   const std::string& last_step, const std::vector<float>& y, Report& report);

}  // namespace lab
