# The programs that `make test` can run. Included by the Makefile; tests.mk chooses among them.
#
# All *.cpp of a tests/ folder are linked into one program, each *.cu is one of its own. No test needs a
# main(): doctest's comes from an archive. Test programs run in the repository's root.

# SUITE=toolkit: one case for each way to call the compiler, marked
# `TEST_CASE("..." * doctest::test_suite("toolkit"))`. Every file that calls it has one. Only what these
# cases need is built, for a machine where nothing is built yet.
# $(call in_suite,files): those with such a case; without SUITE, all
SUITE ?=
ifneq ($(filter-out toolkit,$(SUITE)),)
$(error SUITE=$(SUITE): there is one suite: toolkit)
endif
in_suite = $(if $(SUITE),$(shell grep -l 'doctest::test_suite("$(SUITE)")' $1),$1)

# ---- chapters ------------------------------------------------------------------------------------

# A chapter's tests/test.cu is the program test_chapterN, tests/test_NAME.cu is test_chapterN_NAME.
# $(call test_folder,tests/test.cu's path): the chapter's; $(call test_program,that path): the program
all_tests_cu := $(wildcard $(chapter_dirs:%=%/tests/test.cu)) $(wildcard $(chapter_dirs:%=%/tests/test_*.cu))
test_folder = $(patsubst %/tests/,%,$(dir $1))
test_program = $D/test_chapter$(call chapter_number,$(call test_folder,$1))$(patsubst test%.cu,%,$(notdir $1))
chapter_tests := $(foreach f,$(all_tests_cu),$(call test_program,$f))

# $(call test_rule,program,its .cu,folder of its nvcc objects). What a test_NAME.cu needs of the chapter's
# tests comes from an archive, so that it takes no other file's cases.
define test_rule
$1: $3/$(2:.cu=.o) $(call kernels_in,$(call test_folder,$2),$3) $(if $(filter %/test.cu,$2),\
  $(call test_objects_in,$(call test_folder,$2)) $(call objects_in,$(call test_folder,$2)),\
  $H/$(call test_folder,$2)/libchapter.a)
endef
$(foreach f,$(all_tests_cu),$(eval $(call test_rule,$(call test_program,$f),$f,$D)))

# newest_tests: one case of the newest step of each chapter from 2 on, without the other steps' kernels.
newest_cu := $(wildcard $(chapter_dirs:%=%/tests/newest.cu))
newest_tests := $(if $(newest_cu),$D/newest_tests)
$(newest_tests): $(newest_cu:%.cu=$D/%.o) $(filter %/reference.o,$(foreach d,$(chapter_dirs),$(call objects_in,$d)))

# ---- chapters' tests of a virtual T4, which need code for sm_75 ----------------------------------

# If all kernels of a test are in its own file, that file is compiled for sm_75, too. With kernels in
# kernels*.cu it has a twin, the program NAME_t4.
t4_tests_cu := $(filter-out $(host_only_cu),$(shell grep -l check_on_t4 $(all_tests_cu)))
$(t4_tests_cu:%.cu=$D/%.o): nvcc_also = $(if $(filter sm_75,$(ARCH)),,-gencode arch=compute_75,code=compute_75)
twins_cu := $(if $(filter vgpu,$(DEVICE)),$(if $(SUITE),,$(shell grep -l check_twin_on_t4 $(all_tests_cu))))
twins := $(foreach f,$(twins_cu),$(call test_program,$f)_t4)
# (With ARCH=sm_75 the twin has the test's own objects.)
$(foreach f,$(twins_cu),$(eval $(call test_rule,$(call test_program,$f)_t4,$f,$(if $(filter sm_75,$(ARCH)),$D,$D/t4))) \
  $(eval $(call test_program,$f): | $(call test_program,$f)_t4))

# A twin's object is the test's own with other device code, a file of nvcc -fatbin in its section
# .nv_fatbin: the host's half is the same for all architectures.
with_code = objcopy --update-section .nv_fatbin=$1
$D/t4/%.o: $D/%.o $T/ptx/compute_75/%.fatbin
	@mkdir -p $(@D)
	@$(call with_code,$(word 2,$^)) $< $@
# Only functions of CUB for a whole device choose by the architecture in the host's half.
$(patsubst %.cu,$D/t4/%.o,$(cub_device_cu)): $D/t4/%.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call run,nvcc,$< for a T4,$(call to_ptx,compute_75) $(nvcc_host) -c $< -o $@ -MF $(@:.o=.d))
# A test's own file often has no kernel. Then there is no code to replace.
$(twins_cu:%.cu=$D/t4/%.o): $D/t4/%.o: %.cu $D/%.o
	@mkdir -p $(@D)
	@if nm -u $D/$*.o | grep -q __cudaRegisterFunction; then \
	  $(call to_ptx,compute_75) -fatbin $< -o $(@:.o=.fatbin); \
	  $(call with_code,$(@:.o=.fatbin)) $D/$*.o $@; else cp $D/$*.o $@; fi

