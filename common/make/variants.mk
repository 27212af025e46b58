# A variant that differs from its step in a few lines is kept as those lines: chapters/NN_name/variants/NAME.diff,
# as `git diff` prints them. From the diff and the step's file variant.awk makes $T/variants/NN_name/NAME.cuh. The
# compiler gets -I$T/variants, so a chapter includes it as "NN_name/NAME.cuh"; its namespace is NAME. What it
# includes is found from there: four folders up, and down to the chapter. Included by the Makefile.

variants_made := $T/variants
variant_diffs := $(wildcard chapters/*/variants/*.diff)
variant_of = $(variants_made)/$(subst /variants,,$(patsubst chapters/%.diff,%.cuh,$1))
variants := $(foreach d,$(variant_diffs),$(call variant_of,$d))

define variant_rule
$(call variant_of,$1): $1 $(wildcard $(dir $1)../*.cuh) common/make/variant.awk
	@mkdir -p $$(@D)
	@awk -v folder='../../../../$(patsubst %/variants/,%,$(dir $1))' -v name=$(basename $(notdir $1)) \
	  -f common/make/variant.awk $1 >$$@.part && mv $$@.part $$@
endef
$(foreach d,$(variant_diffs),$(eval $(call variant_rule,$d)))
