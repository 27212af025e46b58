// ./run --projection: the step `inside` beside what it takes the place of, a layer of attention in fp32
// with its q, k and v computed inside attention's kernel and apart from it.
#pragma once

#include "../../../common/lab/program.h"
#include "options.h"

namespace vision_transformer {

// The layer at one size or at several: each launch timed, then compared with the reference.
lab::ExitCode compare_projection(const char* chapter, NetOptions& options);

}  // namespace vision_transformer
