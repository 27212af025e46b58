# A course in CUDA for vision. `make` alone lists what can be made.
#
# Where things go (TOOLKIT_ID is cuda-13.0.88 or wheels-13.0.88, DEVICE is cuda or vgpu):
#
#   .toolkit/                        NVIDIA's compiler wheels, only where they are needed
#   build/config-*.mk                what common/make/configure.sh found
#   build/TOOLKIT_ID-sanitize/...    the same again, of make SANITIZE=1
#   build/TOOLKIT_ID/host/           objects of g++: common/*.cpp, reference/, and the doctest main()
#   build/TOOLKIT_ID/vgpu/           libvgpu.so, vgpu-lib/libcudart.so.{12,13}, the launcher vgpu,
#                                    vgpu_tests and programs of common/vgpu/tests/*.cu in tests/
#   build/TOOLKIT_ID/DEVICE-ARCH/    objects of nvcc, and the programs chapterN, test_chapterN, lab_tests
#   build/vgpu, build/vgpu-lib       links to the newest of those above
#   ./run                            link to the newest program
#
# Every choice that changes an object is in its path, so switching never meets a stale object.
#
# What a source file may rely on: include paths common/ and third party (<doctest/doctest.h>,
# <stb/stb_image.h>, <CLI/CLI.hpp>, <nlohmann/json.hpp>). Test programs run in the repository root.
# All *.cpp of a tests/ folder are linked into one program, each *.cu is one of its own. No test file
# needs a main(): doctest's comes from an archive, and one that a file brings itself wins.
# A test that compiles kernels at run time finds NVCC, NVCC_FLAGS, TEST_TMP in its environment.

SHELL := /bin/bash
comma := ,
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help

ifeq ($(findstring -j,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --output-sync=target --no-builtin-rules

TOOLKIT ?= auto
THIRD_PARTY ?=
CONFIG := build/config-$(TOOLKIT).mk

# help and clean must work where nothing is installed yet.
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
include $(CONFIG)
endif
$(CONFIG): FORCE
	@TOOLKIT='$(TOOLKIT)' THIRD_PARTY='$(THIRD_PARTY)' DEVICE='$(DEVICE)' common/make/configure.sh $@
FORCE:

ifdef DEVICE
device_reason := as DEVICE says
else ifdef GPU_ARCH
DEVICE := cuda
device_reason := $(GPU_NAME)
else
DEVICE := vgpu
device_reason := no GPU found
endif
ifeq ($(filter $(DEVICE),cuda vgpu),)
$(error DEVICE=$(DEVICE): say cuda or vgpu)
endif
ARCH ?= $(if $(filter vgpu,$(DEVICE)),sm_90,$(or $(GPU_ARCH),sm_90))
ifeq ($(filter sm_%,$(ARCH)),)
$(error ARCH=$(ARCH): say for example sm_86)
endif

# ---- flags ---------------------------------------------------------------------------------------

# SANITIZE=1: what g++ compiles, and the host's half of what nvcc compiles, under AddressSanitizer and
# UndefinedBehaviorSanitizer. Tables that live as long as the process are no leaks, and a program that
# a test compiles by itself meets the sanitizer only in libvgpu.so, later than it likes.
T := build/$(TOOLKIT_ID)$(if $(SANITIZE),-sanitize)
sanitize := $(if $(SANITIZE),-O1 -g1 -fno-omit-frame-pointer -fsanitize=address -fsanitize=undefined \
  -Wno-uninitialized -Wno-maybe-uninitialized)
D := $T/$(DEVICE)-$(ARCH)
H := $T/host
V := $T/vgpu

CXX := g++
third_party := $(if $(THIRD_PARTY),-isystem '$(THIRD_PARTY)')
includes := -Icommon $(third_party)
# GCC 12 warns of overlapping copies in its own std::string (GCC bug 105329).
warnings := -Wall -Wextra -Wno-restrict
# The same bits on every machine and no fused multiply-add behind the reference's back.
host_flags := -std=c++20 -O3 -march=native -ffp-contract=off -fopenmp $(warnings) $(includes) \
  -isystem '$(CUDA_INC)' -MMD -MP $(sanitize)

# PTX (what the virtual GPU executes) and machine code (registers, spills) of one architecture.
gencode = -gencode 'arch=$(1:sm_%=compute_%),code=[$(1:sm_%=compute_%),$1]'
nvcc_common := -std=c++20 -O3 -lineinfo $(includes)
nvcc_host := -Xcompiler -Wall,-Wextra,-Wno-restrict,-fopenmp -MMD -MP \
  $(if $(SANITIZE),-Xcompiler -fsanitize=address$(comma)-fsanitize=undefined$(comma)-fno-omit-frame-pointer)
libs_cuda := -L'$(CUDA_LIB)' -lcudart_static
libs_vgpu := -L$V -lvgpu -Wl,-rpath,'$$ORIGIN/../vgpu'
libs := -fopenmp -ldl -lrt -lpthread $(sanitize)

# ---- what there is -------------------------------------------------------------------------------

chapter_dirs := $(wildcard chapters/0[1-9]_*)
number = $(patsubst 0%,%,$(firstword $(subst _, ,$(notdir $1))))
chapters := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/main.cu),$(call number,$d)))
exercises := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/exercise.cu),$(call number,$d)))
chapter_tests := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/test.cu),$D/test_chapter$(call number,$d)))
# test_NAME.cu beside it is a program of its own: test_chapterN_NAME.
more_tests_cu := $(wildcard chapters/0[1-9]_*/test_*.cu)
more_test = $D/test_chapter$(call number,$(patsubst %/,%,$(dir $1)))_$(patsubst test_%.cu,%,$(notdir $1))
chapter_tests += $(foreach f,$(more_tests_cu),$(call more_test,$f))

