# Which .cpp files are compiled together, and how far each is optimized. Included by the Makefile.
#
# Most of a compiler's work on a small file is headers and templates that its neighbours need, too:
# core/ takes 27 s of processor time file by file and 9 s in groups, the virtual GPU's tests 140 s and
# 53 s. A group is a folder, or a part of one where its files are optimized differently or take long to
# compile. A new file joins its folder's group by itself.
#
# In a group names without linkage must differ, those of functions also where their parameters do: the
# better match might be a neighbour's. Each file still includes what it needs (make alone).

# $(call group,NAME,PATTERNS): the .cpp files that match become the object NAME.o. A file belongs to the
# first group that matches, so parts of a folder stand before the rest of it. One file is no group, and
# a reference.cpp is always compiled by itself.
groups :=
group = $(call add_group,$1,$(filter-out %/reference.cpp $(grouped),$(wildcard $(2:%=%.cpp))))
add_group = $(if $(word 2,$2),$(eval groups += $1)$(eval files_in_$1 := $2)$(eval grouped += $2))

# Compiled by themselves: files with a main(), that two programs share, that need flags or generated files
# of their own, or are optimized in another way; a declaration that must not meet the real one
# (unsupported); and a test of how little a header includes (lane_operations).
grouped := $(addprefix common/,$(addsuffix .cpp,lab/flags grader/main grader/attention_cases grader/tests/support \
  $(addprefix vgpu/,cudart/unsupported look/page time/built_with tests/main tests/lane_operations)))

# ---- the virtual GPU -----------------------------------------------------------------------------

vgpu_group = $(call group,common/vgpu/$1,$(addprefix common/vgpu/,$2))
# The simulated SM, and the copy engine's tensor maps, which are optimized as it is.
$(call vgpu_group,time/group,$(addprefix time/,kernel_time recording* sm* timing walk*) \
  ops/tensor_copy ops/tensor_map core/tensor_map)
# What runs a few times a program or a launch: from text to a launch, and the reports.
$(call vgpu_group,group_programs,ptx/[!s]* ops/decode* ops/forms \
  $(addprefix core/,deadlock gather host_threads loading machine names spelling) \
  $(addprefix check/,checks fault_handler finite_words host_guard race_words streams) \
  profile/[!c]* look/* time/*)
# What runs for each instruction or access, or reads all PTX of a process (skip_body).
$(call vgpu_group,core/group,core/* ptx/skip_body)
$(call vgpu_group,ops/group_floats,$(addprefix ops/,float convert half compare warpgroup*))
$(call vgpu_group,ops/group_memory,$(addprefix ops/,memory bulk atomic mbarrier tensor))
$(call vgpu_group,ops/group_integers,ops/*)
$(call vgpu_group,group_watchers,check/* profile/cache*)
# CUDA's runtime.
$(call vgpu_group,group_runtime,runtime/* cudart/*)
# Tests, by subject.
$(call vgpu_group,tests/group_memory,$(addprefix tests/core_,atomics bulk layout memory tensor*) \
  tests/forms_matrices)
$(call vgpu_group,tests/group_clusters,$(addprefix tests/,core_cluster* core_mbarrier core_warpgroup forms_warpgroup))
$(call vgpu_group,tests/group_computing,$(addprefix tests/,forms_approximations forms_planted forms_random \
  lane_* profile_coalescing))
$(call vgpu_group,tests/group_check,tests/check_*)
$(call vgpu_group,tests/group_core,tests/core_*)
$(call vgpu_group,tests/group_forms,tests/forms_* tests/table_of_forms)
$(call vgpu_group,tests/group_profile,tests/profile_* tests/look_*)
$(call vgpu_group,tests/group_time,tests/time_*)
$(call vgpu_group,tests/group_runtime,tests/*)

# ---- common/ -------------------------------------------------------------------------------------

$(call group,common/json/group,common/json/*)
$(call group,common/lab/group_values,common/lab/compare common/attention/inputs)
# (What needs doctest is apart: exercises do without, and doctest's archive has a main().)
$(call group,common/testing/group_checks,common/testing/checks common/attention/test_*)
$(foreach d,testing lab/tests lab/tests/bad_input grader grader/tests,$(call group,common/$d/group,common/$d/*))
$(call group,common/lab/group,common/lab/* common/attention/*)
$(call group,common/grader/tests/group_points,chapters/*/tests/test_exercise)

