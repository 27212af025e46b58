# Measuring: `make bench`, its reference on the virtual GPU, the tests of the scripts behind them.
# Included by the Makefile, which says where things go; common/workshop/bench/README.md: what is measured.

bench_scripts := common/workshop/bench
gpu_results = data/results/$(shell echo '$(GPU_NAME)' | tr 'A-Z ' 'a-z_')
results = $(if $(filter vgpu,$(DEVICE)),data/results/virtual_h200,$(gpu_results))

# Predicted times, limits and counters of all chapters, from the runs of `make docs`; what each step bought
# at sizes that matter; times and memory over batch and size: with CHECK=1 compared with the reference,
# otherwise the new reference.
bench_reference := $(if $(filter vgpu,$(DEVICE)),$(findstring DEVICE,$(device_reason)))

# $(call sized,NAME,CHAPTER,FLAGS): $T/docs/sized-NAME.json. Only the blocks that a prediction needs are
# executed, so these sizes take seconds. $(call sweep,...): sweep-NAME.json, a point of a sweep over sizes.
# $(call quoted,...): quoted-NAME.json, of which a lesson's prose speaks, at a size that none of these has.
sized_results :=
sweep_results :=
quoted_results :=
define predicted_rule
$1 += $T/docs/$2.json
$T/docs/$2.json: $D/chapter$3 $V/libvgpu.so
	@mkdir -p $$(@D)
	$(docs_env) $$< $4 --predict --json $$@ >$$(@:.json=.log) 2>&1 || { cat $$(@:.json=.log); exit 1; }
endef
sized = $(eval $(call predicted_rule,sized_results,sized-$1,$2,$3))
sweep = $(eval $(call predicted_rule,sweep_results,sweep-$1,$2,$3))
quoted = $(eval $(call predicted_rule,quoted_results,quoted-$1,$2,$3))
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
$(call sized,first-kernel,0,--size 2048)
$(call sized,first-kernel-serial,0,--size 2048 --step 'sum serial')
$(foreach n,$(filter 1 2 3 4 5 6 13 14,$(chapters)),$(call sized,attention-$n,$n,--batch 32 --tokens 577))
$(foreach d,local uniform,$(call sized,deformable-$d,7,--distribution $d --heads 8))
$(call sized,convolution-photo,8)
$(call sized,convolution-deep,8,--preset deep --precision tf32$(comma)fp16 --storage fp16)
$(call sized,layer-norm,10,--batch 32)
$(call sized,mlp,11,--batch 32)
# What was tried and not kept, which runs only by name.
$(foreach v,1:swapped-lanes 2:two-passes 3:no-padding 4:4-loads-at-a-time,$(call \
  sized,attention-$(subst :,-,$v),$(firstword $(subst :, ,$v)),--batch 32 --tokens 577 --step \
  '$(subst -, ,$(lastword $(subst :, ,$v)))'))
$(foreach v,16-warps 24-resident,$(call sized,attention-5-$v,5,--batch 32 --tokens 577 --step '$(subst -, ,$v)'))
$(call sized,attention-6-no-padding,6,--batch 32 --tokens 577 --step 'no padding')
$(foreach d,local uniform,$(call sized,deformable-$d-even-shares,7,--distribution $d --heads 8 --step 'even shares'))
$(foreach d,local uniform,$(call sized,deformable-$d-single-copies,7,--distribution $d --heads 8 --step 'single copies'))
$(call sized,convolution-photo-two-passes,8,--step 'two passes')
$(call sized,convolution-deep-two-passes,8,--preset deep --precision tf32$(comma)fp16 --storage fp16 \
  --step 'two passes')
