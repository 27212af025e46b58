# The numbers that READMEs show: make docs, make ladder, make published. Included by the Makefile.

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

.PHONY: docs
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
# Texts whose sentences state numbers of results.
texts_with_numbers := README.md $(wildcard chapters/*.md common/workshop/bench/README.md)
empty :=
with_commas = $(subst $(empty) $(empty),$(comma),$(strip $1))
results_of_lesson = $(call lesson_results,$(call chapter_number,$(patsubst %/README.md,%,$1)))
docs: starters $(foreach r,$(lessons),$(call results_of_lesson,$r))
	@python3 common/workshop/mutants/report.py $(if $(CHECK),--check)
	@python3 common/workshop/lessons/docs.py $(if $(CHECK),--check) $(texts_with_numbers) \
	  $(foreach r,$(lessons),$r=$(call with_commas,$(call results_of_lesson,$r)))
endif