# ---- chapters ------------------------------------------------------------------------------------

# A chapter's tests/test_*.cpp. Where it has several test programs, those share the files without cases,
# which therefore stay alone.
with_cases := $(basename $(shell grep -l TEST_CASE /dev/null $(wildcard chapters/*/tests/test_*.cpp)))
$(foreach d,$(chapter_dirs),$(call group,$d/group_tests,$(if $(wildcard $d/tests/test_*.cu),\
  $(filter $d/%,$(with_cases)),$d/tests/test_*)))

# What is special about a chapter stands in its chapter.mk, where $(here) is its folder: groups, and
#   objects_taken_by_$(here)  objects of other chapters that its program and its tests are linked with
#   kernels_taken_by_$(here)  kernels (.cu files) of other chapters that these are linked with
#   not_in_exercises          objects, as patterns, that its exercise does without
#   cub_device_cu             kernels whose host half chooses by the architecture, as CUB's does
cub_device_cu :=
# What a chapter's program alone needs: flags, inputs, reports.
program_only := %/program.o %/options.o %/input.o %/report.o %/group_programs.o
not_in_exercises := $(program_only)
$(foreach here,$(patsubst %/,%,$(dir $(wildcard $(chapter_dirs:%=%/chapter.mk)))),$(eval include $(here)/chapter.mk))

# ---- compiling groups ----------------------------------------------------------------------------

# $(call in_groups,files): the files, but NAME.cpp instead of those in group NAME
files_in_groups := $(foreach g,$(groups),$(files_in_$g))
in_groups = $(foreach g,$(groups),$(if $(filter $(files_in_$g),$1),$g.cpp)) $(filter-out $(files_in_groups),$1)

# $(call group_rule,build folder,flags,NAME): a .cc beside the object includes all files.
define group_rule
$1/$3.o: $(files_in_$3) Makefile common/make/groups.mk
	@mkdir -p $$(@D)
	@printf '#include "%s"\n' $(files_in_$3) >$1/$3.cc
	$$(call run,g++,$3: $(words $(files_in_$3)) files,\
	  $$(CXX) -iquote . -fmacro-prefix-map=./= $$($2) -c $1/$3.cc -o $$@)
endef
needs_cuda := common/vgpu/group_runtime common/vgpu/tests/%
plain := $(filter-out $(needs_cuda),$(filter common/vgpu/% common/json/%,$(groups)))
$(foreach g,$(filter $(needs_cuda),$(groups)),$(eval $(call group_rule,$V,vgpu_host_flags,$g)))
$(foreach g,$(plain),$(eval $(call group_rule,$P,vgpu_plain_flags,$g)))
$(foreach g,$(filter-out $(needs_cuda) $(plain),$(groups)),$(eval $(call group_rule,$H,host_flags,$g)))

# ---- optimization, where it is not the Makefile's ------------------------------------------------

# What programs spend their time in: references, loops over tensors, the executor. (The simulated SM
# would take a third longer to compile with -O3 and predict 4% faster. The checks would take half as
# long again, and a program with all of them on would be 2 to 7% faster.)
%/reference.o %/problem.o %/host/network.o $P/common/vgpu/core/%.o $P/common/vgpu/ops/%.o \
$H/common/lab/group_values.o $H/common/grader/attention_cases.o: optimize := -O3
# Flags are read once.
$H/common/lab/flags.o $H/common/grader/main.o: optimize := -O0
# What runs seldom and is a part of every first build: -Og is a fifth less work for the compiler than
# -O1, and half as much as -O3.
seldom_run := $V/common/vgpu/group_runtime.o $P/common/vgpu/group_programs.o $P/common/json/group.o \
  $H/common/lab/group.o
$(seldom_run) $(program_only) $H/common/testing/%.o: optimize := -Og
# Tests that compute much, also where a suite compiles them by themselves.
$(addprefix $V/common/vgpu/tests/,lane_%.o group_computing.o forms_random.o ptx_coverage.o): optimize := -O1
