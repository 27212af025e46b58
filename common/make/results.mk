# Where results are kept, and the runs of chapters' programs that give them. Included by the Makefile.

# Neither numbers nor pictures depend on the machine: they come from runs of the virtual H200, with times
# predicted from what this ptxas makes. (OpenMP's waiting threads leave the cores to other runs.)
on_h200 := env -u VGPU_CACHE -u VGPU_CHECK -u VGPU_PROFILE -u VGPU_SCHEDULE -u VGPU_TIME \
  -u VGPU_TIMELINE -u VGPU_TIME_ROUNDS -u VGPU_TRACE VGPU_DEVICE=h200 OMP_WAIT_POLICY=passive \
  VGPU_PTXAS='$(toolkit_ptxas)'

# Results of this device, and of the GPU.
gpu_results = data/results/$(shell echo '$(GPU_NAME)' | tr 'A-Z ' 'a-z_')
results = $(if $(filter vgpu,$(DEVICE)),data/results/virtual_h200,$(gpu_results))

# A python3 with matplotlib, looked for once and only where it is used.
python_plot = $(eval python_plot := $(call python_with,matplotlib))$(python_plot)

# $(call result_rule,NAME,chapter's number,flags): $T/docs/NAME.json, what that run says in JSON.
define result_rule
$T/docs/$1.json: $D/chapter$2 $V/libvgpu.so
	@mkdir -p $$(@D)
	$(on_h200) $$< $3 --json $$@ >$$(@:.json=.log) 2>&1 || { cat $$(@:.json=.log); exit 1; }
endef

# Each lesson shows one run: with the flags in its `<!-- counters:begin FLAGS -->` if it has one block, else
# on the photo. A second block is a second run, chapterN-more.json. (A lesson without a block, as chapter
# 18's, has its numbers from a run of its own: its pictures.mk.)
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
lessons := $(foreach n,$(chapters),$(wildcard $(call chapter_folder,$n)/README.md))
# A word a block: chapters/07_name/README.md|--flags, with | for blanks.
counters_blocks := $(shell awk '/^<!-- counters:begin/ { gsub(/^<!-- counters:begin *| *-->$$/, ""); \
  gsub(/ /, "|"); print FILENAME "|" $$0 }' /dev/null $(lessons))
# $(call blocks_in,chapter's number), $(call lesson_flags,...): those of its blocks
blocks_in = $(filter $(call chapter_folder,$1)/README.md|%,$(counters_blocks))
lesson_flags = $(strip $(subst |, ,$(patsubst $(call chapter_folder,$1)/README.md|%,%,$(blocks_in))))
# $(call lesson_results,chapter's number)
lesson_results = $(foreach run,$(wordlist 1,$(if $(word 2,$(blocks_in)),2,$(words $(blocks_in))),\
  chapter$1 chapter$1-more),$T/docs/$(run).json)
only_flags = $(if $(word 2,$(blocks_in)),,$(lesson_flags))
$(foreach n,$(chapters),$(eval $(call result_rule,chapter$n,$n,$(or $(call only_flags,$n),--out $T/docs/chapter$n.png))) \
  $(if $(word 2,$(call blocks_in,$n)),$(eval $(call result_rule,chapter$n-more,$n,$(call lesson_flags,$n)))))
endif
