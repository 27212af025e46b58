// Attention with fewer keys than queries, compiled once for the program and all tests.
#include "attention/backward.cuh"
#include "attention/forward.cuh"
