# The kernels are for what sm_90 alone has. Elsewhere they are empty, and the program says so.
$D/$(here)/%.o: nvcc_arch = $(ARCH:sm_90=sm_90a)
