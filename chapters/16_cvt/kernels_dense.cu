// LayerNorm, loss, optimizer and the class token's moves, compiled once for the program and all tests.
#include "loss/loss.cuh"
#include "norm/layer_norm.cuh"
