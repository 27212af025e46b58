# A course in CUDA for vision. `make` alone prints the lines with #> below.
#
# Below: where things go, the flags, how a chapter becomes ./run. The rest: common/make/, a file a subject.
#
#> make chapter1        build chapter 1 and leave it as ./run      (make chapter1 && ./run)
#> make exercise1       build the exercise of chapter 1 and leave it as ./run, which gives points
#> make test            build and run the tests that show that the course works on this machine, in minutes
#> make deps            install what is missing (all others do it by themselves)
#> make clean           remove build/ and ./run (not .toolkit/)
#>
#> DEVICE=cuda|vgpu     a real GPU, or the virtual one on the CPU   (default: a real one if there is one)
#> ARCH=sm_86           architecture of the kernels                 (default: the GPU's; sm_90 for vgpu)
#> TOOLKIT=wheels       NVIDIA's wheels even where a CUDA Toolkit is installed
#> THIRD_PARTY=dir      headers of doctest, stb, CLI11 and nlohmann-json from there
#> VERBOSE=1            the commands of compiler and linker, not only the files' names
#>
#> For other programs:
#> make vgpu            the virtual GPU for other CUDA programs: build/vgpu ./program
#> make operators       the kernels as a library of C functions, for PyTorch and NumPy (common/operators/README.md)
#>
#> For authors (CONTRIBUTING.md; common/workshop/README.md also has bench, validate, mutants, fuzz, figures ...):
#> make test ALL=1      all tests (ONLY='lab chapter7': some programs; ONLY=toolkit: those that call the compiler when
#>                      they run, SUITE=toolkit: of these one case for each way; SANITIZE=1; TEST_TIMEOUT=300)
#> make test-gpu        only those of what runs on a GPU (ONLY as above)
#> make docs            write the lessons' numbers and the exercises' starters anew (CHECK=1: only compare)
#> make compile-all     every chapter for sm_75 to sm_120; no kernel may spill registers there
#> make ptx-coverage    show that the virtual GPU knows all instructions of all kernels
#> make alone           compile each file by itself, with the newest g++ at hand (PART=2/5: every fifth file)
#> make format          write C++ and CUDA as .clang-format says (CHECK=1: only compare)

# ---- where things go -----------------------------------------------------------------------------
#
#   .toolkit/                     NVIDIA's compiler wheels, only where they are needed
#   build/config-*.mk             what common/make/configure.sh found on this machine
#   $P  build/plain/              objects of g++ that need no CUDA headers: reference.cpp, most of vgpu/
#   $T  build/TOOLKIT_ID/         everything that depends on the toolkit, such as cuda-13.0.88:
#   $H    host/                   other objects of g++: common/, tests, doctest's main()
#   $V    vgpu/                   the virtual GPU: libvgpu.so, the launcher vgpu, their tests
#   $D    DEVICE-ARCH/            objects of nvcc, programs chapterN and test_chapterN, the operators
#         ptx/ARCH/               PTX and machine code for other architectures than ARCH
#   build/vgpu, build/operators/, ./run: links to the newest launcher, operators and program
#
# Every choice that changes an object is in its path; with SANITIZE=1, $P and $T end in -sanitize.

# ---- make itself ---------------------------------------------------------------------------------

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help
comma := ,

ifeq ($(findstring -j,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --output-sync=target --no-builtin-rules

# ---- chapters, toolkit and device ----------------------------------------------------------------

# $(call chapter_number,chapters/07_name) is 7, $(call chapter_folder,7) is chapters/07_name.
chapter_dirs := $(sort $(wildcard chapters/[0-9][0-9]_*))
chapter_number = $(patsubst 0%,%,$(firstword $(subst _, ,$(notdir $1))))
chapter_folder = $(filter chapters/0$1_% chapters/$1_%,$(chapter_dirs))
chapters := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/main.cu),$(call chapter_number,$d)))
exercises := $(foreach d,$(chapter_dirs),$(if $(wildcard $d/exercise/exercise.cu),$(call chapter_number,$d)))

# Refuses wrong goals and variables. Then sets NVCC, CUDA_INC, CUDA_LIB, CXX, DEVICE and ARCH.
include common/make/toolkit.mk

P := build/plain$(if $(SANITIZE),-sanitize)
T := build/$(TOOLKIT_ID)$(if $(SANITIZE),-sanitize)
H := $T/host
V := $T/vgpu
D := $T/$(DEVICE)-$(ARCH)

