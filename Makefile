# A course in CUDA for vision. `make` alone lists what can be made.
#
# Where things go (TOOLKIT_ID is cuda-13.0.88 or wheels-13.0.88, DEVICE is cuda or vgpu):
#
#   .toolkit/                        NVIDIA's compiler wheels, only where they are needed
#   build/config-*.mk                what common/make/configure.sh found
#   build/TOOLKIT_ID-sanitize/...    the same again, of make SANITIZE=1
#   build/plain/                     objects of g++ that know no toolkit: reference/, most of vgpu/
#   build/TOOLKIT_ID/host/           other objects of g++: common/*.cpp, tests, and the doctest main()
#   build/TOOLKIT_ID/vgpu/           libvgpu.so, the launcher vgpu, its libraries in vgpu-lib/,
#                                    vgpu_tests and programs of common/vgpu/tests/*.cu in tests/
#   build/TOOLKIT_ID/ptx/ARCH/       PTX of the chapters' kernels, and machine code, for other architectures than ARCH
#   build/TOOLKIT_ID/DEVICE-ARCH/    objects of nvcc, the programs chapterN, test_chapterN, lab_tests, and
#                                    libvision_operators.so with its operators_tests
#   build/vgpu, build/vgpu-lib       links to the newest of those above
#   build/operators/                 links to the newest libvision_operators.so of each device
#   ./run                            link to the newest program
#
# Every choice that changes an object is in its path, so switching never meets a stale object.
#
# What a source file may rely on: include paths common/ and third party (<doctest/doctest.h>,
# <stb/stb_image.h>, <CLI/CLI.hpp>, <nlohmann/json.hpp>). Test programs run in the repository root.
# All *.cpp of a tests/ folder are linked into one program, each *.cu is one of its own. No test file
# needs a main(): doctest's comes from an archive, and one that a file brings itself wins.
# What a test needs of the toolkit when it runs it finds in its environment, as test_environment says.

SHELL := /bin/bash
comma := ,
space := $() $()
# What older ones lack would be told in odd words much later: rules with several targets, wait -n -p.
ifeq ($(filter grouped-target,$(.FEATURES)),)
$(error this is GNU Make $(MAKE_VERSION), and the course needs 4.3 or newer)
endif
ifneq ($(shell echo $$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501))),1)
$(error $(SHELL) is version $(shell echo "$$BASH_VERSION"), and the course needs 5.1 or newer)
endif
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

# ---- chapters, and what can be asked for ---------------------------------------------------------

chapter_dirs := $(sort $(wildcard chapters/[0-9][0-9]_*))
number = $(patsubst 0%,%,$(firstword $(subst _, ,$(notdir $1))))
folder_of = $(filter chapters/0$1_% chapters/$1_%,$(chapter_dirs))
chapters := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/main.cu),$(call number,$d)))
exercises := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/exercise/exercise.cu),$(call number,$d)))

# What is asked for and is not there is answered before anything is installed or built.
one_of = $(if $(filter 1,$(words $1)),$(filter $2,$1))
$(foreach goal,$(filter-out $(chapters:%=chapter%) chapters/%,$(filter chapter%,$(MAKECMDGOALS))),\
  $(error $(goal): there is no such chapter; there are: $(or $(chapters:%=chapter%),none at all)))
$(foreach goal,$(filter-out $(exercises:%=exercise%),$(filter exercise%,$(MAKECMDGOALS))),\
  $(error $(goal): there is no such exercise; there are: $(or $(exercises:%=exercise%),none at all)))
