// What a run of chapter 19 reports beside its steps' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab::deformable {

ReportHead report_head(const char* chapter, const GradientOptions& options, const Device& device,
                       const GradientProblem& problem);

// What the arrays have of the three gradients, each beside what is expected.
GradientComparisons compare_gradients(const GradientArrays& arrays,
                                      const ExpectedGradients& expected,
                                      const DeformableShape& shape);
// The comparison of value's gradient, for the line of a step of that name; the report fails where one of
// the others is wrong. Where nothing is expected (--predict), nothing is compared.
Comparison compare_gradients(const std::string& name, const GradientArrays& arrays,
                             const ExpectedGradients& expected, const DeformableShape& shape,
                             Report& report);

// What the virtual GPU predicts of a stage of several kernels, into `timing`: the sum of what it predicts
// of each, as a capture of the stage has them. Kernels that get no prediction are left out of it, and the
// report has a note on how many those are.
void predict_kernels(const std::string& stage, const StepLaunch& launch, Timing& timing,
                     Report& report);

// The three gradients to --output, where that is given.
void write_output(const GradientOptions& options, const DeformableShape& shape,
                  const GradientArrays& arrays);
// The step on the photo's pyramid, compared as all else is, and the picture. Not where the flags name a
// random problem alone.
void draw_photo(const GradientOptions& options, const Image& photo, const GradientStep& step,
                Report& report);

}  // namespace lab::deformable
