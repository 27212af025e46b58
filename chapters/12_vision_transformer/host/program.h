// The chapter's program.
#pragma once

namespace vision_transformer {

// Flags, weights, photo, memory; the net's components, each compared with the reference; the
// classes and the picture. Errors become one line on stderr and the exit code.
int vit_main(int argc, char** argv);
// The same program called with --projection: one layer of attention in fp32, q, k and v computed
// inside its kernel or apart.
int projection_main(int argc, char** argv);

}  // namespace vision_transformer