$(call sized,attention-13-small-tiles,13,--batch 32 --tokens 577 --step 'small tiles')
$(foreach v,one-block no-turns polynomials every-maximum multicast head-by-head,$(call sized,attention-14-$v,14,--batch 32 --tokens 577 --step '$(subst -, ,$v)'))
$(foreach v,copies-first no-padding,$(call sized,mlp-$v,11,--batch 32 --step '$(subst -, ,$v)'))
$(call sized,gradients,15,--batch 32 --tokens 197)
$(foreach s,1 2 3,$(call sized,cvt-projection-$s,16,--component projection --preset cvt13-$s))
$(foreach c,linear attention embedding,$(call sized,cvt-$c,16,--component $c --preset cvt13-1))
# Chapter 12's net: attention's first step and its last, the best steps around it, and qkv by heads.
fast_net := --embed one_product --norm rows --mlp epilogue
$(call sized,vit-0,12,--batch 32 --attention naive)
$(call sized,vit-1,12,--batch 32)
$(call sized,vit-2,12,--batch 32 $(fast_net))
$(call sized,vit-3,12,--batch 32 $(fast_net) --qkv epilogue)
$(call sized,vit-projection,12,--projection --sizes)
# Chapter 9 over batch at 224 pixels, and over the photo's side. Chapter 12 over batch at three sides,
# with the fastest step of each component; at 224 pixels also with its own simple ones.
sweep_batches := 1 2 4 8 16 32
sweep_sides := 224 384 512
$(foreach b,$(sweep_batches),$(call sweep,embedding-$b-224,9,--batch $b))
$(foreach s,$(filter-out 224,$(sweep_sides)),$(call sweep,embedding-1-$s,9,--size $s))
$(foreach b,$(sweep_batches),$(call sweep,net-simple-$b-224,12,--batch $b))
$(foreach b,$(sweep_batches),$(foreach s,$(sweep_sides),$(call sweep,net-fast-$b-$s,12,--batch $b \
  --size $s $(fast_net))))
# Lesson 5 speaks of 512 tokens, lessons 13 to 15 of 197 and 1025, lesson 10 of many rows and short ones, lesson 12
# of one photo and other choices. Of sized runs lessons 3 and 11 to 15 quote why warps wait, how busy pipes are, and
# single launches.
$(call quoted,attention-5-512,5,--batch 32 --tokens 512)
$(call quoted,attention-5-512-16-warps,5,--batch 32 --tokens 512 --step '16 warps')
$(foreach t,197 1025,$(foreach n,13 14,$(call quoted,attention-$n-$t,$n,--batch 32 --tokens $t)))
$(foreach t,197 1025,$(call quoted,attention-14-$t-head-by-head,14,--batch 32 --tokens $t --step 'head by head'))
$(foreach t,197 1025,$(call quoted,attention-13-$t-small-tiles,13,--batch 32 --tokens $t --step 'small tiles'))
$(foreach s,tensor-cores deterministic,$(call quoted,gradients-1025-$s,15,--batch 32 --tokens 1025 --step '$(subst -, ,$s)'))
$(call quoted,layer-norm-100000,10,--rows 100000)
$(call quoted,layer-norm-64,10,--rows 200000 --columns 64)
$(call quoted,vit-best-1,12,$(fast_net) --qkv epilogue)
$(foreach a,naive coalesced_loads,$(call quoted,vit-$a,12,--attention $a))
$(call quoted,vit-projection,12,--projection --batch 32 --tokens 64 --width 512 --heads 8)
quoted_results += $(addprefix $T/docs/sized-,$(addsuffix .json,attention-3 attention-13 attention-13-small-tiles \
  attention-14 gradients mlp vit-3))
endif

PEERS ?=
ifeq ($(filter torch,$(PEERS))$(if $(PEERS),,none),)
$(error PEERS=$(PEERS): say torch)
endif
torch_python = $(shell for p in python3 /usr/bin/python3; do \
  $$p -c 'import torch' 2>/dev/null && echo $$p && break; done)