ifeq ($(if $(TOOLKIT),$(call one_of,$(TOOLKIT),auto wheels),auto),)
$(error TOOLKIT=$(TOOLKIT): must be auto (the system's CUDA Toolkit if it will do) or wheels)
endif
ifdef DEVICE
ifeq ($(call one_of,$(DEVICE),cuda vgpu),)
$(error DEVICE=$(DEVICE): must be cuda (a real GPU) or vgpu (the virtual one))
endif
endif
# What is given and is neither a switch nor a number is refused now, not when a long build has ended.
$(foreach v,DEVICE ARCH,$(if $(filter command,$(firstword $(origin $v))),$(if $(strip $($v)),,\
  $(error $v= is empty: leave it out, and what suits the machine is taken))))
switches := ALL CHECK FRESH QUICK SANITIZE SOLUTION VERBOSE
$(foreach v,$(switches),$(if $(filter command,$(firstword $(origin $v))),$(if $(filter-out 0 1,$($v)),\
  $(error $v=$($v): must be 1, or 0, which is the same as nothing))))
$(foreach v,$(switches),$(if $(filter 0,$($v)),$(eval override $v :=)))
$(foreach v,FUZZ_SECONDS FUZZ_SEED MINUTES ROUNDS,$(if $($v),$(if $(shell [[ '$($v)' =~ ^[0-9]+([.][0-9]+)?$$ ]] && \
  echo yes),,$(error $v=$($v): must be a number))))
$(if $(findstring %,$(ONLY)),$(error ONLY=$(ONLY): no name has a % in it))
# Whether the toolkit has it is asked further below, where the toolkit is known.
ifdef ARCH
ifeq ($(call one_of,$(ARCH),sm_%),)
$(error ARCH=$(ARCH): must be one architecture as nvcc writes it, for example sm_86)
endif
endif

# help and clean must work where nothing is installed yet.
ifneq ($(filter-out help clean format,$(MAKECMDGOALS)),)
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
default_arch := $(if $(filter vgpu,$(DEVICE)),sm_90,$(or $(GPU_ARCH),sm_90))
ARCH ?= $(default_arch)
# All that the course promises are in every toolkit that it takes; of others, the toolkit is asked.
all_archs := sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120
ifdef TOOLKIT_ID
ifeq ($(filter $(all_archs),$(ARCH)),)
archs := $(filter-out sm_5% sm_6% sm_70 sm_72,$(shell '$(NVCC)' --list-gpu-code 2>/dev/null))
# 'a': with what that architecture alone has.
with_a := $(patsubst %,%a,$(filter-out sm_7% sm_8%,$(archs)))
ifeq ($(filter $(ARCH),$(archs) $(with_a)),)
ifneq ($(archs),)
$(error ARCH=$(ARCH): with this toolkit ($(TOOLKIT_ID)) it must be one of $(archs) $(with_a))
endif
endif
endif
endif

# ---- flags ---------------------------------------------------------------------------------------

# SANITIZE=1: what g++ compiles, and the host's half of what nvcc compiles, under AddressSanitizer and
# UndefinedBehaviorSanitizer. Tables that live as long as the process are no leaks, and a program that
# a test compiles by itself meets the sanitizer only in libvgpu.so, later than it likes.
# (The checkout's own path may hold spaces, so make's functions for paths only see what lies below it.)
absolute = $(if $(filter /%,$1),$1,$(CURDIR)/$1)
toolkit_bin := $(call absolute,$(patsubst %/,%,$(dir $(NVCC))))
toolkit_ptxas := $(toolkit_bin)/ptxas
T := build/$(TOOLKIT_ID)$(if $(SANITIZE),-sanitize)
sanitize := $(if $(SANITIZE),-O1 -g1 -fno-omit-frame-pointer -fsanitize=address -fsanitize=undefined \
  -Wno-uninitialized -Wno-maybe-uninitialized)
P := build/plain$(if $(SANITIZE),-sanitize)
D := $T/$(DEVICE)-$(ARCH)
H := $T/host
V := $T/vgpu

third_party := $(if $(THIRD_PARTY),-isystem '$(THIRD_PARTY)')
includes := -Icommon $(third_party)
# GCC 12 warns of overlapping copies in its own std::string (GCC bug 105329); 13 and 14 of references that do not dangle,
# where a function has a temporary among its arguments.
warnings := -Wall -Wextra -Wno-restrict -Wno-dangling-reference
# Where the system's g++ is too new for nvcc, all that calls nvcc, tests as well, has it take the older one.
ifneq ($(filter-out g++,$(CXX)),)
export NVCC_CCBIN := $(CXX)
endif
# GCC's own garbage collection costs more than the memory that it gives back: up to a tenth of a file's time.
keep_garbage := --param ggc-min-heapsize=524288
# The same bits on every machine and no fused multiply-add behind the reference's back.
plain_flags = -std=c++20 $(optimize) $(keep_garbage) -march=native -ffp-contract=off -fopenmp $(warnings) $(includes) \
  -MMD -MP $(sanitize)
host_flags = $(plain_flags) -isystem '$(CUDA_INC)'

# PTX (what the virtual GPU executes) and machine code (registers, spills) of one architecture.
gencode = -gencode 'arch=$(1:sm_%=compute_%),code=[$(1:sm_%=compute_%),$1]'
# PTX alone, $1 = compute_75. Lines of the source are in no code that is only checked or counted: they change no
# instruction and are a tenth of the work.
to_ptx = '$(NVCC)' $(filter-out -lineinfo,$(nvcc_common)) -gencode arch=$1$(comma)code=$1
# (-O is for the host's half of a .cu; kernels are always optimized as far as it goes.)
nvcc_common := -std=c++20 -O1 -lineinfo $(if $(filter-out g++,$(CXX)),-ccbin $(CXX)) $(includes)
nvcc_host := -Xcompiler -fopenmp$(subst $(space),,$(warnings:%=$(comma)%)) -MMD -MP \
  $(if $(SANITIZE),-Xcompiler -fsanitize=address$(comma)-fsanitize=undefined$(comma)-fno-omit-frame-pointer)
libs_cuda := -L'$(CUDA_LIB)' -lcudart_static
libs_vgpu := -L$V -lvgpu -Wl,-rpath,'$$ORIGIN/../vgpu'
libs := -fopenmp -ldl -lrt -lpthread $(sanitize)

include common/make/units.mk

# ---- what there is -------------------------------------------------------------------------------

# A chapter's tests/test.cu is the program test_chapterN, a test_NAME.cu beside it test_chapterN_NAME.
all_tests_cu := $(wildcard $(chapter_dirs:%=%/tests/test.cu)) $(wildcard $(chapter_dirs:%=%/tests/test_*.cu))
chapter_of = $(patsubst %/tests/,%,$(dir $1))
test_of = $D/test_chapter$(call number,$(call chapter_of,$1))$(patsubst test%.cu,%,$(notdir $1))
chapter_tests := $(foreach f,$(all_tests_cu),$(call test_of,$f))

# SUITE=toolkit: of each way to call the compiler one case, `TEST_CASE("..." * doctest::test_suite("toolkit"))`.
# Each file that calls it has one, and each program, of which one without a case counts as failed. With
# ONLY=toolkit one chapter's program is enough for a way that several share. Only what these cases need is
# built, on a machine where nothing is yet.
SUITE ?=
ifneq ($(filter-out toolkit,$(SUITE)),)
$(error SUITE=$(SUITE): there is one suite: toolkit)
endif
# $(call in_suite,files): those with a case that runs
in_suite = $(if $(SUITE),$(shell grep -l 'doctest::test_suite("$(SUITE)")' $1),$1)

# A folder's *.cpp belong to what it is, those of a chapter's tests/ and test_*.cpp elsewhere to its tests; a
# reference.cpp is plain C++ that knows no toolkit. So it is in chapters that bring more than kernels, and in the rooms
# of common/. Another folder in a chapter's is a part of it, whose kernels lie beside it and whose tests in tests/:
# kernels_NAME.cu, tests/test_NAME.cu.
code_of = $(filter-out %/reference.cpp $1/test_% $1/tests/%,$(wildcard $1/*.cpp $1/*/*.cpp))
test_code_of = $(filter-out %/test_exercise.cpp,$(wildcard $1/test_*.cpp $1/tests/test_*.cpp))
objects_of = $(patsubst %.cpp,$H/%.o,$(call units,$(call code_of,$1))) \
  $(patsubst %.cpp,$P/%.o,$(wildcard $1/reference.cpp $1/*/reference.cpp)) $(objects_taken_by_$1)
test_objects_of = $(patsubst %.cpp,$H/%.o,$(call units,$(call test_code_of,$1)))
chapter_objects := $(foreach d,$(chapter_dirs),$(call objects_of,$d))
# kernels*.cu: what a chapter compiles once, for its program and all its tests.
kernels_in = $(patsubst %.cu,$2/%.o,$(wildcard $1/kernels*.cu))
# A .cu of a chapter that includes no .cuh has no device code: the host's compiler alone reads it, in a third of
# the time. So it is with all exercises. (lab.cuh and attention's launch.cuh have none either.)
chapters_cu := $(wildcard $(foreach d,$(chapter_dirs),$d/*.cu $d/tests/*.cu $d/exercise/*.cu))
host_only_cu := $(filter-out $(shell awk '/<<<|^\#include .*\.cuh"/ && !/(common\/lab|attention\/launch)\.cuh"/ \
  { print FILENAME; nextfile }' /dev/null $(chapters_cu)),$(chapters_cu))
# (This one has device code in texts alone, which it has compiled when it runs.)
host_only_cu += common/vgpu/tests/time_programs.cu
# Tests of a virtual T4 need code for sm_75. A test whose kernels are all in its own file has it there, beside that
# for ARCH; one with kernels in kernels*.cu has it in a twin of the test program, NAME_t4.
t4_tests_cu := $(filter-out $(host_only_cu),$(shell grep -l check_on_t4 $(all_tests_cu)))
# No case of the suite has one.
t4_twin_of := $(if $(filter vgpu,$(DEVICE)),$(if $(SUITE),,$(shell grep -l check_twin_on_t4 $(all_tests_cu))))
# The folder of a twin's objects: with ARCH=sm_75 they are the test's own.
t4 := $(if $(filter sm_75,$(ARCH)),$D,$D/t4)

# Archives, so that a first `make chapter1` does not wait for what tests and graders need. An archive
# stands in front of those it needs when linked: graders, testing, lab.
grader_objects := $(call objects_of,common/grader)
testing_objects := $(sort $(call objects_of,common/testing) $(call test_objects_of,common/attention))
# (json/ is in libvgpu.so, too.)
json_objects := $(patsubst %.cpp,$P/%.o,$(call units,$(wildcard common/json/*.cpp)))
lab_objects := $(call objects_of,common/attention) $(call objects_of,common/lab) $(json_objects)
test_archives := $H/libtesting.a $H/liblab.a $H/libdoctest_main.a

# A build takes longer than what it builds, so -O3 is only for what programs spend their time in:
# the executor, the references, loops over tensors. (The simulated SM takes a third longer to compile with
# -O3 and predicts 4 % quicker; the checks take half as long again, and a program with all of them on is
# 2 to 7 % quicker.)
optimize := -O1
$(filter %/reference.o %/problem.o %/style.o,$(chapter_objects)) $P/common/attention/reference.o \
$P/common/vgpu/core/%.o $P/common/vgpu/ops/%.o \
$H/common/lab/group_values.o $H/common/grader/cases.o: optimize := -O3
$H/common/lab/group_flags.o $H/common/grader/main.o: optimize := -O0
# Of what a first build compiles, what runs a few times a program, a launch or an instruction of the text:
# a fifth less work for the compiler than -O1, half as much as -O3.
seldom_run := $V/common/vgpu/group_runtime.o $P/common/vgpu/group_programs.o $P/common/json/group.o \
  $H/common/lab/group.o
$(seldom_run) $(filter %/program.o %/options.o %/input.o %/report.o %/group_programs.o,$(chapter_objects)): \
  optimize := -Og
# Tests wait for what they start and compute little themselves, but for those that compare many values.
computing_tests := $(wildcard common/vgpu/tests/lane_*.cpp common/vgpu/tests/profile_coalescing.cpp \
  $(addprefix common/vgpu/tests/forms_,approximations.cpp planted.cpp random.cpp))
waiting_tests := $(wildcard common/lab/tests/*.cpp common/lab/tests/*/*.cpp common/grader/tests/*.cpp common/testing/*.cpp) \
  $(foreach d,$(chapter_dirs) common/attention,$(call test_code_of,$d) $(wildcard $d/tests/test_exercise.cpp))
waiting_vgpu_tests := $(filter-out $(computing_tests),$(wildcard common/vgpu/tests/*.cpp))
$(patsubst %.cpp,$H/%.o,$(waiting_tests) $(call units,$(waiting_tests))) \
$(patsubst %.cpp,$V/%.o,$(waiting_vgpu_tests) $(call units,$(waiting_vgpu_tests))): optimize := -Og
lab_tests_cpp := $(wildcard common/lab/tests/*.cpp)
lab_tests_cu := $(wildcard common/tile/tests/*.cu)
bad_input_cpp := $(wildcard common/lab/tests/bad_input/*.cpp)
lab_tests := $(if $(lab_tests_cpp),$D/lab_tests) $(lab_tests_cu:common/tile/tests/%.cu=$D/lab_%) \
  $(if $(bad_input_cpp),$D/bad_input_tests)

# One case of the newest step of each chapter from 2 on, without the other steps' kernels.
newest_cu := $(wildcard $(chapter_dirs:%=%/tests/newest.cu))
newest_tests := $(if $(newest_cu),$D/newest_tests)

include common/make/vgpu.mk
include common/make/operators.mk
device_library := $(if $(filter vgpu,$(DEVICE)),$V/libvgpu.so)

# ---- targets for people --------------------------------------------------------------------------

PART ?=
.PHONY: help deps clean format alone test ptx-coverage compile-all ladder docs figures
help:
	@sed -n 's/^#> //p' Makefile

#> make chapter1        build chapter 1 and leave it as ./run      (make chapter1 && ./run)
#> make exercise1       build the exercise of chapter 1 and leave it as ./run
#> make test            build and run the tests that show that the course works on this machine, in minutes
#> make test ALL=1      build and run all tests (ONLY='lab chapter7 runtime_process': some of them;
#>                      ONLY=toolkit: those that call its compiler when they run; SUITE=toolkit: and of
#>                      these one case for each way in which they call it; with ONLY=toolkit
#>                      each way once)
#> make test-gpu        only those of what runs on a GPU (ONLY as above)
#> make fuzz            damaged inputs and random kernels under sanitizers, for FUZZ_SECONDS=60
#> make deps            install what is missing (everything below and above does it by itself)
#> make bench           measure the chapters on a GPU, into data/results
#>                      (PEERS=torch: and the same problems in PyTorch; it resumes, FRESH=1: all anew;
#>                      MINUTES=25: what is worth most, in that time)
#> make bench-dry       rehearse all of that without a GPU (PEERS=torch: with PyTorch on the CPU)
#> make bench DEVICE=vgpu          predicted times, limits and counters of all chapters: the reference
#>                      in data/results, with what each step bought at sizes that matter
#> make mutants         plant mistakes in kernels and in the virtual GPU: which of them no test sees
#> make validate        the virtual GPU's counters and times beside Nsight Compute's, on a GPU
#> make calibrate       on a GPU: measure the constants of predicted times, each beside the model's
#>                      (DEVICE=vgpu: the virtual GPU must give them back; ONLY=l2: those that begin so)
#> make ladder          chapters 1 to 6, 13 and 14 at 197, 577 and 1025 tokens: data/results/<device>/ladder.json, .svg, .png
#>                      (virtual GPU: and prints what steps gain at sizes that matter, predicted)
#> make published       predicted kernel times beside those that others published: the errors, the picture
#> make docs figures    write the lessons' numbers and pictures anew
#>                      (docs, ladder, bench DEVICE=vgpu with CHECK=1: only compare the numbers)
#> make operators       the chapters' kernels as a library of C functions, and for PyTorch and NumPy
#>                      (common/operators/README.md)
#> make vgpu            the virtual GPU for other CUDA programs: build/vgpu ./program
#> make bench-vgpu      measure the virtual GPU itself
#> make ptx-coverage    show that the virtual GPU knows all instructions of all kernels
#> make compile-all     compile every chapter for sm_75 to sm_120; no kernel may spill registers there
#> make alone           compile each file by itself, with the newest g++ at hand (PART=2/5: every fifth file)
#> make format          write C++ and CUDA as .clang-format says (CHECK=1: only compare)
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

alone: $P/generated/devices.inc $P/generated/look_page.html $(addprefix $V/generated/,cuda12.inc driver_names.inc driver_errors.inc)
	@NVCC='$(NVCC)' CUDA_INC='$(CUDA_INC)' CXX='$(CXX)' PLAIN_GENERATED='$P/generated' VGPU_GENERATED='$V/generated' \
	  common/make/each_alone.sh $(PART)

format:
	@common/make/format.sh $(if $(CHECK),--check)

define chapter_rules
.PHONY: chapter$1
main_of_$1 := $(patsubst %.cu,$D/%.o,$(wildcard $(call folder_of,$1)/main.cu)) \
  $(call kernels_in,$(call folder_of,$1),$D)
# (nvcc starts first: it takes long.)
chapter$1: $$(main_of_$1) $D/chapter$1 $(device_library)
	@ln -sfn $D/chapter$1 run
	@echo 'DEVICE=$(DEVICE) ($(device_reason)), $(ARCH), $(TOOLKIT_ID): ./run is $D/chapter$1'
$D/chapter$1: $$(main_of_$1) $(call objects_of,$(call folder_of,$1))
endef
$(foreach n,$(chapters),$(eval $(call chapter_rules,$n)))
# $(call test_rule,program,its .cu,folder of its nvcc objects). What a test_NAME.cu needs of the chapter is
# taken from an archive: no other file's test cases.
define test_rule
$1: $3/$(2:.cu=.o) $(call kernels_in,$(call chapter_of,$2),$3) $(if $(filter %/test.cu,$2),\
  $(call test_objects_of,$(call chapter_of,$2)) $(call objects_of,$(call chapter_of,$2)),\
  $H/$(call chapter_of,$2)/libchapter.a)
endef
$(foreach f,$(all_tests_cu),$(eval $(call test_rule,$(call test_of,$f),$f,$D)))
$(foreach f,$(t4_twin_of),$(eval $(call test_rule,$(call test_of,$f)_t4,$f,$(t4))) \
  $(eval $(call test_of,$f): | $(call test_of,$f)_t4))
define chapter_archive
$H/$1/libchapter.a: $(call test_objects_of,$1) $(call objects_of,$1)
endef
$(foreach d,$(chapter_dirs),$(eval $(call chapter_archive,$d)))

# Grading needs the counters, so exercises always run on the virtual GPU. The program compiles the
# student's file itself, as grader.conf says: what does not compile is a result, not a failed make.
# With SOLUTION=1, ./run grades ours.
define exercise_rules
.PHONY: exercise$1
exercise$1: $V/tests/exercise$1 $V/tests/exercise$1-solution $V/tests/grader.conf $V/tests/student_host
	@ln -sfn $$<$(if $(filter 1,$(SOLUTION)),-solution) run
	@echo './run grades $(call folder_of,$1)/exercise/$(if $(filter 1,$(SOLUTION)),solution,exercise).cuh'
# (What runs a chapter's own kernels is no part of its exercise.)
$V/tests/exercise$1: $(patsubst %.cu,$V/cu/%.o,$(wildcard $(call folder_of,$1)/exercise/exercise.cu)) \
  $(filter-out $(not_in_exercises),$(call objects_of,$(call folder_of,$1)))
endef
$(foreach n,$(exercises),$(eval $(call exercise_rules,$n)))
$(exercises:%=$V/tests/exercise%-solution): %-solution: Makefile | % $V/tests/grader.conf $V/tests/student_host
	@mkdir -p $(@D)
	@printf '%s\n' '#!/bin/sh' 'here=$$(dirname "$$(readlink -f "$$0")")' \
	  'exec "$$here/$(@F:-solution=)" --solution "$$@"' >$@ && chmod +x $@
# What a student's host code runs in: it has CUDA's functions for the library that it loads.
$V/tests/student_host: $V/common/grader/host.o
	$(call link,-rdynamic)
$V/tests/grader.conf: Makefile $(CONFIG)
	@mkdir -p $(@D)
	@printf '%s\n' 'nvcc $(NVCC)' \
	  $(foreach f,$(nvcc_common) $(call gencode,sm_90),"flag "$f) >$@

# Tests of the exercises and of their grader run the exercises' programs.
grader_tests_dir := common/grader/tests
exercise_tests_cpp := $(if $(exercises),$(wildcard chapters/*/tests/test_exercise.cpp) $(grader_tests_dir)/support.cpp)
grader_tests_cpp := $(if $(exercises),$(wildcard $(grader_tests_dir)/*.cpp))
exercise_tests := $(if $(exercises),$V/tests/exercise_tests $V/tests/grader_tests)
$V/tests/exercise_tests: $(patsubst %.cpp,$H/%.o,$(call units,$(exercise_tests_cpp)))
$V/tests/grader_tests: $(patsubst %.cpp,$H/%.o,$(call units,$(grader_tests_cpp)))
# (The grader's own cases in the suite grade exercise 1.)
exercises_tested := $(if $(SUITE),$(filter $(sort 1 $(foreach f,$(call in_suite,$(wildcard chapters/*/tests/test_exercise.cpp)), \
  $(call number,$(call chapter_of,$f)))),$(exercises)),$(exercises))