# Three archives, so that a first `make chapter1` does not wait for what tests and graders need.
# An archive stands in front of those it needs when linked: graders, testing, lab.
testing_objects := $(patsubst %.cpp,$H/%.o,$(wildcard common/*test*.cpp))
grader_objects := $(patsubst %.cpp,$H/%.o,$(wildcard common/grader*.cpp))
lab_objects := $(filter-out $(testing_objects) $(grader_objects),\
  $(patsubst %.cpp,$H/%.o,$(wildcard common/*.cpp common/reference/*.cpp)))
lab_tests_cpp := $(wildcard common/tests/*.cpp)
lab_tests_cu := $(wildcard common/tests/*.cu)
lab_tests := $(if $(lab_tests_cpp),$D/lab_tests) $(lab_tests_cu:common/tests/%.cu=$D/lab_%)

include common/make/vgpu.mk
device_library := $(if $(filter vgpu,$(DEVICE)),$V/libvgpu.so $(vgpu_launcher) $(vgpu_links))

# ---- targets for people --------------------------------------------------------------------------

.PHONY: help deps clean test ptx-coverage compile-all ladder docs figures
help:
	@sed -n 's/^#> //p' Makefile

#> make chapter1        build chapter 1 and leave it as ./run      (make chapter1 && ./run)
#> make exercise1       build the exercise of chapter 1 and leave it as ./run
#> make test            build and run all tests
#> make test-gpu        only those of what runs on a GPU (ONLY='lab chapter7': some of them)
#> make fuzz            damaged inputs and random kernels under sanitizers, for FUZZ_SECONDS=60
#> make deps            install what is missing (everything below and above does it by itself)
#> make bench           measure the chapters on a GPU, into data/results
#>                      (PEERS=torch: and the same problems in PyTorch; it resumes, FRESH=1: all anew)
#> make bench DEVICE=vgpu          limits and counters of all chapters: the reference in data/results
#> make validate        the virtual GPU's counters beside Nsight Compute's, on a GPU
#> make ladder          chapters 1 to 6 at 197, 577 and 1025 tokens: data/results/<device>/ladder.json, .svg, .png
#> make docs figures    write the lessons' numbers and pictures anew
#>                      (docs, ladder, bench DEVICE=vgpu with CHECK=1: only compare the numbers)
#> make bench-vgpu      measure the virtual GPU itself
#> make ptx-coverage    show that the virtual GPU knows all instructions of all kernels
#> make compile-all     compile every chapter for sm_75 to sm_120
#> make clean           remove build/ and ./run (not .toolkit/)
#>
#> DEVICE=cuda|vgpu     a real GPU, or the virtual one on the CPU   (default: a real one if there is one)
#> ARCH=sm_86           architecture of the kernels                 (default: the GPU's; sm_90 for vgpu)
#> TOOLKIT=wheels       NVIDIA's wheels even where a CUDA Toolkit is installed
#> SANITIZE=1           (with make test) the host's code under AddressSanitizer and UBSan
#> TEST_TIMEOUT=300     (with make test) seconds that one test program may take (900)
#> FUZZ_SEED=n          (with make fuzz) the same inputs again
#> VERBOSE=1            the commands of compiler and linker, not only the files' names
#> THIRD_PARTY=dir      headers of doctest, stb, CLI11 and nlohmann-json from there

deps:
	@echo "deps: complete: $(TOOLKIT_ID) ($(NVCC)), $$($(CXX) --version | head -n 1)"

clean:
	rm -rf build run

define chapter_rules
.PHONY: chapter$1
chapter$1: $D/chapter$1 $(device_library)
	@ln -sfn $$< run
	@echo 'DEVICE=$(DEVICE) ($(device_reason)), $(ARCH), $(TOOLKIT_ID): ./run is $$<'
$D/chapter$1: $(patsubst %.cu,$D/%.o,$(wildcard chapters/0$1_*/main.cu))
$D/test_chapter$1: $(patsubst %.cu,$D/%.o,$(wildcard chapters/0$1_*/test.cu)) $H/libdoctest_main.a
endef
$(foreach n,$(chapters),$(eval $(call chapter_rules,$n)))
$(foreach f,$(more_tests_cu),$(eval $(call more_test,$f): $D/$(f:.cu=.o)))

