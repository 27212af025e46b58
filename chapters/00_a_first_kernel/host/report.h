// What a run of chapter 0 reports beside its steps' times.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace lab {

ReportHead report_head(const char* chapter, const PhotoOptions& options, const Device& device,
                       const PhotoProblem& problem);

// The sum as the photo's mean brightness.
void note_mean(unsigned sum, const PhotoShape& shape, Report& report);

// How long the call takes for the host, in microseconds: measured on a GPU, predicted on the virtual
// one; NaN where that is not known.
double call_us(const Device& device, const std::function<void()>& call);
// That way from the host's memory and back, and what the kernel takes of it.
void note_whole_way(double us, double kernel_us, Report& report);

// The last steps' results as a picture and to --output, where these are asked for.
void write_results(const PhotoOptions& options, const PhotoProblem& problem,
                   const PhotoArrays& arrays, Report& report);

}  // namespace lab
