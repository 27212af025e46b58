# The numbers that READMEs show: make docs, make ladder, make published. Included by the Makefile.

# ---- make ladder ---------------------------------------------------------------------------------
# All steps of attention over the tokens. CHECK=1 only compares with the committed file. Without it the virtual
# GPU also prints what steps gain at sizes that matter.

ladder_tokens := 197 577 1025
ladder_programs := $(addprefix $D/chapter,$(filter 1 2 3 4 5 6 13 14,$(chapters)))
ladder_gains := $(if $(CHECK),,$(filter vgpu,$(DEVICE)))
.PHONY: ladder
ladder: $(ladder_programs) $(if $(ladder_gains),$D/chapter7 $D/chapter8)
	@mkdir -p $T/docs
	@for n in $(ladder_tokens); do \
	  $(on_h200) $< --all --tokens $$n --json $T/docs/ladder_$$n.json; echo; done
	@$(if $(ladder_gains),for run in '1 --all --batch 32 --tokens 577' '7 --heads 8 --distribution local' \
	  '7 --heads 8 --distribution uniform' '8 --size 224' '8 --preset deep'; do \
	  $(on_h200) $D/chapter$${run/ / --predict }; echo; done)
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
