// What a run of chapter 16 reports beside its launches' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

ReportHead report_head(const char* chapter, const CvtOptions& options, const Device& device,
                       const Operation& operation);

// The time of a step without launches of its own: that of all that it launches. Other counters are there where it
// launches but once.
Timing time_whole(const CvtOptions& options, const Device& device, const OperationStep& step,
                  int copies);

// What the step left in copy 0; the report says which array is wrong. With --predict nothing is compared.
Comparison compare_step(const CvtOptions& options, const OperationStep& step, Report& report);

// How much faster the last step is than the first one, of the gradients and of the forward pass.
void add_ratios(const std::vector<OperationStep>& steps, Report& report);

}  // namespace lab