# ---- common/lab, common/tile ---------------------------------------------------------------------

lab_tests_cpp := $(wildcard common/lab/tests/*.cpp)
bad_input_cpp := $(wildcard common/lab/tests/bad_input/*.cpp)
tile_tests_cu := $(wildcard common/tile/tests/*.cu)
tile_tests := $(tile_tests_cu:common/tile/tests/%.cu=$D/lab_%)
lab_tests := $(if $(lab_tests_cpp),$D/lab_tests) $(tile_tests) $(if $(bad_input_cpp),$D/bad_input_tests)
$D/lab_tests: $(patsubst %.cpp,$H/%.o,$(call in_groups,$(lab_tests_cpp)))
$D/bad_input_tests: $(patsubst %.cpp,$H/%.o,$(call in_groups,$(bad_input_cpp)))
$(tile_tests): $D/lab_%: $D/common/tile/tests/%.o

$(newest_tests) $(lab_tests) $(chapter_tests) $(twins): $(test_archives) | $(device_library)
	$(call link,$(libs_$(DEVICE)))

# ---- the virtual GPU -----------------------------------------------------------------------------

# vgpu_tests is linked from objects, since libvgpu.so hides everything but CUDA's functions. With SUITE it
# is a program of its own: only the files with a case of the suite and those without cases, not in groups.
vgpu_tests_cpp := $(wildcard common/vgpu/tests/*.cpp)
vgpu_tests_cu := $(wildcard common/vgpu/tests/*.cu)
vgpu_tests_program := $V/$(addsuffix /,$(SUITE))vgpu_tests
vgpu_cu_tests := $(vgpu_tests_cu:common/vgpu/tests/%.cu=$V/tests/%)
vgpu_tests := $(if $(vgpu_tests_cpp),$(vgpu_tests_program)) $(vgpu_cu_tests)
vgpu_tests_used := $(if $(SUITE),$(call in_suite,$(vgpu_tests_cpp)) $(shell grep -L TEST_CASE $(vgpu_tests_cpp)),\
  $(call in_groups,$(vgpu_tests_cpp)))
$(vgpu_tests_program): $(vgpu_objects) $(vgpu_tests_used:%.cpp=$V/%.o) $H/libdoctest_main.a
	$(call link,-lzstd -llz4)

$(vgpu_cu_tests): $V/tests/%: $V/cu/common/vgpu/tests/%.o $H/libgrader.a $(test_archives) | $V/libvgpu.so
	$(call link,$(libs_beside_vgpu))
# ptxas would report the planted mistakes of these two: one has PTX alone, the other has no warnings.
$V/cu/common/vgpu/tests/runtime_warpgroup.o: vgpu_gencode = -gencode arch=compute_90a,code=compute_90a
$V/cu/common/vgpu/tests/check_clusters.o: nvcc_flags += -Xptxas -w

# ---- exercises and the grader --------------------------------------------------------------------

# They run the exercises' programs: in a suite those of its files, and exercise 1, which the grader's own
# cases take.
points_cpp := $(wildcard chapters/*/tests/test_exercise.cpp)
exercise_tests := $(if $(exercises),$V/tests/exercise_tests $V/tests/grader_tests)
$V/tests/exercise_tests: $(patsubst %.cpp,$H/%.o,$(call in_groups,$(points_cpp) common/grader/tests/support.cpp))
$V/tests/grader_tests: $(patsubst %.cpp,$H/%.o,$(call in_groups,$(wildcard common/grader/tests/*.cpp)))
exercises_tested := $(if $(SUITE),$(filter 1 $(foreach f,$(call in_suite,$(points_cpp)),\
  $(call chapter_number,$(call test_folder,$f))),$(exercises)),$(exercises))
$(exercise_tests): $H/libgrader.a $(test_archives) | $V/tests/grader.conf $V/tests/student_host \
  $(foreach n,$(exercises_tested),$V/tests/exercise$n $V/tests/exercise$n-solution)
	$(call link,$(libs_beside_vgpu))

# ---- scripts -------------------------------------------------------------------------------------

python_tests := $(if $(python3),$(patsubst %,common/%/tests/all.py,workshop workshop/mutants vgpu/look) \
  $(operators_python))
script_tests := common/make/check_make.sh data/check.sh
