# Which objects the folders of chapters and of common/ have, and archives of them. Included by the
# Makefile.

# A folder's .cpp files are its code, but those of tests/ and test_*.cpp are its tests' code. A
# reference.cpp is plain C++ that knows no toolkit. Another folder inside a chapter is a part of it: its
# kernels are compiled in the chapter's kernels/NAME.cu, its tests are tests/test_NAME.cu.
# $(call objects_in,folder), $(call test_objects_in,folder)
code_in = $(filter-out %/reference.cpp $1/test_% $1/tests/%,$(wildcard $1/*.cpp $1/*/*.cpp))
test_code_in = $(filter-out %/test_exercise.cpp,$(wildcard $1/test_*.cpp $1/tests/test_*.cpp))
objects_in = $(patsubst %.cpp,$H/%.o,$(call in_groups,$(call code_in,$1))) \
  $(patsubst %.cpp,$P/%.o,$(wildcard $1/reference.cpp $1/*/reference.cpp)) $(objects_taken_by_$1)
test_objects_in = $(patsubst %.cpp,$H/%.o,$(call in_groups,$(call test_code_in,$1)))

# $(call kernels_in,chapter's folder,build folder): kernels*.cu, or where these are many the .cu of a folder
# kernels/, which a chapter compiles once for its program and all its tests, and those that it takes of other
# chapters.
kernels_cu = $(wildcard $1/kernels*.cu $1/kernels/*.cu)
kernels_in = $(patsubst %.cu,$2/%.o,$(call kernels_cu,$1) $(kernels_taken_by_$1))

# A chapter's .cu that launches nothing and includes no .cuh has no device code: g++ compiles it, in a
# third of nvcc's time. So does an exercise. lab.cuh and attention's launch.cuh have no device code, nor
# has time_programs.cu, which compiles texts when it runs.
chapters_cu := $(wildcard $(foreach d,$(chapter_dirs),$d/*.cu $d/tests/*.cu $d/exercise/*.cu))
with_device_code := $(shell awk '/<<<|^\#include .*\.cuh"/ && !/(common\/lab|attention\/launch)\.cuh"/ \
  { print FILENAME; nextfile }' /dev/null $(chapters_cu))
host_only_cu := $(filter-out $(with_device_code),$(chapters_cu)) common/vgpu/tests/time_programs.cu
$(foreach d,$D $V/cu,$(host_only_cu:%.cu=$d/%.o)): host_only = yes

# ---- archives ------------------------------------------------------------------------------------
# The linker takes from an archive only what is used. An archive stands in front of those it needs:
# grader, testing, lab.

json_objects := $(patsubst %.cpp,$P/%.o,$(call in_groups,$(wildcard common/json/*.cpp)))
lab_objects := $(call objects_in,common/attention) $(call objects_in,common/lab) $(json_objects)
grader_objects := $(call objects_in,common/grader)
testing_objects := $(sort $(call objects_in,common/testing) $(call test_objects_in,common/attention))
test_archives := $H/libtesting.a $H/liblab.a $H/libdoctest_main.a

$H/liblab.a: $(lab_objects)
$H/libtesting.a: $(testing_objects)
$H/libgrader.a: $(grader_objects)
$(foreach d,$(chapter_dirs),$(eval $H/$d/libchapter.a: $(call test_objects_in,$d) $(call objects_in,$d)))
$H/liblab.a $H/libtesting.a $H/libgrader.a $(chapter_dirs:%=$H/%/libchapter.a):
	@mkdir -p $(@D); rm -f $@
	@ar rcs $@ $^

# doctest's main(). A program that has a main() of its own does not take it.
$H/libdoctest_main.a: Makefile
	@mkdir -p $(@D); rm -f $@
	@printf '%s\n' '#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN' '#include <doctest/doctest.h>' | \
	  $(CXX) -std=c++20 -O1 $(third_party) -x c++ -c - -o $H/doctest_main.o
	@ar rcs $@ $H/doctest_main.o

# ---- which sources a program has -----------------------------------------------------------------

# $(call note_sources,goal,objects,libraries): PROGRAM.sources lists the files that a program was built
# from and the goal that builds it again. The program warns when one of them is newer
# (common/lab/sources.h).
define note_sources
@{ echo "renew: $1"; echo 'built: $@'; $(if $3,echo 'uses: $3';) \
  cat $(patsubst %.o,%.d,$2) | awk -f common/make/sources.awk; } >$@.sources
endef