$(exercise_tests): $H/libgrader.a $(test_archives) \
  | $(foreach n,$(exercises_tested),$V/tests/exercise$n $V/tests/exercise$n-solution) $V/tests/grader.conf \
    $V/tests/student_host
	$(call link,-L$V -lvgpu -Wl$(comma)-rpath$(comma)'$$ORIGIN/..')

# The page of --look, in a browser, made of objects by hand. (One of chapter 3 is a test of common/workshop/bench.)
look_tests := $(if $(shell command -v python3),common/vgpu/look/tests/all.py)
python_tests := $(if $(shell command -v python3),common/workshop/bench/tests/all.py common/workshop/mutants/tests/all.py) \
  $(look_tests) $(operators_python)
# Longest first, so that none runs alone at the end: exercises and the grader compile most, the tests of
# bench and those of bad input run all programs; then come the chapters, the last ones before the first.
last_first = $(if $1,$(call last_first,$(wordlist 2,$(words $1),$1)) $(firstword $1))
tests :=
# Without zstd and lz4, on a machine with a GPU that can install nothing, there is no virtual one.
ifneq ($(VGPU_LIBS),)
tests += $(exercise_tests)
test: $(vgpu_launcher) $(vgpu_links)
else
test: tests_left_out
.PHONY: tests_left_out
tests_left_out:
	@echo "no zstd and lz4 here: left out are the tests of the virtual GPU and of the exercises" >&2