# Grading needs the counters, so exercises always run on the virtual GPU. The program compiles the
# student's file itself, as grader.conf says: what does not compile is a result, not a failed make.
# With SOLUTION=1, ./run grades ours.
define exercise_rules
.PHONY: exercise$1
exercise$1: $V/tests/exercise$1 $V/tests/exercise$1-solution $V/tests/grader.conf
	@ln -sfn $$<$(if $(filter 1,$(SOLUTION)),-solution) run
	@echo './run grades $(wildcard chapters/0$1_*)/$(if $(filter 1,$(SOLUTION)),solution,exercise).cuh'
$V/tests/exercise$1: $(patsubst %.cu,$V/cu/%.o,$(wildcard chapters/0$1_*/exercise.cu))
endef
$(foreach n,$(exercises),$(eval $(call exercise_rules,$n)))
$(exercises:%=$V/tests/exercise%-solution): Makefile
	@mkdir -p $(@D)
	@printf '%s\n' '#!/bin/sh' 'here=$$(dirname "$$(readlink -f "$$0")")' \
	  'exec "$$here/$(@F:-solution=)" --solution "$$@"' >$@ && chmod +x $@
$V/tests/grader.conf: Makefile $(CONFIG)
	@mkdir -p $(@D)
	@printf '%s\n' 'nvcc $(NVCC)' \
	  $(foreach f,$(nvcc_common) $(call gencode,sm_90),"flag "$f) >$@

planned := 1 2 3 4 5 6 7 8
$(addprefix chapter,$(filter-out $(chapters),$(planned))) \
$(addprefix exercise,$(filter-out $(exercises),$(planned))):
	@echo '$@ is not there yet; there is: $(or $(chapters:%=chapter%) $(exercises:%=exercise%),no chapter)' >&2
	@exit 3

# Tests of the exercises run their programs.
exercise_tests_cpp := $(if $(exercises),$(wildcard common/tests/exercises/*.cpp chapters/*/test_exercise.cpp))
exercise_tests := $(if $(exercise_tests_cpp),$V/tests/exercise_tests)
$(exercise_tests): $(exercise_tests_cpp:%.cpp=$H/%.o) $H/libgrader.a $H/libtesting.a $H/liblab.a $H/libdoctest_main.a \
  | $(foreach n,$(exercises),$V/tests/exercise$n $V/tests/exercise$n-solution) $V/tests/grader.conf
	$(call link,-L$V -lvgpu -Wl$(comma)-rpath$(comma)'$$ORIGIN/..')

