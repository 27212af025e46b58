# `make test` and `make test-gpu`: which test programs run, and what they find in their environment.
# Included by the Makefile; test_programs.mk says what programs there are.

# ---- all tests -----------------------------------------------------------------------------------

# $(call backwards,words): the last word first
backwards = $(if $1,$(call backwards,$(wordlist 2,$(words $1),$1)) $(firstword $1))

# The longest first, so that none runs alone at the end: exercises, which call the compiler most, tests
# that run all programs, then the chapters from the last one on. Without zstd and lz4 there is no virtual
# GPU: a machine with a GPU may lack them.
long_tests := $(filter $(if $(VGPU_LIBS),$(vgpu_tests_program) $V/tests/time_programs) $D/bad_input_tests,\
  $(vgpu_tests) $(lab_tests))
tests := $(if $(VGPU_LIBS),$(exercise_tests)) $(python_tests) $(long_tests) $(call backwards,$(chapter_tests)) \
  $(newest_tests) $(filter-out $(long_tests),$(lab_tests) $(if $(VGPU_LIBS),$(vgpu_tests))) \
  $(operators_tests) $(script_tests)
device_tests := $(lab_tests) $(chapter_tests) $(operators_tests)

# ---- ALL, ONLY and SUITE -------------------------------------------------------------------------

# Without any of them: what a user's machine can break, in minutes. Cases in the suite `programs`, which start
# other chapters' programs, are left out then.
ALL ?=
ONLY ?=
quick := $(if $(strip $(ALL) $(ONLY) $(SUITE)),,yes)
quick_tests := $(filter-out $D/bad_input_tests $(operators_python),$(filter $(newest_tests) $(lab_tests) $(python_tests) \
  $D/test_chapter0 $D/test_chapter1 $(vgpu_tests_program) $(addprefix $V/tests/runtime_,launch memory streams) \
  data/check.sh,$(tests))) $(if $(VGPU_LIBS),$(addprefix $V/tests/,$(filter exercise1-solution,$(exercises:%=exercise%-solution))))

# ONLY='lab chapter7': a word names the programs that are called so or begin with it and a _, test_ in
# front left out. If there is no such program, it names all that begin with the word: so chapter1 does not
# choose chapter10.
# $(call test_name,program): what ONLY calls it, its file, or a script's path
test_name = $(patsubst $D/%,%,$(patsubst $V/%,%,$(patsubst $V/tests/%,%,$(patsubst $V/$(SUITE)/%,%,$1))))
all_names = $(foreach t,$(tests),$(call test_name,$t))
named = $(or $(filter $1 $1_% test_$1 test_$1_%,$(all_names)),$(filter $1% test_$1%,$(all_names)))
names_chosen = $(foreach w,$(filter-out toolkit,$(ONLY)),$(call named,$w))
# $(call chosen,programs): those that ONLY chooses
chosen = $(if $(ONLY),$(strip $(foreach t,$1,$(if $(or $(filter $(call test_name,$t),$(names_chosen)),$(if \
  $(filter toolkit,$(ONLY)),$(filter $t,$(toolkit_tests)))),$t))),$1)
tests_chosen = $(if $(quick),$(quick_tests),$(call chosen,$(tests)))
device_tests_chosen = $(call chosen,$(device_tests))

# ONLY=toolkit: the programs that call the compiler when they run.
calls_toolkit := $(shell grep -lE '\bMutants\b|\bplanted_bugs\b|"toolkit\.h"' \
  $(all_tests_cu) $(lab_tests_cpp) $(tile_tests_cu) $(vgpu_tests_cpp) $(vgpu_tests_cu))
# Chapters call it through two functions of common/testing, Mutants and check_load_groups. With SUITE, chapters 1
# and 4 are enough, which have a case of each.
chapter_files_calling := $(filter $(all_tests_cu),$(if $(SUITE),\
  $(wildcard chapters/01_*/tests/test.cu chapters/04_*/tests/test.cu),$(calls_toolkit)))
toolkit_tests := $(exercise_tests) $(foreach f,$(chapter_files_calling),$(call test_program,$f)) \
  $(if $(filter $(lab_tests_cpp),$(calls_toolkit)),$D/lab_tests) \
  $(if $(filter $(vgpu_tests_cpp),$(calls_toolkit)),$(vgpu_tests_program)) \
  $(patsubst common/tile/tests/%.cu,$D/lab_%,$(filter $(tile_tests_cu),$(calls_toolkit))) \
  $(patsubst common/vgpu/tests/%.cu,$V/tests/%,$(filter $(vgpu_tests_cu),$(calls_toolkit)))
ifdef SUITE
$(foreach f,$(filter-out $(call in_suite,$(calls_toolkit)),$(calls_toolkit)),\
  $(error SUITE=toolkit: $f calls the compiler and has no case of that suite))