# ---- flags ---------------------------------------------------------------------------------------

# Source files may include headers of common/, <doctest/doctest.h>, <stb/stb_image.h>, <CLI/CLI.hpp> and
# <nlohmann/json.hpp>.
third_party := $(if $(THIRD_PARTY),-isystem '$(THIRD_PARTY)')
includes := -Icommon $(third_party)
# Two warnings of GCC are often wrong: 12's of overlapping copies in its own std::string (bug 105329), 13's
# and 14's of dangling references where a function takes a temporary.
warnings := -Wall -Wextra -Wno-restrict -Wno-dangling-reference

# Compiling takes longer than running most of the code, so -O1 is enough. Tests mostly wait: -Og.
# common/make/groups.mk gives -O3 to the code in which programs spend their time.
optimize = $(if $(findstring /tests/,$<),-Og,-O1)

# Wrong accesses and undefined behaviour of the host's code. (GCC takes some variables for uninitialized then.)
sanitize := $(if $(SANITIZE),-O1 -g1 -fno-omit-frame-pointer -fsanitize=address -fsanitize=undefined \
  -Wno-uninitialized -Wno-maybe-uninitialized)

# Flags of g++. -ffp-contract=off: without fused multiply-adds, results have the same bits on every
# machine. The large heap saves GCC its garbage collection, up to a tenth of a file's time.
plain_flags = -std=c++20 $(optimize) --param ggc-min-heapsize=524288 -march=native -ffp-contract=off \
  -fopenmp $(warnings) $(includes) -MMD -MP $(sanitize)
host_flags = $(plain_flags) -isystem '$(CUDA_INC)'

# Flags of nvcc. -O is for the host's half of a .cu; kernels are always fully optimized.
nvcc_flags = -std=c++20 $(patsubst -Og,-Xcompiler -Og,$(optimize)) -lineinfo \
  $(if $(filter-out g++,$(CXX)),-ccbin $(CXX)) $(includes)
nvcc_host := $(patsubst %,-Xcompiler %,-fopenmp $(warnings) $(filter -f%,$(sanitize))) -MMD -MP
# Where the system's g++ is too new for nvcc, everything that calls nvcc takes the older one.
ifneq ($(filter-out g++,$(CXX)),)
export NVCC_CCBIN := $(CXX)
endif

# $(call gencode,sm_90): PTX, which the virtual GPU executes, and machine code. For single files rules set
# another nvcc_arch, or in nvcc_also what is compiled besides.
gencode = -gencode 'arch=$(1:sm_%=compute_%),code=[$(1:sm_%=compute_%),$1]'
nvcc_arch = $(ARCH)
nvcc_also =

libs := -fopenmp -ldl -lrt -lpthread $(sanitize)
libs_cuda := -L'$(CUDA_LIB)' -lcudart_static
libs_vgpu := -L$V -lvgpu -Wl,-rpath,'$$ORIGIN/../vgpu'
# Needed before a program runs on DEVICE.
device_library := $(if $(filter vgpu,$(DEVICE)),$V/libvgpu.so)

include common/make/variants.mk  # steps with a few lines changed: what was tried and not kept

# ---- compiling and linking -----------------------------------------------------------------------
# In a rule $@ is the file to make, $(@D) its folder, $< the first file it is made from, $^ all of them.
# $(call NAME,a,b) stands for NAME's text with a for $1 and b for $2. Every object depends on the Makefile,
# for the flags.

# $(call run,tool,file,command): runs the command and prints `  tool  file`, or all of it with VERBOSE=1.
run = $(if $(VERBOSE),,@printf '  %-5s %s\n' '$1' '$2'; )$3

# $(call compile,flags): C++ by g++.
define compile
@mkdir -p $(@D)
$(call run,g++,$<,$(CXX) $1 -c $< -o $@)
endef
$P/%.o: %.cpp Makefile
	$(call compile,$(plain_flags))
$H/%.o: %.cpp Makefile
	$(call compile,$(host_flags))