bench_tests := $(if $(shell command -v python3),common/bench/tests/all.py)
tests := data/check.sh $(bench_tests) $(lab_tests) $(chapter_tests)
# Without zstd and lz4, on a machine with a GPU that can install nothing, there is no virtual one.
ifneq ($(VGPU_LIBS),)
tests += $(vgpu_tests) $(exercise_tests)
test: $(vgpu_launcher) $(vgpu_links)
else
test: tests_left_out
.PHONY: tests_left_out
tests_left_out:
	@echo "no zstd and lz4 here: left out are the tests of the virtual GPU and of the exercises" >&2
endif
test: export NVCC := $(NVCC)
test: export NVCC_FLAGS := $(nvcc_common)
test: export TEST_TMP := $T/tmp
test: export BENCH_PROGRAMS := $(if $(filter vgpu-sm_90,$(DEVICE)-$(ARCH)),$D)
ifdef SANITIZE
test: export ASAN_OPTIONS := detect_leaks=0:verify_asan_link_order=0
test: export UBSAN_OPTIONS := halt_on_error=1:print_stacktrace=1
test: export TEST_TIMEOUT ?= 3600
endif
test: $(tests) $(chapters:%=$D/chapter%) $(device_library)
	@mkdir -p $T/tmp && common/make/run_tests.sh $(tests)

# matplotlib may be that of the system where python3 is another one.
python_plot = $(shell for p in python3 /usr/bin/python3; do \
  $$p -c 'import matplotlib' 2>/dev/null && echo $$p && break; done)

# All steps of attention over the tokens; CHECK=1 only compares with the committed file.
ladder_tokens := 197 577 1025
ladder_programs := $(addprefix $D/chapter,$(filter 1 2 3 4 5 6,$(chapters)))
docs_env := env -u VGPU_CACHE -u VGPU_CHECK -u VGPU_PROFILE -u VGPU_SCHEDULE -u VGPU_TRACE VGPU_DEVICE=h200
ladder: $(ladder_programs)
	@mkdir -p $T/docs
	@for n in $(ladder_tokens); do \
	  $(docs_env) $< --all --tokens $$n --json $T/docs/ladder_$$n.json; echo; done
	@'$(or $(python_plot),python3)' common/figures/ladder.py $(if $(CHECK),--check \
	  $(results)/ladder.json,$(results)/ladder.json $(results)/ladder) \
	  $(ladder_tokens:%=$T/docs/ladder_%.json)

# What the READMEs show comes from these runs, always of the virtual H200: neither numbers nor pictures
# depend on the machine.
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
lessons := $(foreach n,$(chapters),$(if $(wildcard chapters/0$n_*/README.md),$n))
# A lesson may want a second run, with the flags of its second block.
lesson_flags = $(shell sed -n 's/^<!-- counters:begin \(--.*\) -->$$/\1/p' chapters/0$1_*/README.md 2>/dev/null)
docs_results = $T/docs/chapter$1.json $(if $(call lesson_flags,$1),$T/docs/chapter$1-more.json)
docs: $(foreach n,$(lessons),$(call docs_results,$n))
	@$(if $(shell command -v python3),,echo 'make docs needs python3' >&2; exit 3;) \
	$(foreach n,$(lessons),python3 common/figures/refresh_counters.py $(if $(CHECK),--check) \
	  $(call docs_results,$n) chapters/0$n_*/README.md;) \
	python3 common/bench/front_page.py $(if $(CHECK),--check) README.md $(result_folders)
$T/docs/chapter%.json: $D/chapter% $V/libvgpu.so
	@mkdir -p $(@D)
	$(docs_env) $< --json $@ --out $(@:.json=.png) >$(@:.json=.log) || { cat $(@:.json=.log); exit 1; }
$T/docs/chapter%-more.json: $D/chapter% $V/libvgpu.so
	@mkdir -p $(@D)
	$(docs_env) $< $(call lesson_flags,$*) --json $@ >$(@:.json=.log) || { cat $(@:.json=.log); exit 1; }

include common/make/figures.mk
else
docs figures:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 $@
endif

include common/make/bench.mk

# PTX of everything for sm_90; chapters also in the oldest and in the newest dialect.
cu_files := $(wildcard chapters/*/*.cu common/bench/*.cu common/tests/*.cu common/vgpu/tests/*.cu)
ptx_files := $(cu_files:%.cu=$V/ptx/sm_90/%.ptx) \
  $(foreach a,sm_75 sm_100,$(patsubst %.cu,$V/ptx/$a/%.ptx,$(wildcard chapters/*/main.cu)))
