# The net is made of chapter 16's operations.
kernels_taken_by_$(here) := $(wildcard chapters/16_cvt/kernels/*.cu)
# The program: what trains, and what says so.
$(call group,$(here)/group_training,$(addprefix $(here)/,net/parameters host/data host/pictures host/trainer))
$(call group,$(here)/host/group_programs,$(here)/host/*)