.PHONY: bench bench-vgpu
ifneq ($(bench_reference),)
ifeq ($(ARCH),sm_90)
bench_runs := $(foreach n,$(chapters),$(call docs_results,$n))
bench: $(bench_runs) $(sized_results) $(sweep_results) $(quoted_results)
	@$(need_python)
	@status=0; for make in 'counters.py $(results) $(bench_runs)' \
	    'gains.py $(results) $(sized_results)' 'sweeps.py $(results) $(sweep_results)' \
	    'quoted.py $(results) $(quoted_results)'; do \
	  set -- $$make; script=$$1; shift; \
	  python3 $(bench_scripts)/$$script $(if $(CHECK),--check) --ptxas '$(toolkit_ptxas)' "$$@" || \
	    status=$$?; done; exit $$status
else
bench:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 bench
endif
else
# ONLY='chapter7 local' measures some problems, FRESH=1 all anew, PEERS=torch also with PyTorch;
# MINUTES=25 begins nothing that would end later, ROUNDS=7 are the turns with PyTorch.
MINUTES ?=
ROUNDS ?=
bench: export NVCC := $(call absolute,$(NVCC))
bench: export CUDA_LIB := $(call absolute,$(CUDA_LIB))
bench: $(if $(GPU_ARCH),$(chapters:%=$D/chapter%))
	@$(need_python)
	@if [ -z '$(GPU_ARCH)' ] || [ $(DEVICE) != cuda ]; then \
	  echo 'make bench needs a GPU, and nvidia-smi lists none; make bench DEVICE=vgpu writes the' \
	    'reference of the virtual GPU' >&2; exit 3; fi
	@python3 $(bench_scripts)/measure.py --programs $D --results $(results) --only '$(ONLY)' \
	  $(if $(FRESH),--fresh) $(if $(PEERS),--peers '$(or $(torch_python),python3)') \
	  $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(ROUNDS),--rounds '$(ROUNDS)')
endif

# All that `make bench` and `make validate` do, without a GPU and before it: programs for the GPU
# are built too (GPU=sm_90), CHIP is asked of ncu.
GPU ?= $(or $(GPU_ARCH),sm_90)
CHIP ?= h100
.PHONY: bench-dry
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
bench-dry: export NVCC := $(call absolute,$(NVCC))
bench-dry: export CUDA_LIB := $(call absolute,$(CUDA_LIB))
bench-dry: programs
	@$(need_python)
	@$(MAKE) DEVICE=cuda ARCH=$(GPU) programs $T/cuda-$(GPU)/calibrate
	@python3 $(bench_scripts)/rehearse.py --programs $D --arch $(GPU) --chip $(CHIP) \
	  $(if $(PEERS),--peers '$(or $(torch_python),python3)')
else
bench-dry:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 bench-dry
endif

# The virtual GPU's counters and results beside those of the GPU under Nsight Compute, recorded in
# RECORD; RECORDED=folder compares what a GPU recorded there, on any machine. ONLY=3,6: these chapters.
RECORD ?= $T/validate
RECORDED ?=
validate_flags = --table '$(dir $(gpu_results)){gpu}/validation.md' \
  --json '$(dir $(gpu_results)){gpu}/validation.json' --only '$(ONLY)'
.PHONY: validate programs
programs: $(chapters:%=$D/chapter%) $(device_library)
ifneq ($(RECORDED),)
validate:
	@$(need_python)
	@[ -f '$(RECORDED)/gpu.json' ] || { echo "RECORDED=$(RECORDED): there is no gpu.json; it must be a folder that" \
	  "make validate recorded on a GPU, as data/results/nvidia_h200/recorded" >&2; exit 2; }
	@$(MAKE) DEVICE=vgpu ARCH=$(or $(GPU_ARCH),sm_90) programs
	@[ '$(RECORDED)' -ef '$(RECORD)' ] || { rm -rf '$(RECORD)'; cp -r '$(RECORDED)' '$(RECORD)'; }
	@python3 $(bench_scripts)/validate.py --vgpu $T/vgpu-$(or $(GPU_ARCH),sm_90) --record '$(RECORD)' $(validate_flags)
else ifeq ($(GPU_ARCH),)
validate:
	@echo 'make validate needs a GPU, and nvidia-smi lists none' >&2; exit 3
