# Mutation testing: `make mutants`. Included by the Makefile, which says where things go;
# common/workshop/mutants/README.md: what is done.

# ONLY='02-* *access.cpp' chooses some, JOBS=4 at a time, FRESH=1 repeats what is known, QUICK=1 runs
# only the cases that the lists name.
JOBS ?= $(shell nproc)
QUICK ?=
mutants_make = $(MAKE) --no-print-directory -j1 DEVICE=vgpu ARCH=sm_90 TOOLKIT=$(TOOLKIT) \
  $(if $(THIRD_PARTY),THIRD_PARTY=$(THIRD_PARTY)) optimize=-O1

.PHONY: mutants
ifeq ($(shell command -v python3),)
mutants:
	@echo 'make mutants needs python3' >&2; exit 3
else ifneq ($(DEVICE)-$(ARCH),vgpu-sm_90)
mutants:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 mutants
else
mutants: export NVCC := $(NVCC)
mutants: export NVCC_FLAGS := $(nvcc_common)
mutants: export TEST_TMP := $T/tmp
mutants: $(vgpu_tests) $(chapter_tests) $(chapters:%=$D/chapter%) $(vgpu_launcher) \
  $(vgpu_links)
	@mkdir -p $T/tmp && python3 common/workshop/mutants/mutants.py --make '$(mutants_make)' --folders $V $D \
	  --jobs $(JOBS) --only '$(ONLY)' $(if $(FRESH),--fresh) $(if $(QUICK),--quick)
endif
