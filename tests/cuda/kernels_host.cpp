// The tests' kernels, compiled for the host.
#include "tests/cuda/kernels.cu"