else
validate:
	@$(need_python)
	@command -v ncu >/dev/null || { \
	  echo 'make validate needs ncu, Nsight Compute of the CUDA Toolkit' >&2; exit 3; }
	@$(MAKE) DEVICE=cuda ARCH=$(GPU_ARCH) programs
	@$(MAKE) DEVICE=vgpu ARCH=$(GPU_ARCH) programs
	@python3 $(bench_scripts)/validate.py --cuda $T/cuda-$(GPU_ARCH) --vgpu $T/vgpu-$(GPU_ARCH) \
	  --record '$(RECORD)' $(validate_flags)
endif

# The constants of predicted times: measured on a GPU, given back by the virtual one (VGPU_DEVICE chooses
# which). ONLY=l2: those whose names begin so. It needs the model's constants, also where it runs on a GPU.
calibrate_objects := $D/common/workshop/bench/calibrate/calibrate.o $H/common/workshop/bench/calibrate/constants.o \
  $P/common/vgpu/time/timing.o $P/common/vgpu/profile/devices.o
$P/common/vgpu/profile/devices.o: | $P/generated/devices.inc
# (The virtual GPU may stand for older GPUs.)
$D/common/workshop/bench/calibrate/calibrate.o: also = $(if $(filter vgpu,$(DEVICE)),$(foreach a,75 80,$(if \
  $(filter sm_$a,$(ARCH)),,-gencode arch=compute_$a$(comma)code=compute_$a)))
$D/calibrate: $(calibrate_objects) $H/liblab.a | $(device_library)
	$(call link,$(libs_$(DEVICE)))
ifeq ($(DEVICE),vgpu)
test: $(if $(quick),,$(if $(filter common/workshop/bench/tests/all.py,$(tests_chosen)),$D/calibrate))
endif
.PHONY: calibrate
ifeq ($(GPU_ARCH)$(bench_reference),)
calibrate:
	@echo 'make calibrate needs a GPU, and nvidia-smi lists none; make calibrate DEVICE=vgpu asks the' \
	  'virtual GPU' >&2; exit 3
else ifeq ($(DEVICE),vgpu)
calibrate: $D/calibrate
	@VGPU_PTXAS='$(toolkit_ptxas)' $< $(if $(ONLY),--only '$(ONLY)')
else
calibrate: $D/calibrate
	@mkdir -p $(gpu_results)
	@$< $(if $(ONLY),--only '$(ONLY)',--json $(gpu_results)/calibration.json)
endif

# The tests of what runs on a device, and no others: on a GPU, those that only a GPU can fail.
# ONLY chooses some, as of `make test`, what runs on no GPU left out; TEST_TIMEOUT=300 is for each.
device_tests := $(lab_tests) $(chapter_tests) $(operators_tests)
device_tests_chosen = $(call chosen,$(device_tests))
ifneq ($(if $(TOOLKIT_ID),$(filter test-gpu,$(MAKECMDGOALS))),)
$(if $(device_tests_chosen),,$(error ONLY=$(ONLY): nothing of that runs on a GPU; there are: \
  $(foreach t,$(device_tests),$(call test_name,$t))))
endif
.PHONY: test-gpu
ifeq ($(GPU_ARCH)$(bench_reference),)
test-gpu:
	@echo 'make test-gpu needs a GPU, and nvidia-smi lists none' >&2; exit 3
else
test-gpu: $(device_tests_chosen) $(chapters:%=$D/chapter%) $(device_library)
	@mkdir -p $T/tmp && common/make/run_tests.sh $(device_tests_chosen)
endif

# Predicted kernel times beside published ones: errors and order of both halves, and the picture.
.PHONY: published
published:
	@$(need_python)
	@'$(or $(python_plot),python3)' common/workshop/figures/published.py data/results/published.json \
	  data/results/published

need_python = $(if $(shell command -v python3),,echo 'make $@ needs python3' >&2; exit 3)

# The virtual GPU itself.
bench-vgpu: $V/tests/bench_vgpu $(chapters:%=$T/vgpu-sm_90/chapter%)
	@$^
