// What a run of the net reports beside its components.
#pragma once

#include <vector>

#include "../../../common/lab/report.h"
#include "lines.h"
#include "options.h"
#include "problem.h"
#include "run.h"

namespace vision_transformer {

// With the run's memory plan: which array lies where, from which stage to which.
lab::ReportHead report_head(const char* chapter, const NetOptions& options,
                            const lab::Device& device, const NetProblem& problem,
                            const NetRun& run);

// Images a second: on the virtual GPU as predicted.
void note_rate(const std::vector<Line>& lines, int batch, const lab::Device& device,
               const lab::Timing& total, lab::Report& report);
void note_memory(const NetRun& run, const NetOptions& options, lab::Report& report);
// Replays the net from a CUDA graph: the same bits as from the stream.
void check_graph(NetRun& run, const std::vector<half>& logits, lab::Report& report);

// q and k of the block that is drawn, [batch, heads, tokens, head_dim].
struct DrawnBlock {
  int block;
  std::vector<half> q, k;
};
// Keeps them where the stage is of that block and has just read them; `inside` stores none, so that the
// reference computes them.
void see_block(const NetRun& run, const Stage& stage, DrawnBlock& drawn);
// The class token's attention over the photo, as a picture.
void draw_attention(const NetOptions& options, const NetProblem& problem, const DrawnBlock& drawn,
                    const NetRun& run, lab::Report& report);
// The likeliest classes of the photo.
void note_classes(const NetOptions& options, const NetProblem& problem,
                  const std::vector<half>& logits, lab::Report& report);
// The logits to --output, where that is given.
void write_output(const NetOptions& options, const NetShape& shape,
                  const std::vector<half>& logits);

}  // namespace vision_transformer