endif
long_tests := $(if $(VGPU_LIBS),$(filter $(vgpu_tests_program) $V/tests/time_programs,$(vgpu_tests))) \
  $(filter $D/bad_input_tests,$(lab_tests))
tests += $(python_tests) $(long_tests) $(call last_first,$(chapter_tests)) $(newest_tests) \
  $(filter-out $(long_tests),$(lab_tests) $(if $(VGPU_LIBS),$(vgpu_tests))) $(operators_tests) \
  common/make/check_words.sh data/check.sh

# What a test may need of the toolkit when it runs, the system's or the wheels': its compiler, the flags
# of this project, the folder of its libraries, a folder for files. Paths are absolute, since a test may
# call the compiler in another folder. (private: the same variables mean other things to the rules.)
test test-gpu: private export NVCC := $(call absolute,$(NVCC))
test test-gpu: private export NVCC_FLAGS := \
  $(patsubst -Icommon,-I'$(CURDIR)/common',$(nvcc_common))
test test-gpu: private export CUDA_LIB := $(call absolute,$(CUDA_LIB))
test test-gpu: private export VGPU_PTXAS := $(or $(VGPU_PTXAS),$(if $(wildcard $(dir $(NVCC))ptxas),$(toolkit_ptxas)))
test test-gpu: private export TEST_TMP := $(CURDIR)/$T/tmp
test test-gpu: export TEST_SUITE := $(SUITE)
# One GPU is for one program at a time.
test test-gpu: export TEST_JOBS ?= $(if $(filter cuda,$(DEVICE)),1,3)
test: export BENCH_PROGRAMS = $(if $(quick),,$(if $(filter vgpu-sm_90,$(DEVICE)-$(ARCH)),$D))
ifdef SANITIZE
test: export ASAN_OPTIONS := detect_leaks=0:verify_asan_link_order=0
test: export UBSAN_OPTIONS := halt_on_error=1:print_stacktrace=1
test: export TEST_TIMEOUT ?= 3600
endif

