// The variants of step 3, each in a namespace of its own. (Beside the step their names would be ambiguous.)
#include "11_mlp/copies_first.cuh"  // variants/copies_first.diff
#include "11_mlp/no_padding.cuh"    // variants/no_padding.diff
#include "kernels.h"

namespace mlp {

const LayerStep<half> kCopiesFirst = {"copies first", copies_first::pipeline<half>,
                                      copies_first::pipeline_product<tile::Padded, half>};
const LayerStep<half> kNoPadding = {"no padding", no_padding::pipeline<half>,
                                    no_padding::pipeline_product<tile::Plain, half>};

}  // namespace mlp
