// Linear layers and the convolutional token embedding, compiled once for the program and all tests.
#include "embed/embed.cuh"