# ONLY='lab chapter7' chooses some programs, where commands may not take long. The word `toolkit` means
# all that call its compiler when they run: grader, planted bugs, what includes toolkit.h.
ONLY ?=
calls_toolkit := $(shell grep -lE '\bMutants\b|"(planted_bugs|toolkit)\.h"' \
  $(all_tests_cu) $(lab_tests_cpp) $(lab_tests_cu) $(vgpu_tests_cpp) $(vgpu_tests_cu))
# The chapters' call it through functions of common/testing, each with a command of its own: with SUITE=toolkit
# the first file that has a case of each, "Mutants:chapters/01_naive_attention/tests/test.cu".
ways_of_chapters := Mutants check_load_groups
cases_of_ways := $(if $(SUITE),$(shell \
  awk -v functions='$(ways_of_chapters)' -f common/make/ways.awk $(all_tests_cu) /dev/null))
chapter_files_calling := $(if $(SUITE),$(sort $(foreach c,$(cases_of_ways),$(lastword $(subst :, ,$c)))),\
  $(filter $(all_tests_cu),$(calls_toolkit)))
toolkit_tests := \
  $(foreach f,$(chapter_files_calling),$(call test_of,$f)) \
  $(if $(filter $(lab_tests_cpp),$(calls_toolkit)),$D/lab_tests) \
  $(patsubst common/tile/tests/%.cu,$D/lab_%,$(filter $(lab_tests_cu),$(calls_toolkit))) \
  $(if $(filter $(vgpu_tests_cpp),$(calls_toolkit)),$(vgpu_tests_program)) \
  $(patsubst common/vgpu/tests/%.cu,$V/tests/%,$(filter $(vgpu_tests_cu),$(calls_toolkit))) \
  $(exercise_tests)
ifdef SUITE
$(foreach w,$(ways_of_chapters),$(if $(filter $w:%,$(cases_of_ways)),,\
  $(error SUITE=toolkit: no chapter has a case of that suite with $w)))
$(foreach f,$(filter-out $(call in_suite,$(calls_toolkit)),$(calls_toolkit)),\
  $(error SUITE=toolkit: $f calls the compiler and has no case of that suite))
endif
# What a program is called in ONLY: its file, a script its path.
test_name = $(patsubst $D/%,%,$(patsubst $V/%,%,$(patsubst $V/tests/%,%,$(patsubst $V/$(SUITE)/%,%,$1))))
all_names = $(foreach t,$(tests),$(call test_name,$t))
# $(call begun,word,names): names that are the word or begin with it and _ (test_ in front may be left
# out); where there is none, all that begin with it: `chapter1` is not chapter 10.
begun = $(or $(filter $1 $1_% test_$1 test_$1_%,$2),$(filter $1% test_$1%,$2))
# $(call chosen,tests): those that ONLY names, scripts by their path.
chosen = $(if $(ONLY),$(strip $(foreach t,$1,$(if $(or $(filter $(call test_name,$t),$(names_chosen)), \
  $(if $(filter toolkit,$(ONLY)),$(filter $t,$(toolkit_tests)))),$t))),$1)
names_chosen = $(foreach w,$(filter-out toolkit,$(ONLY)),$(call begun,$w,$(all_names)))
# Elsewhere ONLY means other things; and what there is, is known when the toolkit is.
ifneq ($(if $(TOOLKIT_ID),$(filter test test-gpu,$(MAKECMDGOALS))),)
$(foreach w,$(filter-out toolkit,$(ONLY)),$(if $(call begun,$w,$(all_names)),,\
  $(error ONLY=$w: no test program is called so or begins so; there are: toolkit $(all_names))))
endif
# Without ALL=1, ONLY or SUITE: what a user's machine can break, done in minutes. The virtual GPU, the lab, chapters 0
# and 1, a case of each other chapter's newest step, the grader with our solution of exercise 1, tools. Of these
# the cases in the suite `programs` start programs of other chapters, which are not built.
ALL ?=
quick := $(if $(strip $(ALL) $(ONLY) $(SUITE)),,yes)
quick_tests := $(filter $(newest_tests) $(vgpu_tests_program) $(addprefix $V/tests/runtime_,launch memory streams) \
  $(filter-out $D/bad_input_tests,$(lab_tests)) $D/test_chapter0 $D/test_chapter1 $(python_tests) data/check.sh,\
  $(filter-out $(operators_python),$(tests))) $(if $(VGPU_LIBS),$(addprefix $V/tests/,$(filter exercise1-solution,\
  $(exercises:%=exercise%-solution))))
