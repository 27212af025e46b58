# The numbers that READMEs show: make docs, make ladder, make published. Included by the Makefile.

# Neither numbers nor pictures depend on the machine: they come from runs of the virtual H200, with times
# predicted from what this ptxas makes. (OpenMP's waiting threads leave the cores to other runs.)
on_h200 := env -u VGPU_CACHE -u VGPU_CHECK -u VGPU_PROFILE -u VGPU_SCHEDULE -u VGPU_TIME \
  -u VGPU_TIMELINE -u VGPU_TIME_ROUNDS -u VGPU_TRACE VGPU_DEVICE=h200 OMP_WAIT_POLICY=passive \
  VGPU_PTXAS='$(toolkit_ptxas)'

# Where the results of this device are kept.
gpu_results = data/results/$(shell echo '$(GPU_NAME)' | tr 'A-Z ' 'a-z_')
results = $(if $(filter vgpu,$(DEVICE)),data/results/virtual_h200,$(gpu_results))

# A python3 with matplotlib, looked for once and only where it is used.
python_plot = $(eval python_plot := $(call python_with,matplotlib))$(python_plot)

# ---- make ladder ---------------------------------------------------------------------------------
# All steps of attention over the tokens. On the virtual GPU it also prints what steps gain at sizes that
# matter; a word is one of these runs, with _ for blanks. CHECK=1 only compares with the committed file.

ladder_tokens := 197 577 1025
ladder_programs := $(addprefix $D/chapter,$(filter 1 2 3 4 5 6 13 14,$(chapters)))
predicted_1 := --all_--batch_32_--tokens_577
predicted_7 := --heads_8_--distribution_local --heads_8_--distribution_uniform
predicted_8 := --size_224 --preset_deep
ladder_predicted := $(if $(filter vgpu,$(DEVICE)),$(if $(CHECK),,$(foreach n,$(filter 1 7 8,$(chapters)),\
  $(addprefix chapter$n_--predict_,$(predicted_$n)))))
.PHONY: ladder
ladder: $(ladder_programs) $(addprefix $D/,$(sort $(foreach run,$(ladder_predicted),$(firstword $(subst _, ,$(run))))))
	@mkdir -p $T/docs
	@for n in $(ladder_tokens); do \
	  $(on_h200) $< --all --tokens $$n --json $T/docs/ladder_$$n.json; echo; done
	@$(foreach run,$(ladder_predicted),$(on_h200) $D/$(subst _, ,$(run)) && echo &&) true
	@'$(or $(python_plot),python3)' common/workshop/figures/ladder.py $(if $(CHECK),--check \
	  $(results)/ladder.json,$(results)/ladder.json $(results)/ladder) \
	  $(ladder_tokens:%=$T/docs/ladder_%.json) --ptxas '$(toolkit_ptxas)'

# ---- make published ------------------------------------------------------------------------------
# Predicted kernel times beside those that others published: errors and order of both halves, the picture.

.PHONY: published
published:
	@$(need_python)
	@'$(or $(python_plot),python3)' common/workshop/figures/published.py data/results/published.json \
	  data/results/published

# ---- make docs -----------------------------------------------------------------------------------
# Each lesson shows one run: with the flags in its `<!-- counters:begin FLAGS -->` if it has one block, else on the
# photo. A second block is a second run, chapterN-more.json. (A
# lesson without a block, as chapter 18's, has its numbers from a run of its own: its pictures.mk.)

.PHONY: docs
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
lessons := $(foreach n,$(chapters),$(wildcard $(call chapter_folder,$n)/README.md))
# A word a block: chapters/07_name/README.md|--flags, with | for blanks.
counters_blocks := $(shell awk '/^<!-- counters:begin/ { gsub(/^<!-- counters:begin *| *-->$$/, ""); \
  gsub(/ /, "|"); print FILENAME "|" $$0 }' /dev/null $(lessons))
blocks_in = $(filter $(call chapter_folder,$1)/README.md|%,$(counters_blocks))
lesson_flags = $(strip $(subst |, ,$(patsubst $(call chapter_folder,$1)/README.md|%,%,$(blocks_in))))
only_flags = $(if $(filter 1,$(words $(blocks_in))),$(lesson_flags))
lesson_results = $(if $(blocks_in),$T/docs/chapter$1.json $(if $(lesson_flags),$(if \
  $(only_flags),,$T/docs/chapter$1-more.json)))

# Texts whose sentences state numbers of results.
texts_with_numbers := README.md $(wildcard chapters/*.md common/workshop/bench/README.md)
empty :=
with_commas = $(subst $(empty) $(empty),$(comma),$(strip $1))
lesson_number = $(call chapter_number,$(patsubst %/README.md,%,$1))
docs: starters $(foreach r,$(lessons),$(call lesson_results,$(call lesson_number,$r)))
	@python3 common/workshop/mutants/report.py $(if $(CHECK),--check)
	@python3 common/workshop/lessons/docs.py $(if $(CHECK),--check) $(texts_with_numbers) \
	  $(foreach r,$(lessons),$r=$(call with_commas,$(call lesson_results,$(call lesson_number,$r))))
$T/docs/chapter%.json: $D/chapter% $V/libvgpu.so
	@mkdir -p $(@D)
	$(on_h200) $< $(or $(call only_flags,$*),--out $(@:.json=.png)) --json $@ >$(@:.json=.log) || \
	  { cat $(@:.json=.log); exit 1; }
$T/docs/chapter%-more.json: $D/chapter% $V/libvgpu.so
	@mkdir -p $(@D)
	$(on_h200) $< $(call lesson_flags,$*) --json $@ >$(@:.json=.log) || { cat $(@:.json=.log); exit 1; }
endif
