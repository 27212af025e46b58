# Measuring: `make bench`, its reference on the virtual GPU, the tests of the scripts behind them.
# Included by the Makefile, which says where things go; common/bench/README.md says what is measured.

bench_scripts := common/bench
results = data/results/$(if $(filter vgpu,$(DEVICE)),virtual_h200,$(shell echo '$(GPU_NAME)' | tr 'A-Z ' 'a-z_'))

# Limits and counters of all chapters, from the runs of `make docs`: with CHECK=1 compared with the
# reference, otherwise the new reference.
bench_reference := $(if $(filter vgpu,$(DEVICE)),$(findstring DEVICE,$(device_reason)))

.PHONY: bench bench-vgpu
ifneq ($(bench_reference),)
ifeq ($(ARCH),sm_90)
bench: $(foreach n,$(lessons),$(call docs_results,$n))
	@$(need_python)
	@python3 $(bench_scripts)/counters.py $(if $(CHECK),--check) $(results) $^
else
bench:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 bench
endif
else
bench: $(if $(GPU_ARCH),$(chapters:%=$D/chapter%))
	@if [ -z '$(GPU_ARCH)' ] || [ $(DEVICE) != cuda ]; then \
	  echo 'make bench needs a GPU, and nvidia-smi lists none; make bench DEVICE=vgpu writes the' \
	    'reference of the virtual GPU' >&2; exit 3; fi
	@mkdir -p $(results)
	@for n in $(chapters); do $D/chapter$$n --json $(results)/chapter$$n.json; done
endif
need_python = $(if $(shell command -v python3),,echo 'make $@ needs python3' >&2; exit 3)

# The virtual GPU itself.
bench-vgpu: $V/tests/bench_vgpu $(chapters:%=$T/vgpu-sm_90/chapter%)
	@$^