ptx-coverage: $(if $(wildcard common/vgpu/tests/ptx_coverage.cc),$V/ptx-coverage $(ptx_files))
	@if [ -z '$<' ]; then echo 'make ptx-coverage is not there yet' >&2; exit 3; fi
	@$V/ptx-coverage $(ptx_files)

# ptxas runs for every architecture the course promises; nothing is linked.
all_archs := sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120
ARCHS ?= $(all_archs)
CHAPTERS ?= $(chapter_dirs)
all_cubins := $(foreach a,$(ARCHS),$(CHAPTERS:%=$T/cubin/$a/%/main.cubin))
compile-all: $(all_cubins)
	@for f in $^; do echo "compiled $${f#$T/cubin/}"; done

# $(call run,tool,file,command): one line a file, or with VERBOSE=1 the command.
run = $(if $(filter 1,$(VERBOSE)),,@printf '  %-5s %s\n' '$1' '$2'; )$3

# ---- rules for files -----------------------------------------------------------------------------
# Everything depends on the Makefile, for the flags that stand in it.

$H/%.o: %.cpp Makefile
	@mkdir -p $(@D)
	$(call run,g++,$<,$(CXX) $(host_flags) -c $< -o $@)

$H/liblab.a: $(lab_objects)
$H/libtesting.a: $(testing_objects)
$H/libgrader.a: $(grader_objects)
$H/liblab.a $H/libtesting.a $H/libgrader.a:
	@mkdir -p $(@D); rm -f $@
	@ar rcs $@ $^

# An archive member is taken only when main() is still missing, see the head of this file.
$H/libdoctest_main.a: Makefile
	@mkdir -p $(@D); rm -f $@
	@printf '%s\n' '#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN' '#include <doctest/doctest.h>' | \
	  $(CXX) -std=c++20 -O1 $(third_party) -x c++ -c - -o $H/doctest_main.o
	@ar rcs $@ $H/doctest_main.o

# Tests of the chapters run on a virtual T4 too.
$D/chapters/%/test.o $D/chapters/%/test_tensor.o $D/chapters/%/test_half.o: \
  also = $(if $(filter sm_75,$(ARCH)),,-gencode arch=compute_75,code=compute_75)
$D/%.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call run,nvcc,$<,'$(NVCC)' $(nvcc_common) $(nvcc_host) $(call gencode,$(ARCH)) $(also) -c $< -o $@ -MF $(@:.o=.d))

# $(call link,libraries): of all objects and then all archives among the prerequisites
define link
@mkdir -p $(@D)
$(call run,link,$@,$(CXX) $(filter %.o,$^) $(filter %.a,$^) $1 $(libs) -o $@)
endef

$(chapters:%=$D/chapter%): $H/liblab.a | $(device_library)
	$(call link,$(libs_$(DEVICE)))
$D/lab_tests: $(lab_tests_cpp:%.cpp=$H/%.o)
$(lab_tests_cu:common/tests/%.cu=$D/lab_%): $D/lab_%: $D/common/tests/%.o
$(lab_tests) $(chapter_tests): $H/libtesting.a $H/liblab.a $H/libdoctest_main.a | $(device_library)
	$(call link,$(libs_$(DEVICE)))

# $1 = sm_75, ...: PTX and machine code of any .cu
define arch_rules
$V/ptx/$1/%.ptx: %.cu Makefile
	@mkdir -p $$(@D)
	$$(call run,nvcc,$$< for $1,'$(NVCC)' $(nvcc_common) -arch=$(1:sm_%=compute_%) -ptx $$< -o $$@ -MMD -MP -MF $$@.d)
$T/cubin/$1/%.cubin: %.cu Makefile
	@mkdir -p $$(@D)
	$$(call run,nvcc,$$< for $1,'$(NVCC)' $(nvcc_common) -arch=$1 -cubin $$< -o $$@ -MMD -MP -MF $$@.d)
endef
$(foreach a,$(all_archs),$(eval $(call arch_rules,$a)))

# Header dependencies, as the compilers found them the last time.
ifdef TOOLKIT_ID
-include $(shell find $T -name '*.d' 2>/dev/null)
endif