# $(call compile_cu,-gencode ...): a .cu by nvcc, or by g++ where it has no device code (host_only). What
# ptxas prints of registers, stack and spills stays in FILE.ptxas, for compile-all and for tests.
define compile_cu
@mkdir -p $(@D)
$(if $(host_only),$(call run,g++,$<,$(CXX) -x c++ $(host_flags) -c $< -o $@),$(call \
  run,nvcc,$<,{ '$(NVCC)' $(nvcc_flags) -I$(variants_made) $(nvcc_host) $1 -Xptxas -v -c $< -o $@ -MF $(@:.o=.d) 2>$(@:.o=.ptxas) \
    || bad=1; sed -E -f common/make/ptxas_report.sed $(@:.o=.ptxas) >&2; test -z "$${bad-}"; }))
endef
$D/%.o: %.cu Makefile | $(variants)
	$(call compile_cu,$(call gencode,$(nvcc_arch)) $(nvcc_also))

# $(call link,libraries): links the objects and archives among the prerequisites. A chapter's archive stands
# before the archives that it needs.
define link
@mkdir -p $(@D)
$(call run,link,$@,$(CXX) $(filter %.o,$^) $(filter %/libchapter.a,$^) \
  $(filter-out %/libchapter.a,$(filter %.a,$^)) $1 $(libs) -o $@)
endef

# ---- how a chapter becomes ./run -----------------------------------------------------------------

include common/make/groups.mk   # which .cpp files are compiled together
include common/make/objects.mk  # which objects a folder has: objects_in, kernels_in

# The program chapterN is linked from the chapter's main.cu and kernels*.cu, its .cpp files, and liblab.a,
# which all chapters share. These rules are made for each N ($1), where $$ stays a $ for the rule itself.
# (nvcc takes longest, so its objects come first.)
define chapter_rules
.PHONY: chapter$1
cu_objects_$1 := $(patsubst %.cu,$D/%.o,$(wildcard $(call chapter_folder,$1)/main.cu)) \
  $(call kernels_in,$(call chapter_folder,$1),$D)
chapter$1: $$(cu_objects_$1) $D/chapter$1 $(device_library)
	@ln -sfn $D/chapter$1 run
	@echo 'DEVICE=$(DEVICE) ($(device_reason)), $(ARCH), $(TOOLKIT_ID): ./run is $D/chapter$1'
$D/chapter$1: $$(cu_objects_$1) $(call objects_in,$(call chapter_folder,$1))
endef
$(foreach n,$(chapters),$(eval $(call chapter_rules,$n)))
$(chapters:%=$D/chapter%): $H/liblab.a | $(device_library)
	$(call link,$(libs_$(DEVICE)))
	$(call note_sources,$(@F)$(not_default_device)$(not_default),$(filter %.o,$^) $(lab_objects),$(filter \
	  %libvgpu.so,$(device_library)))

# ---- everything else -----------------------------------------------------------------------------

include common/make/vgpu.mk           # the virtual GPU and its launcher; make fuzz, bench-vgpu
include common/make/exercises.mk      # the programs that grade exercises
include common/make/operators.mk      # the kernels as a library
include common/make/test_programs.mk  # the programs that make test can run
include common/make/tests.mk          # make test: which of them run
include common/make/machine_code.mk   # make compile-all, ptx-coverage, alone
include common/make/results.mk        # where results are kept, and the runs that give them
include common/make/docs.mk           # make docs, ladder, published: the lessons' numbers
include common/make/bench.mk          # make bench, validate, calibrate: measuring on a GPU

# These goals always use the virtual H200: the lessons' numbers and pictures come from it.
ifeq ($(DEVICE)-$(ARCH),vgpu-sm_90)
include common/make/figures.mk        # make figures: the lessons' pictures
include common/make/reference.mk      # make bench DEVICE=vgpu
include common/make/mutants.mk        # make mutants: mistakes planted in kernels
else
.PHONY: docs figures mutants ptx-coverage bench-dry
docs figures mutants ptx-coverage bench-dry $(if $(vgpu_asked),bench):
	@$(MAKE) DEVICE=vgpu ARCH=sm_90 $@
endif

.PHONY: help deps clean format
help:
	@sed -nE 's/^#>( |$$)//p' Makefile
deps:
	@echo "deps: complete: $(TOOLKIT_ID) ($(NVCC)), $$($(CXX) --version | head -n 1)"
clean:
	rm -rf build run
format:
	@common/make/format.sh $(if $(CHECK),--check)

# The headers that each object depends on, as the compilers found them the last time.
ifdef TOOLKIT_ID
-include $(shell find $T $P -name '*.d' 2>/dev/null)
endif