tests_chosen = $(if $(quick),$(quick_tests),$(call chosen,$(tests)))
test: private export TEST_QUICK := $(quick)
ifdef quick
test: private export TEST_LEFT_OUT := $(words $(filter-out $(quick_tests),$(tests))) of $(words $(tests)) test programs: all \
  cases of chapters 2 to 16 but one each, bad input, the operators, most exercises, the lessons' links and words; and \
  cases that need programs of all chapters. They run with make test ALL=1, or some of them with ONLY
endif

# The programs that tests start: chapters' tests name theirs, three start those of all chapters.
starts_all := $(if $(quick),,$D/lab_tests $D/bad_input_tests common/workshop/bench/tests/all.py)
names_in_tests := $(shell grep -oE '"chapter[0-9]+' $(wildcard chapters/*/tests/test*.cu chapters/*/tests/test*.cpp) /dev/null)
programs_of = $(if $(filter $(starts_all),$1),$(chapters:%=$D/chapter%),$(patsubst $D/test_chapter%,$D/chapter%,\
  $(foreach t,$(filter $D/lab_tests,$1),$D/chapter1) $(foreach d,$(chapter_dirs),$(if $(filter $D/test_chapter$(call \
  number,$d) $D/test_chapter$(call number,$d)_%,$1),$(addprefix $D/,$(subst ",,$(patsubst $d/%,%,$(foreach n,\
  $(filter $d/%,$(names_in_tests)),$d/$(lastword $(subst :, ,$n))))))))))
# The newest chapters take longest to compile: they start first, so that none is alone at the end.
backwards = $(if $1,$(call backwards,$(wordlist 2,$(words $1),$1)) $(firstword $1))
test: $(if $(SUITE),,$(call backwards,$(sort $(call programs_of,$(tests_chosen))))) $(tests_chosen) $(device_library)
	@mkdir -p $T/tmp && common/make/run_tests.sh $(tests_chosen)

# matplotlib may be that of the system where python3 is another one. Asked once, and only where used.
find_python_plot = $(shell for p in python3 /usr/bin/python3; do \
  $$p -c 'import matplotlib' 2>/dev/null && echo $$p && break; done)
python_plot = $(eval python_plot := $(find_python_plot))$(python_plot)

# All steps of attention over the tokens; CHECK=1 only compares with the committed file.
ladder_tokens := 197 577 1025
ladder_programs := $(addprefix $D/chapter,$(filter 1 2 3 4 5 6 13 14,$(chapters)))
# Predicted times follow from the machine code of this ptxas, whichever the machine has beside it.
# (Threads of OpenMP that wait leave the cores to the other runs.)
docs_env := env -u VGPU_CACHE -u VGPU_CHECK -u VGPU_PROFILE -u VGPU_SCHEDULE -u VGPU_TIME \
  -u VGPU_TIMELINE -u VGPU_TIME_ROUNDS -u VGPU_TRACE VGPU_DEVICE=h200 OMP_WAIT_POLICY=passive \
  VGPU_PTXAS='$(toolkit_ptxas)'
ladder: $(ladder_programs)
	@mkdir -p $T/docs
	@for n in $(ladder_tokens); do \
	  $(docs_env) $< --all --tokens $$n --json $T/docs/ladder_$$n.json; echo; done
	@$(foreach run,$(ladder_predicted),$(docs_env) $D/$(subst _, ,$(run)) && echo &&) true
	@'$(or $(python_plot),python3)' common/workshop/figures/ladder.py $(if $(CHECK),--check \
	  $(results)/ladder.json,$(results)/ladder.json $(results)/ladder) \
	  $(ladder_tokens:%=$T/docs/ladder_%.json) --ptxas '$(toolkit_ptxas)'

# What the READMEs show comes from these runs, always of the virtual H200: neither numbers nor pictures
# depend on the machine.
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
lessons := $(foreach n,$(chapters),$(if $(wildcard $(call folder_of,$n)/README.md),$n))
# A lesson may want a second run, with the flags of its second block; or flags for its only one, which is then
# no run on a photo.
lesson_flags = $(shell sed -n 's/^<!-- counters:begin \(--.*\) -->$$/\1/p' $(call folder_of,$1)/README.md 2>/dev/null)
lesson_blocks = $(shell grep -c '^<!-- counters:begin' $(call folder_of,$1)/README.md 2>/dev/null)
only_flags = $(if $(filter 1,$(call lesson_blocks,$1)),$(call lesson_flags,$1))
docs_results = $T/docs/chapter$1.json $(if $(call lesson_flags,$1),$(if $(call only_flags,$1),,$T/docs/chapter$1-more.json))
docs: $(foreach n,$(lessons),$(call docs_results,$n))
	@$(if $(shell command -v python3),,echo 'make docs needs python3' >&2; exit 3;) \
	$(foreach n,$(lessons),python3 common/workshop/figures/refresh_counters.py $(if $(CHECK),--check) \
	  $(call docs_results,$n) $(call folder_of,$n)/README.md;) \
	python3 common/workshop/bench/front_page.py $(if $(CHECK),--check) README.md $(result_folders); \
	python3 common/workshop/bench/gain_tables.py $(if $(CHECK),--check) data/results/virtual_h200 \
	  README.md chapters/README.md $(foreach n,$(lessons),$(call folder_of,$n)/README.md)
$T/docs/chapter%.json: $D/chapter% $V/libvgpu.so
	@mkdir -p $(@D)
	$(docs_env) $< $(or $(call only_flags,$*),--out $(@:.json=.png)) --json $@ >$(@:.json=.log) || \
	  { cat $(@:.json=.log); exit 1; }
$T/docs/chapter%-more.json: $D/chapter% $V/libvgpu.so
	@mkdir -p $(@D)
	$(docs_env) $< $(call lesson_flags,$*) --json $@ >$(@:.json=.log) || { cat $(@:.json=.log); exit 1; }

include common/make/figures.mk
else
docs figures:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 $@
endif

# What `make ladder` prints besides: what steps gain at sizes that matter. A run has _ for blanks.
predicted_1 := --all_--batch_32_--tokens_577
predicted_7 := --heads_8_--distribution_local --heads_8_--distribution_uniform
predicted_8 := --size_224 --preset_deep
ladder_predicted := $(if $(filter vgpu,$(DEVICE)),$(if $(CHECK),,$(foreach n,1 7 8,$(if \
  $(filter $n,$(chapters)),$(addprefix chapter$n_--predict_,$(predicted_$n))))))
ladder: $(addprefix $D/,$(sort $(foreach run,$(ladder_predicted),$(firstword \
  $(subst _, ,$(run))))))

include common/make/bench.mk
include common/make/mutants.mk

# ptxas runs for every architecture the course promises; nothing is linked. What the programs are
# made of has one of them already.
ARCHS ?= $(all_archs)
CHAPTERS ?= $(chapter_dirs)
ifneq ($(filter compile-all,$(MAKECMDGOALS)),)
$(foreach a,$(filter-out $(all_archs),$(ARCHS)),$(error ARCHS=$a: must be of $(all_archs)))
$(foreach c,$(filter-out $(chapter_dirs),$(CHAPTERS)),$(error CHAPTERS=$c: must be of $(chapter_dirs)))
endif
# What has kernels, and programs are made of. Its PTX for compute_75 is also what tests of a virtual T4 run.
device_cu := $(filter-out $(host_only_cu),$(wildcard $(foreach d,$(chapter_dirs),$d/main.cu $d/kernels*.cu)))
# $(call ptx_for,sm_86): the architecture whose PTX it has. The compiler makes the same for all of a group: it runs
# once, ptxas for each. (Of CUDA's headers those of fp8 and smaller formats ask for sm_89.)
same_ptx := sm_80-sm_86-sm_89 sm_100-sm_120
ptx_for = $(patsubst sm_%,compute_%,$(firstword $(foreach s,$(same_ptx),$(if $(filter $1,$(subst -, ,$s)),\
  $(subst -, ,$s))) $1))
kernels_of = $(foreach f,$(filter $2/%,$(device_cu)),\
  $(if $(filter $(ARCH),$1),$D/$(f:.cu=.o),$T/ptx/$(call ptx_for,$1)/$(f:.cu=.$1)))
# (The longest first.) Each chapter says that it is done: with make -k no other hides it.
define compiled_rule
.PHONY: compiled/$1
compiled/$1: $(call backwards,$(sort $(foreach a,$(ARCHS),$(call kernels_of,$a,$1)))) | same_ptx_holds
	@$(foreach o,$(filter $D/%.o,$(foreach a,$(ARCHS),$(call kernels_of,$a,$1))),awk -v known=common/make/spills.txt \
	  -v file=$(o:$D/%.o=%.cu) -f common/make/spills.awk $(o:.o=.ptxas) &&) printf 'compiled %s\n' $(ARCHS:%=%/$1/main.cu)
endef
$(foreach c,$(CHAPTERS),$(eval $(call compiled_rule,$c)))
compile-all: $(addprefix compiled/,$(call backwards,$(CHAPTERS)))
.PHONY: same_ptx_holds
same_ptx_holds:
	@if grep -nE '__CUDA_ARCH[A-Z_]*__[^0-9]*(8[1-9]|10[1-9]|11[0-9]|12[0-9])[0-9]|cuda_fp[468]\.h' \
	    chapters/*/*.cu chapters/*/*.cuh common/*.cuh common/*/*.cuh; then \
	  echo 'this asks for an architecture that has the PTX of an older one here: take it from same_ptx' \
	    'in the Makefile ($(same_ptx))' >&2; exit 1; fi

# The PTX of all .cu for sm_90, that of the programs also in the oldest and in the newest dialect.
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
with_ptx := $(patsubst %.cu,$V/cu/%.o,$(filter-out $(host_only_cu),$(wildcard common/workshop/bench/*.cu common/vgpu/tests/*.cu))) \
  $(patsubst %.cu,$D/%.o,$(wildcard common/workshop/bench/*/*.cu common/tile/tests/*.cu) $(device_cu) \
    $(filter-out $(host_only_cu),$(all_tests_cu))) \
  $(foreach a,compute_75 compute_100,$(device_cu:%.cu=$T/ptx/$a/%.fatbin))
ptx-coverage: $V/ptx-coverage $(with_ptx)
	@$^
else
ptx-coverage:
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 $@
endif

# $(call run,tool,file,command): one line a file, or with VERBOSE=1 the command.
run = $(if $(filter 1,$(VERBOSE)),,@printf '  %-5s %s%s\n' '$1' '$2' '$(progress)'; )$3
# " (3 of 29)": how many there will be is asked of make itself, at the first one.
all_steps = $(eval all_steps := $(shell $(MAKE) -n --no-print-directory all_steps=1 $(MAKEOVERRIDES) \
  $(MAKECMDGOALS) 2>/dev/null | grep -c "^printf '  %-5s "))$(all_steps)
progress = $(eval step += x) ($(words $(step)) of $(all_steps))

# ---- rules for files -----------------------------------------------------------------------------
# Everything depends on the Makefile, for the flags that stand in it.

# $(call compile_cu,architectures): what ptxas says of registers, stack and spills stays beside the object, for tests
# (check_machine_code) and compile-all.
compile_cu = $(if $(host_only),$(call run,g++,$<,$(CXX) -x c++ $(host_flags) -c $< -o $@),$(call \
  run,nvcc,$<,{ '$(NVCC)' $(nvcc_common) $(nvcc_host) $1 -Xptxas -v -c $< -o $@ -MF $(@:.o=.d) 2>$(@:.o=.ptxas) \
    || bad=1; sed -E '/^ptxas info +: ([0-9]+ bytes gmem|Compiling entry |Function properties |Used |Compile time )/d; \
    /^ +[0-9]+ bytes (stack frame|cumulative stack)/d' $(@:.o=.ptxas) >&2; test -z "$${bad-}"; }))

$H/%.o: %.cpp Makefile
	@mkdir -p $(@D)
	$(call run,g++,$<,$(CXX) $(host_flags) -c $< -o $@)
$P/%.o: %.cpp Makefile
	@mkdir -p $(@D)
	$(call run,g++,$<,$(CXX) $(plain_flags) -c $< -o $@)

$H/liblab.a: $(lab_objects)
$H/libtesting.a: $(testing_objects)
$H/libgrader.a: $(grader_objects)
$H/liblab.a $H/libtesting.a $H/libgrader.a $(chapter_dirs:%=$H/%/libchapter.a):
	@mkdir -p $(@D); rm -f $@
	@ar rcs $@ $^

# An archive member is taken only when main() is still missing, see the head of this file.
$H/libdoctest_main.a: Makefile
	@mkdir -p $(@D); rm -f $@
	@printf '%s\n' '#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN' '#include <doctest/doctest.h>' | \
	  $(CXX) -std=c++20 -O1 $(third_party) -x c++ -c - -o $H/doctest_main.o
	@ar rcs $@ $H/doctest_main.o

$(t4_tests_cu:%.cu=$D/%.o): also = $(if $(filter sm_75,$(ARCH)),,-gencode arch=compute_75,code=compute_75)
$(foreach d,$D $V/cu,$(host_only_cu:%.cu=$d/%.o)): host_only = yes
# (Tests are compiled with -Og, see above. The -O of nvcc would overrule it.)
$(filter-out $(host_only_cu:%.cu=$D/%.o),$(all_tests_cu:%.cu=$D/%.o)) $(newest_cu:%.cu=$D/%.o) \
$(filter-out $(host_only_cu:%.cu=$V/cu/%.o),$(vgpu_tests_cu:%.cu=$V/cu/%.o)): \
  nvcc_common := $(filter-out -O1,$(nvcc_common)) -Xcompiler -Og
$(filter $(host_only_cu:%.cu=$D/%.o),$(all_tests_cu:%.cu=$D/%.o)) $V/cu/common/vgpu/tests/time_programs.o: optimize := -Og
# A twin's object is the test's own with other device code: the host's half holds nothing of the architecture. (What
# stands in .nv_fatbin is a file of nvcc -fatbin.)
with_code = objcopy --update-section .nv_fatbin=$1
$D/t4/%.o: $D/%.o $T/ptx/compute_75/%.fatbin
	@mkdir -p $(@D)
	@$(call with_code,$(word 2,$^)) $< $@
# But for functions of CUB for a whole device, whose host's half chooses by the architecture and has it in its names.
$(patsubst %.cu,$D/t4/%.o,$(cub_device_cu)): $D/t4/%.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call run,nvcc,$< for a T4,$(call to_ptx,compute_75) $(nvcc_host) -c $< -o $@ -MF $(@:.o=.d))
# A test's own file often has no kernel, and what registers none needs no code.
$(t4_twin_of:%.cu=$D/t4/%.o): $D/t4/%.o: %.cu $D/%.o
	@mkdir -p $(@D)
	@if nm -u $D/$*.o | grep -q __cudaRegisterFunction; then \
	  $(call to_ptx,compute_75) -fatbin $< -o $(@:.o=.fatbin); \
	  $(call with_code,$(@:.o=.fatbin)) $D/$*.o $@; else cp $D/$*.o $@; fi
$D/%.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call compile_cu,$(call gencode,$(image)) $(also))
# (A chapter's chapter.mk may have another image.)
image = $(ARCH)

# $(call link,libraries): of all objects and then all archives among the prerequisites, a chapter's first:
# it needs the others
define link
@mkdir -p $(@D)
$(call run,link,$@,$(CXX) $(filter %.o,$^) $(filter %/libchapter.a,$^) \
  $(filter-out %/libchapter.a,$(filter %.a,$^)) $1 $(libs) -o $@)
endef

# What a program or library was built from, and the goal that builds it again in the same way: the
# program says it when a source is newer (common/lab/sources.h). $(call note_sources,goal,objects,uses)
not_default := $(if $(filter-out auto,$(TOOLKIT)), TOOLKIT=$(TOOLKIT))$(if \
  $(THIRD_PARTY), THIRD_PARTY='$(THIRD_PARTY)')$(if $(SANITIZE), SANITIZE=$(SANITIZE))
not_default_device := $(if $(filter-out $(if $(GPU_ARCH),cuda,vgpu),$(DEVICE)), DEVICE=$(DEVICE))$(if \
  $(filter-out $(default_arch),$(ARCH)), ARCH=$(ARCH))
define note_sources
@{ echo "renew: $1"; echo 'built: $@'; $(if $3,echo 'uses: $3';) cat $(patsubst %.o,%.d,$2) | \
  awk '{ for (i = 1; i <= NF; ++i) { f = $$i; if (f ~ /^\/|^build\/|:$$|^[:\\]$$/) continue; \
  while (match(f, /[^\/]+\/\.\.\//)) f = substr(f, 1, RSTART - 1) substr(f, RSTART + RLENGTH); \
  if (!seen[f]++) print f } }'; } >$@.sources
endef

$(chapters:%=$D/chapter%): $H/liblab.a | $(device_library)
	$(call link,$(libs_$(DEVICE)))
	$(call note_sources,$(@F)$(not_default_device)$(not_default),$(filter %.o,$^) $(lab_objects),$(filter \
	  %libvgpu.so,$(device_library)))
$(newest_tests): $(newest_cu:%.cu=$D/%.o) $(filter %/reference.o,$(chapter_objects))
$D/lab_tests: $(patsubst %.cpp,$H/%.o,$(call units,$(lab_tests_cpp)))
$D/bad_input_tests: $(patsubst %.cpp,$H/%.o,$(call units,$(bad_input_cpp)))
$(lab_tests_cu:common/tile/tests/%.cu=$D/lab_%): $D/lab_%: $D/common/tile/tests/%.o
$(newest_tests) $(lab_tests) $(chapter_tests) $(foreach f,$(t4_twin_of),$(call test_of,$f)_t4): $(test_archives) | $(device_library)
	$(call link,$(libs_$(DEVICE)))

# PTX, $1 = compute_75, its form that the virtual GPU reads, and the list of its kernels.
define ptx_rules
$(device_cu:%.cu=$T/ptx/$1/%.ptx): $T/ptx/$1/%.ptx: %.cu Makefile
	@mkdir -p $$(@D)
	$$(call run,nvcc,$$< for $1,$$(call to_ptx,$1) -ptx $$< -o $$@ -MMD -MP -MF $$@.d)
$(device_cu:%.cu=$T/ptx/$1/%.fatbin): %.fatbin: %.ptx
	@'$(NVCC)' -gencode arch=$1,code=$1 -fatbin $$< -o $$@
$(device_cu:%.cu=$T/ptx/$1/%.kernels): %.kernels: %.ptx common/make/kernels_in_ptx.awk
	@LC_ALL=C awk -v list=1 -f common/make/kernels_in_ptx.awk $$< >$$@
endef
# Machine code, $1 = sm_86, of $2 = compute_80; and which kernels have passed, in whichever file.
assembling := Makefile $(addprefix common/make/,assemble.sh kernels_in_ptx.awk spills.awk spills.txt)
define machine_code_rules
$(device_cu:%.cu=$T/ptx/$2/%.$1): $T/ptx/$2/%.$1: $T/ptx/$2/%.ptx $T/ptx/$2/%.kernels $(assembling) | $T/ptx/passed.$1
	$$(call run,ptxas,$$*.cu for $1,NVCC='$(NVCC)' common/make/assemble.sh $$*.cu $$< $1 $$@ $T/ptx/passed.$1)
$T/ptx/passed.$1: $(assembling)
	@mkdir -p $$(@D)
	@: >$$@
endef
$(foreach p,$(sort $(foreach a,$(all_archs),$(call ptx_for,$a))),$(eval $(call ptx_rules,$p)))
$(foreach a,$(all_archs),$(eval $(call machine_code_rules,$a,$(call ptx_for,$a))))

# Header dependencies, as the compilers found them the last time.
ifdef TOOLKIT_ID
-include $(shell find $T $P -name '*.d' 2>/dev/null)
endif
