# The layers are chapter 8's problem: its kernels in fp32 compute them, its reference says what is right.
kernels_taken_by_$(here) := chapters/08_fused_conv_norm/kernels/fp32.cu
objects_taken_by_$(here) := $H/chapters/08_fused_conv_norm/host/problem.o \
  $P/chapters/08_fused_conv_norm/host/reference.o
