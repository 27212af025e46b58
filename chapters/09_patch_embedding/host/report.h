// What chapter 9 compares its steps with, and what it reports of a run.
#pragma once

#include "../../../common/lab/report.h"
#include "options.h"

namespace patch_embedding {

lab::ReportHead report_head(const char* chapter, const PatchOptions& options,
                            const lab::Device& device, const Problem& problem);

// Least traffic and operations of that part.
lab::Cost tokens_cost(const Shape& shape, const Part& part);

// The tokens of that part beside the reference's.
lab::Comparison compare_tokens(const HostArrays& arrays, const Problem& problem, const Part& part);

// What a step would take for all tokens.
struct AllTokens {
  std::string name;
  Traffic traffic;
  double us;
};
// Adds it to the step's line, for --json; share_run: the share of all outputs that the step computed.
void add_all_tokens(const AllTokens& all, double share_run, lab::Report& report);
// What was computed, what times are, and a table of all those lines.
void note_all_tokens(const std::vector<AllTokens>& lines, const PatchOptions& options,
                     const Shape& shape, bool is_virtual, lab::Report& report);

// All tokens as a picture and to --output, where these are asked for.
void write_results(const PatchOptions& options, const Problem& problem, const HostArrays& arrays,
                   lab::Report& report);

}  // namespace patch_embedding
