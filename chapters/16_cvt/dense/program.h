// The program of linear layers, LayerNorm, attention and embedding: chapter 16's with --component
// NAME.
#pragma once

#include <string>
#include <vector>

// Which they are: "linear", "layer_norm", "attention", "embedding".
const std::vector<std::string>& dense_components();

// argv[0] is the program, what follows are this program's own flags. Returns the exit code: 2 for a
// component that is none of those.
int dense_main(const std::string& component, int argc, char** argv);
