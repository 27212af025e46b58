// What a run of chapter 15 reports beside its steps' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

ReportHead report_head(const char* chapter, const GradientOptions& options, const Device& device,
                       const GradientProblem& problem);

// What the step left in dQ, dK and dV; the report says which of them is wrong. Where nothing is
// expected (--predict), nothing is compared.
Comparison compare_gradients(const gradients::Step& step, const GradientArrays& arrays,
                             const GradientExpected& expected, const AttentionShape& shape,
                             Report& report);

// How many numbers of dQ a second run of the step gave other bits. The report fails where the step
// promises the same.
void note_changed(const gradients::Step& step, const std::vector<half>& first,
                  const std::vector<half>& second, const Device& device, Report& report);

// dQ, dK and dV to --output, where that is given.
void write_output(const GradientOptions& options, const AttentionShape& shape,
                  const GradientArrays& arrays);
// For one patch to come out of attention as it went in: which keys would have to change. dK of the
// step, with dO of that patch alone. Not without a photo, and not with --predict.
void draw_keys(const GradientOptions& options, const GradientProblem& problem,
               const gradients::Step& step, GradientArrays& arrays, Report& report);

}  // namespace lab
