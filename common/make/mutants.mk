# Mutation testing: `make mutants`; common/workshop/mutants/README.md says what is done. Included by the
# Makefile for the virtual H200.

# ONLY='02-* *access.cpp' chooses some, JOBS=4 at a time, FRESH=1 repeats what is known, QUICK=1 runs
# only the cases that the lists name.
JOBS ?= $(shell nproc)
mutants_make = $(MAKE) --no-print-directory -j1 DEVICE=vgpu ARCH=sm_90 TOOLKIT=$(TOOLKIT) \
  $(if $(THIRD_PARTY),THIRD_PARTY=$(THIRD_PARTY)) optimize=-O1

.PHONY: mutants
mutants: export NVCC := $(NVCC)
mutants: export NVCC_FLAGS := $(nvcc_flags)
mutants: export TEST_TMP := $T/tmp
mutants: $(if $(python3),$(vgpu_tests) $(chapter_tests) $(chapters:%=$D/chapter%) $(vgpu_launcher) $(vgpu_links))
	@$(need_python)
	@mkdir -p $T/tmp && python3 common/workshop/mutants/mutants.py --make '$(mutants_make)' --folders $V $D \
	  --jobs $(JOBS) --only '$(ONLY)' $(if $(FRESH),--fresh) $(if $(QUICK),--quick)
