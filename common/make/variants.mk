# Variants that are kept as the few lines in which they differ from their step: variants/NAME.diff in a
# chapter, as `git diff` prints it. The chapter includes one as "06_coalesced_k/no_padding.cuh"; its namespace
# is called as the variant. Included by the Makefile.

variants_made := $T/variants
variant_diffs := $(wildcard chapters/*/variants/*.diff)
variant_of = $(variants_made)/$(subst /variants,,$(patsubst chapters/%.diff,%.cuh,$1))
variants := $(foreach d,$(variant_diffs),$(call variant_of,$d))

define variant_rule
$(call variant_of,$1): $1 $(shell sed -n 's|^--- a/||p' $1) common/make/variant.awk
	@mkdir -p $$(@D)
	@awk -v folder='$(CURDIR)/$(patsubst %/variants/,%,$(dir $1))' -v name=$(basename $(notdir $1)) \
	  -f common/make/variant.awk $1 >$$@.part && mv $$@.part $$@
endef
$(foreach d,$(variant_diffs),$(eval $(call variant_rule,$d)))
