# Exercises: the programs that grade them. Included by the Makefile.

# Grading needs the counters, so exercises always run on the virtual GPU. The program compiles the
# student's file itself, as grader.conf says: a file that does not compile is a result, not a failed make.
# With SOLUTION=1, ./run grades our solution. (What runs a chapter's own kernels is not in its exercise.)
define exercise_rules
.PHONY: exercise$1
exercise$1: $V/tests/exercise$1 $V/tests/exercise$1-solution $V/tests/grader.conf $V/tests/student_host
	@ln -sfn $$<$(if $(SOLUTION),-solution) run
	@echo './run grades $(call chapter_folder,$1)/exercise/$(if $(SOLUTION),solution,exercise).cuh'
$V/tests/exercise$1: $V/cu/$(call chapter_folder,$1)/exercise/exercise.o \
  $(filter-out $(not_in_exercises),$(call objects_in,$(call chapter_folder,$1)))
endef
$(foreach n,$(exercises),$(eval $(call exercise_rules,$n)))
$(exercises:%=$V/tests/exercise%): $H/libgrader.a $(test_archives) | $V/libvgpu.so
	$(call link,$(libs_beside_vgpu))
	$(call note_sources,$(@F)$(not_default),$(filter %.o,$^) $(grader_objects) $(lab_objects),$V/libvgpu.so)

$(exercises:%=$V/tests/exercise%-solution): %-solution: Makefile | % $V/tests/grader.conf $V/tests/student_host
	@mkdir -p $(@D)
	@printf '%s\n' '#!/bin/sh' 'here=$$(dirname "$$(readlink -f "$$0")")' \
	  'exec "$$here/$(@F:-solution=)" --solution "$$@"' >$@ && chmod +x $@

# The process that a student's host code runs in: it exports CUDA's functions to the student's library.
$V/tests/student_host: $V/common/grader/student_host.o
	$(call link,-rdynamic)
$V/tests/grader.conf: Makefile $(CONFIG)
	@mkdir -p $(@D)
	@printf '%s\n' 'nvcc $(NVCC)' $(foreach f,$(nvcc_flags) $(call gencode,sm_90),"flag "$f) >$@

# What students fill in is made from our solutions; CHECK=1 only compares.
.PHONY: starters
starters:
	@$(need_python)
	@python3 common/workshop/lessons/starters.py $(if $(CHECK),--check) $(wildcard chapters/*/exercise/solution*.cuh)
