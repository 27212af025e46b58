# PTX and machine code of all chapters for all architectures. Included by the Makefile.

# What has kernels, and programs are made of.
device_cu := $(filter-out $(host_only_cu),$(foreach d,$(chapter_dirs),$(wildcard $d/main.cu) $(call kernels_cu,$d)))

# PTX alone, $1 = compute_75. It needs no lines of the source, which are a tenth of the work.
to_ptx = '$(NVCC)' $(filter-out -lineinfo,$(nvcc_flags)) -I$(variants_made) -gencode arch=$1$(comma)code=$1

# The compiler makes the same PTX for all architectures of a group. It runs once for the first of them,
# ptxas for each. (CUDA's headers of fp8 and smaller formats ask for sm_89.)
# $(call ptx_for,sm_86): the architecture whose PTX it has, compute_80
same_ptx := sm_80-sm_86-sm_89 sm_100-sm_120
ptx_for = $(patsubst sm_%,compute_%,$(firstword $(foreach s,$(same_ptx),$(if $(filter $1,$(subst -, ,$s)),\
  $(subst -, ,$s))) $1))
.PHONY: same_ptx_holds
same_ptx_holds:
	@if grep -nE '__CUDA_ARCH[A-Z_]*__[^0-9]*(8[1-9]|10[1-9]|11[0-9]|12[0-9])[0-9]|cuda_fp[468]\.h' \
	    chapters/*/*.cu chapters/*/kernels/*.cu chapters/{*,*/*,*/*/*}/*.cuh common/*.cuh common/*/*.cuh; then \
	  echo 'this asks for an architecture that has the PTX of an older one here: take it from same_ptx' \
	    'in common/make/machine_code.mk ($(same_ptx))' >&2; exit 1; fi

# $(call ptx_rules,compute_75): PTX, the same as a file for the virtual GPU, and the list of its kernels.
define ptx_rules
$(device_cu:%.cu=$T/ptx/$1/%.ptx): $T/ptx/$1/%.ptx: %.cu Makefile common/make/machine_code.mk | $(variants)
	@mkdir -p $$(@D)
	$$(call run,nvcc,$$< for $1,$$(call to_ptx,$1) -ptx $$< -o $$@ -MMD -MP -MF $$@.d)
$(device_cu:%.cu=$T/ptx/$1/%.fatbin): %.fatbin: %.ptx
	@'$(NVCC)' -gencode arch=$1,code=$1 -fatbin $$< -o $$@
$(device_cu:%.cu=$T/ptx/$1/%.kernels): %.kernels: %.ptx common/make/kernels_in_ptx.awk
	@LC_ALL=C awk -v list=1 -f common/make/kernels_in_ptx.awk $$< >$$@
endef
# $(call machine_code_rules,sm_86,compute_80): passed.sm_86 lists the kernels that have passed already, in
# any file.
assembling := Makefile common/make/machine_code.mk \
  $(addprefix common/make/,assemble.sh kernels_in_ptx.awk spills.awk spills.txt)
define machine_code_rules
$(device_cu:%.cu=$T/ptx/$2/%.$1): $T/ptx/$2/%.$1: $T/ptx/$2/%.ptx $T/ptx/$2/%.kernels $(assembling) | $T/ptx/passed.$1
	$$(call run,ptxas,$$*.cu for $1,NVCC='$(NVCC)' common/make/assemble.sh $$*.cu $$< $1 $$@ $T/ptx/passed.$1)
$T/ptx/passed.$1: $(assembling)
	@mkdir -p $$(@D)
	@: >$$@
endef
$(foreach p,$(sort $(foreach a,$(all_archs),$(call ptx_for,$a))),$(eval $(call ptx_rules,$p)))
$(foreach a,$(all_archs),$(eval $(call machine_code_rules,$a,$(call ptx_for,$a))))

# ---- make compile-all ----------------------------------------------------------------------------
# ptxas runs for every architecture in ARCHS, and no kernel may spill registers but those in spills.txt.
# Nothing is linked. Programs have been compiled for ARCH already.

ARCHS ?= $(all_archs)
CHAPTERS ?= $(chapter_dirs)
ifneq ($(filter compile-all,$(MAKECMDGOALS)),)
$(foreach a,$(filter-out $(all_archs),$(ARCHS)),$(error ARCHS=$a: must be of $(all_archs)))
$(foreach c,$(filter-out $(chapter_dirs),$(CHAPTERS)),$(error CHAPTERS=$c: must be of $(chapter_dirs)))
endif
# $(call machine_code,architecture,chapter's folder)
machine_code = $(foreach f,$(filter $2/%,$(device_cu)),\
  $(if $(filter $(ARCH),$1),$D/$(f:.cu=.o),$T/ptx/$(call ptx_for,$1)/$(f:.cu=.$1)))
# Every chapter reports that it is done, so that with make -k no other one hides it.
define compiled_rule
.PHONY: compiled/$1
compiled/$1: $(call backwards,$(sort $(foreach a,$(ARCHS),$(call machine_code,$a,$1)))) | same_ptx_holds
	@$(foreach o,$(patsubst %.o,%,$(filter %.o,$(call machine_code,$(filter $(ARCH),$(ARCHS)),$1))),\
	  awk -v known=common/make/spills.txt -v file=$(o:$D/%=%.cu) -f common/make/spills.awk $o.ptxas &&) \
	  printf 'compiled %s\n' $(ARCHS:%=%/$1/main.cu)
endef
$(foreach c,$(CHAPTERS),$(eval $(call compiled_rule,$c)))
.PHONY: compile-all
compile-all: $(addprefix compiled/,$(call backwards,$(CHAPTERS)))

# ---- make ptx-coverage ---------------------------------------------------------------------------
# The virtual GPU knows all instructions of every .cu for sm_90, and of the programs also in the oldest and
# the newest dialect.

.PHONY: ptx-coverage
$V/ptx-coverage: $(vgpu_objects) $V/common/vgpu/tests/ptx_coverage.o
	$(call link,-lzstd -llz4)
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
ptx-coverage: $V/ptx-coverage \
  $(patsubst %.cu,$V/cu/%.o,$(filter-out $(host_only_cu),$(wildcard common/workshop/bench/*.cu) $(vgpu_tests_cu))) \
  $(patsubst %.cu,$D/%.o,$(wildcard common/workshop/bench/*/*.cu) $(tile_tests_cu) $(device_cu) \
    $(filter-out $(host_only_cu),$(all_tests_cu))) \
  $(foreach a,compute_75 compute_100,$(device_cu:%.cu=$T/ptx/$a/%.fatbin))
	@$^
endif

# ---- make alone ----------------------------------------------------------------------------------
# Each file by itself: one that includes too little often compiles in a group all the same.

.PHONY: alone
alone: $(addprefix $P/generated/,devices.inc look_page.html) \
  $(addprefix $V/generated/,cuda12.inc driver_names.inc driver_errors.inc) $(variants)
	@NVCC='$(NVCC)' CUDA_INC='$(CUDA_INC)' CXX='$(CXX)' PLAIN_GENERATED='$P/generated' \
	  VGPU_GENERATED='$V/generated' VARIANTS='$(variants_made)' common/make/each_alone.sh $(PART)