endif

# A word that names nothing ends make. (For other goals ONLY means other things, and the programs are
# known when the toolkit is.)
ifneq ($(if $(TOOLKIT_ID),$(filter test test-gpu,$(MAKECMDGOALS))),)
$(foreach w,$(filter-out toolkit,$(ONLY)),$(if $(call named,$w),,\
  $(error ONLY=$w: no test program is called so or begins so; there are: toolkit $(all_names))))
endif
ifneq ($(if $(TOOLKIT_ID),$(filter test-gpu,$(MAKECMDGOALS))),)
$(if $(device_tests_chosen),,$(error ONLY=$(ONLY): nothing of that runs on a GPU; there are: \
  $(foreach t,$(device_tests),$(call test_name,$t))))
endif

# ---- running them --------------------------------------------------------------------------------

# $(call programs_started,tests): the chapters' programs that these start. The texts of a chapter's tests
# name them, as "chapter5"; three tests start those of all chapters.
start_all := $(if $(quick),,$D/lab_tests $D/bad_input_tests common/workshop/tests/all.py)
started_by := $(shell grep -oE '"chapter[0-9]+' /dev/null $(wildcard chapters/*/tests/test*.cu \
  chapters/*/tests/test*.cpp) | sed 's|/tests/.*"|/|')  # chapters/06_name/chapter5
tests_in = $(filter $D/test_chapter$(call chapter_number,$1) $D/test_chapter$(call chapter_number,$1)_%,$2)
programs_started = $(addprefix $D/,$(if $(filter $(start_all),$1),$(chapters:%=chapter%),\
  $(if $(filter $D/lab_tests,$1),chapter1) $(foreach d,$(chapter_dirs),$(if $(call tests_in,$d,$1),\
  $(notdir $(filter $d/%,$(started_by)))))))

# The newest chapters' programs take longest to compile, so they start first.
.PHONY: test test-gpu
test: $(if $(SUITE),,$(call backwards,$(sort $(call programs_started,$(tests_chosen))))) $(tests_chosen) \
  $(device_library)
	@mkdir -p $T/tmp && common/make/run_tests.sh $(tests_chosen)
ifneq ($(VGPU_LIBS),)
test: $(vgpu_launcher) $(vgpu_links)
else
test: tests_left_out
.PHONY: tests_left_out
tests_left_out:
	@echo "no zstd and lz4 here: left out are the tests of the virtual GPU and of the exercises" >&2
endif
ifneq ($(filter common/workshop/tests/all.py,$(if $(quick),,$(tests_chosen))),)
test: $(if $(filter vgpu,$(DEVICE)),$D/calibrate)
endif

# On a GPU: only the tests that a GPU can fail. ONLY chooses among them.
test-gpu: $(if $(has_device),$(device_tests_chosen) $(chapters:%=$D/chapter%) $(device_library))
	@$(if $(has_device),mkdir -p $T/tmp && common/make/run_tests.sh $(device_tests_chosen),$(no_gpu))

# A test may call the toolkit, in another folder: its compiler with this project's flags, its libraries.
# TEST_* are for run_tests.sh. (private: for the rules these variables mean other things.)
test test-gpu: private export NVCC := $(call absolute,$(NVCC))
test test-gpu: private export NVCC_FLAGS := $(patsubst -Icommon,-I'$(CURDIR)/common',$(nvcc_flags))
test test-gpu: private export CUDA_LIB := $(call absolute,$(CUDA_LIB))
test test-gpu: private export VGPU_PTXAS := $(or $(VGPU_PTXAS),$(if $(wildcard $(dir $(NVCC))ptxas),$(toolkit_ptxas)))
test test-gpu: private export TEST_TMP := $(CURDIR)/$T/tmp
test test-gpu: export TEST_SUITE := $(SUITE)
# One GPU is for one program at a time.
test test-gpu: export TEST_JOBS ?= $(if $(filter cuda,$(DEVICE)),1,3)
test: export BENCH_PROGRAMS = $(if $(quick),,$(if $(filter vgpu-sm_90,$(DEVICE)-$(ARCH)),$D))
test: private export TEST_QUICK := $(quick)
ifdef quick
test: private export TEST_LEFT_OUT := $(words $(filter-out $(quick_tests),$(tests))) of $(words $(tests)) test programs, most of \
  them of chapters, and cases that start other chapters' programs. They run with make test ALL=1, or some of them with ONLY
endif
# Tables that live as long as the process are no leaks. A program that a test compiles by itself meets the
# sanitizer only in libvgpu.so, later than the sanitizer likes.
ifdef SANITIZE
test: export ASAN_OPTIONS := detect_leaks=0:verify_asan_link_order=0
test: export UBSAN_OPTIONS := halt_on_error=1:print_stacktrace=1
test: export TEST_TIMEOUT ?= 3600
endif
