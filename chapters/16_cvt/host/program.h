// The chapter's program.
#pragma once

namespace cvt {

// Trains, or with --infer reads one photo. Returns the exit code.
int cvt_main(int argc, char** argv);

}  // namespace cvt
