// The mistakes that chapter 11's tests plant in its steps, one at a time, and what must find each.
// A "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kWmmaBugs = {
    {"no barrier behind the loads", "weight_tile);\n    __syncthreads();", "weight_tile);",
     "check"},
    {"no barrier before the next loads", "__syncthreads();  // before the tiles are loaded again",
     "", "check"},
    {"weight is not transposed", "Type, wmma::col_major>", "Type, wmma::row_major>", "element"},
    {"columns beyond k are read", "row < rows && column < columns", "row < rows", "error"},
};

const std::vector<Mutant> kRegistersBugs = {
    {"no barrier before the next slice", "__syncthreads();  // before the next slice is stored", "",
     "check"},
    {"columns beyond k are the next row's", "depth + column() < k ?", "true ?", "error"},
    {"a row too far is stored", "if (row < m && column < n) *reinterpret_cast<Both*>",
     "if (row <= m && column < n) *reinterpret_cast<Both*>", "guard"},
    {"the odd last column is left out", "if (row < m && column < n) to[0] = both.value[0];",
     "if (row < m && column + 1 < n) to[0] = both.value[0];", "not finite"},
};

const std::vector<Mutant> kPipelineBugs = {
    {"the slice is not waited for", "        stages.next();\n        stages.wait();",
     "        stages.next();\n        __syncthreads();", "check"},
    {"copies go into the slice that is read",
     "copy(slice + stages.kAhead, stages.write, step, kSteps - 1)",
     "copy(slice + stages.kAhead, stages.read, step, kSteps - 1)", "check"},
    {"a slice's last copies are left out", "stages.write, step, kSteps - 1)",
     "stages.write, step, kSteps)", "element"},
    {"operands do not change places", "operands[step % 2].multiply(sums)",
     "operands[(step + 1) % 2].multiply(sums)", "element"},
    {"the group ends behind the wait",
     "        tile::end_copies();\n        stages.next();\n        stages.wait();",
     "        stages.next();\n        stages.wait();\n        tile::end_copies();", "check"},
};

const std::vector<Mutant> kEpilogueBugs = {
    {"weights in their own order", "multiply_all<Grouped>(x, weight",
     "multiply_all<InOrder>(x, weight", "element"},
    {"bias behind GELU", "if (kGelu) v = gelu(v);\n        result",
     "if (kGelu) v = gelu(v - float(biases[group].value[e])) + float(biases[group].value[e]);\n "
     "result",
     "element"},
    {"rows beyond m are stored", "row < m ? count : 0, result", "count, result", "error"},
    {"the residual is another row's", "min(first_row + 8 * i, m - 1)", "min(first_row + 8, m - 1)",
     "element"},
    {"GELU by its sigmoid approximation", "if (kGelu) v = gelu(v);\n        result",
     "if (kGelu) v = v / (1 + __expf(-1.702f * v));\n result", "element"},
    {"the residual is added to a rounded number, a thousandth too large",
     "Element(v + float(residuals[i].value[e]))",
     "Element(float(Element(v)) * 1.001f + float(residuals[i].value[e]))", "element"},
};

}  // namespace planted
