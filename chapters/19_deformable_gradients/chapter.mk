# The problem, whose gradients these are, is chapter 7's.
objects_taken_by_$(here) := $H/chapters/07_persistent_deformable_attention/host/problem.o \
  $P/chapters/07_persistent_deformable_attention/host/reference.o
# It calls functions of CUB for a whole device.
cub_device_cu += $(here)/kernels.cu
