# Measuring on a GPU: make bench, its rehearsal without one, make validate, make calibrate. Included by the
# Makefile; common/workshop/bench/README.md says what is measured.

bench_scripts := common/workshop/bench
PEERS ?=
$(if $(filter-out torch,$(PEERS)),$(error PEERS=$(PEERS): say torch))
peers = $(if $(PEERS),--peers '$(or $(call python_with,torch),python3)')
.PHONY: programs
programs: $(chapters:%=$D/chapter%) $(device_library)

# ---- make bench ----------------------------------------------------------------------------------
# ONLY='chapter7 local' measures some problems, FRESH=1 all anew, PEERS=torch also with PyTorch;
# MINUTES=25 begins nothing that would end later, ROUNDS=7 are the turns with PyTorch.

.PHONY: bench bench-dry
bench bench-dry: export NVCC := $(call absolute,$(NVCC))
bench bench-dry: export CUDA_LIB := $(call absolute,$(CUDA_LIB))
ifndef vgpu_asked
bench: $(if $(GPU_ARCH),$(chapters:%=$D/chapter%))
	@$(need_python)
	@$(if $(and $(GPU_ARCH),$(filter cuda,$(DEVICE))),,$(call no_gpu,; make bench DEVICE=vgpu writes the reference of \
	  the virtual GPU))
	@python3 $(bench_scripts)/measure.py --programs $D --results $(results) --only '$(ONLY)' $(if $(FRESH),--fresh) \
	  $(peers) $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(ROUNDS),--rounds '$(ROUNDS)')
endif

# All that `make bench` and `make validate` do, without a GPU and before it: programs for GPU=sm_90 are
# built too, ncu looks up CHIP.
GPU ?= $(or $(GPU_ARCH),sm_90)
CHIP ?= h100
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
bench-dry: programs
	@$(need_python)
	@$(MAKE) DEVICE=cuda ARCH=$(GPU) programs $T/cuda-$(GPU)/calibrate
	@python3 $(bench_scripts)/rehearse.py --programs $D --arch $(GPU) --chip $(CHIP) $(peers)
endif

# ---- make validate -------------------------------------------------------------------------------
# The virtual GPU's counters and results beside those of the GPU under Nsight Compute, recorded in RECORD.
# RECORDED=folder compares what a GPU recorded there, on any machine. ONLY=3,6: these chapters.

RECORD ?= $T/validate
RECORDED ?=
validate_arch := $(or $(GPU_ARCH),sm_90)
validate = python3 $(bench_scripts)/validate.py --vgpu $T/vgpu-$(validate_arch) --record '$(RECORD)' \
  --table '$(dir $(gpu_results)){gpu}/validation.md' --json '$(dir $(gpu_results)){gpu}/validation.json' --only '$(ONLY)'
.PHONY: validate
validate:
ifneq ($(RECORDED),)
	@$(need_python)
	@[ -f '$(RECORDED)/gpu.json' ] || { echo "RECORDED=$(RECORDED): there is no gpu.json; it must be a folder that" \
	  "make validate recorded on a GPU, as data/results/nvidia_h200/recorded" >&2; exit 2; }
	@$(MAKE) DEVICE=vgpu ARCH=$(validate_arch) programs
	@[ '$(RECORDED)' -ef '$(RECORD)' ] || { rm -rf '$(RECORD)'; cp -r '$(RECORDED)' '$(RECORD)'; }
	@$(validate)
else ifeq ($(GPU_ARCH),)
	@$(no_gpu)
else
	@$(need_python)
	@command -v ncu >/dev/null || { \
	  echo 'make validate needs ncu, Nsight Compute of the CUDA Toolkit' >&2; exit 3; }
	@$(MAKE) DEVICE=cuda ARCH=$(GPU_ARCH) programs
	@$(MAKE) DEVICE=vgpu ARCH=$(GPU_ARCH) programs
	@$(validate) --cuda $T/cuda-$(GPU_ARCH)
endif

# ---- make calibrate ------------------------------------------------------------------------------
# The constants of predicted times: measured on a GPU, or given back by the virtual one (VGPU_DEVICE chooses
# which). ONLY=l2: those whose names begin so. The program prints the model's constants beside them.

$D/calibrate: $D/common/workshop/bench/calibrate/calibrate.o $H/common/workshop/bench/calibrate/constants.o \
  $P/common/vgpu/time/timing.o $P/common/vgpu/profile/devices.o $H/liblab.a | $(device_library)
	$(call link,$(libs_$(DEVICE)))
# (The virtual GPU may stand for older GPUs.)
$D/common/workshop/bench/calibrate/calibrate.o: nvcc_also = $(if $(filter vgpu,$(DEVICE)),$(foreach a,75 80,$(if \
  $(filter sm_$a,$(ARCH)),,-gencode arch=compute_$a$(comma)code=compute_$a)))
.PHONY: calibrate
calibrate: $(if $(has_device),$D/calibrate)
ifeq ($(has_device),)
	@$(call no_gpu,; make calibrate DEVICE=vgpu asks the virtual GPU)
else ifeq ($(DEVICE),vgpu)
	@VGPU_PTXAS='$(toolkit_ptxas)' $< $(if $(ONLY),--only '$(ONLY)')
else
	@mkdir -p $(gpu_results)
	@$< $(if $(ONLY),--only '$(ONLY)',--json $(gpu_results)/calibration.json)
endif
