# Which source files are compiled as one. Included by the Makefile, which says where things go.
#
# Most of a compiler's work on a small file is headers and the templates that it shares with its
# neighbours: core/ takes 27 s of processor time file by file and 9 s in groups, the virtual GPU's
# tests 140 s and 53 s. A file that stands in no group is compiled by itself. In a group names without
# linkage must differ, of functions also where their parameters do: the better match might be a
# neighbour's. What a file needs it still includes itself; a suite's files are compiled one by one.

# $(call group,folder/name,files,prefix,suffix): they become the object $P (or $V, $H)/folder/name.o; a
# file of another folder is named from common/, from common/vgpu or from chapters/ on; what all names
# begin and end with may be named once
groups :=
define group
groups += $1
files_of_$1 := $(foreach f,$(patsubst %,$3%$4,$2),$(if $(filter common/% chapters/%,$f),,\
  $(if $(findstring /,$f),common/vgpu/,$(dir $1)))$f.cpp)
endef
$(eval $(call group,common/vgpu/core/group,block cluster calls random turns waiting warp warp_sync \
  access builtins joins memory straight ptx/skip_body))
$(eval $(call group,common/vgpu/ops/group_integers,integer logic warp async move video))
$(eval $(call group,common/vgpu/ops/group_floats,float convert half compare warpgroup warpgroup_product))
$(eval $(call group,common/vgpu/ops/group_memory,memory bulk atomic mbarrier tensor))
$(eval $(call group,common/vgpu/group_watchers,\
  $(addprefix check/,bounds finite race race_order touches init memory_check proxy sync undefined warpgroup) \
  $(addprefix profile/,cache cache_model)))
# (The copy engine's tensor maps are compiled as the time is, with -O1.)
$(eval $(call group,common/vgpu/time/group,recording recording_layout recording_copies sm sm_units sm_barriers \
  kernel_time timing \
  walk walk_way walk_steps ops/tensor_copy ops/tensor_map core/tensor_map))
# What runs a few times a program or a launch, compiled for little work: from text to a launch, and what is
# said of it,
$(eval $(call group,common/vgpu/group_programs,$(addprefix ptx/,cfg parameter_names parser parser_module \
  parser_operand parser_text paths types unassigned) \
  $(addprefix ops/,decode decode_control decode_operands decode_warpgroup forms) \
  $(addprefix core/,deadlock gather host_threads loading machine names spelling) \
  $(addprefix check/,checks fault_handler finite_words host_guard race_words streams) \
  $(addprefix profile/,devices limits occupancy output_file report_json report_text source_lines trace \
    predicted timeline timeline_json) $(addprefix look/,accesses code look warps) \
  $(addprefix time/,annotate assembler code_cache cubin_code debug_line machine_code opcodes)))
# and CUDA's runtime.
$(eval $(call group,common/vgpu/group_runtime,$(addprefix runtime/,allocate capture copy cubin fatbin graph \
  launch modules order runtime settings status stream time_table transfer watched_machine) \
  $(addprefix cudart/,capture copy device face function graph graph_exec graph_nodes launch library memory \
    pool register stream tensor_map vgpu_c)))
$(eval $(call group,common/json/group,json nlohmann))
$(eval $(call group,common/lab/group_flags,flags))
$(eval $(call group,common/lab/group,device files images program progress report report_files report_table \
  sources table tensors timing $(addprefix common/attention/,all heat_map program results)))
# The grader without its flags (main), which only a program without a main() of its own takes from the archive.
$(eval $(call group,common/grader/group,build child counters directives files grader hints isolation process report student \
  symptoms together))
# What tests share. Exercises take what needs no doctest, whose archive has a main().
$(eval $(call group,common/testing/group,preload testing))
$(eval $(call group,common/testing/group_checks,checks common/attention/test_cases common/attention/test_ladder))
$(eval $(call group,common/lab/tests/group,all compare device files images json look options problems report \
  sources tensors,,_test))
$(eval $(call group,common/lab/tests/bad_input/group,bad_input flags images outputs scripts tensors total))
$(eval $(call group,common/grader/tests/group,bad_input careless cheats grader hints reports uncounted))
# A chapter's tests. In one with several test programs those that have cases: what these share is a file
# of its own, which the other programs take from the chapter's archive without the cases.
chapter_cases := $(shell grep -l TEST_CASE /dev/null $(wildcard chapters/*/tests/test_*.cpp))
tests_together = $(filter-out %/test_exercise.cpp,$(if $(wildcard $1/tests/test_*.cu),\
  $(filter $1/%,$(chapter_cases)),$(wildcard $1/tests/test_*.cpp)))
$(foreach d,$(chapter_dirs),$(if $(word 2,$(call tests_together,$d)),\
  $(eval $(call group,$d/group_tests,$(basename $(call tests_together,$d))))))
# What is special about a chapter it says in a chapter.mk of its own, in which `here` is its folder: which of its files
# are compiled together, and
#   objects_taken_by_$(here)  objects of other chapters that its program and its tests are linked with
#   not_in_exercises          objects, as patterns, that its exercise does without
#   cub_device_cu             kernels whose host half chooses by the architecture, as CUB's does
cub_device_cu :=
not_in_exercises := %/program.o %/options.o %/input.o %/report.o %/group_programs.o
$(foreach here,$(patsubst %/,%,$(dir $(wildcard $(chapter_dirs:%=%/chapter.mk)))),$(eval include $(here)/chapter.mk))
# Tests of the exercises: of each chapter a table and few lines.
$(eval $(call group,common/grader/tests/group_points,$(basename $(wildcard chapters/*/tests/test_exercise.cpp))))
# Loops over tensors.
$(eval $(call group,common/lab/group_values,compare common/attention/inputs))
# Tests of the virtual GPU by subject. (Two stand alone: main brings doctest's functions, lane_operations
# shows how little it includes.)
$(eval $(call group,common/vgpu/tests/group_check,bounds cluster copies finite init known proxy race race_blocks sync \
  tensor warpgroup,check_))
$(eval $(call group,common/vgpu/tests/group_core,builtins calls control counters deadlock faults host_threads \
  hostile lanes names parser random schedule spinning turns waiting zz_forms,core_))
$(eval $(call group,common/vgpu/tests/group_memory,$(addprefix core_,atomics bulk layout memory tensor tensor_map \
  tensor_replace) forms_matrices))
$(eval $(call group,common/vgpu/tests/group_clusters,core_cluster core_cluster_mbarrier core_mbarrier core_warpgroup \
  forms_warpgroup))
$(eval $(call group,common/vgpu/tests/group_forms,$(addprefix forms_,cases compare conversions floats integers logic \
  order video) table_of_forms))
$(eval $(call group,common/vgpu/tests/group_computing,forms_approximations forms_planted forms_random lane_conversions \
  profile_coalescing))
$(eval $(call group,common/vgpu/tests/group_profile,$(addprefix profile_,cache devices report timeline trace) \
  look_data look_warps))
$(eval $(call group,common/vgpu/tests/group_runtime,$(addprefix runtime_,driver exit fatbin settings status) rooms))
$(eval $(call group,common/vgpu/tests/group_time,machine_code machine_code_faults opcodes sm table,time_))

# $(call units,files): what is compiled instead, as if it were files
units = $(foreach g,$(groups),$(if $(filter $(files_of_$g),$1),$g.cpp)) \
  $(filter-out $(foreach g,$(groups),$(files_of_$g)),$1)
# The same in a suite, which takes some of the files: each by itself.
units_used = $(if $(SUITE),$1,$(call units,$1))

# "common/lab: device files images"; of several folders "common/vgpu/: cudart runtime (32 files)"
folders_of = $(patsubst %/,%,$(sort $(dir $1)))
told = $(if $(word 2,$(folders_of)),$(dir $(firstword $(folders_of))): $(if $(word 9,$(folders_of)),$(words \
  $(folders_of)) folders,$(notdir $(folders_of))) ($(words $1) files),\
  $(folders_of): $(basename $(notdir $1)))

# The file that includes them all lies beside the object.
define group_rule
$1/$2.o: $(files_of_$2) Makefile common/make/units.mk
	@mkdir -p $$(@D)
	@printf '#include "%s"\n' $(files_of_$2) >$1/$2.cc
	$$(call run,g++,$(strip $(call told,$(files_of_$2))),\
	  $$(CXX) -iquote . -fmacro-prefix-map=./= $$($3) -c $1/$2.cc -o $$@)
endef
$(foreach g,$(groups),$(eval $(if $(filter common/vgpu/group_runtime common/vgpu/tests/%,$g), \
  $(call group_rule,$V,$g,vgpu_host_flags), $(if $(filter common/vgpu/% common/json/%,$g), \
  $(call group_rule,$P,$g,vgpu_plain_flags), $(call group_rule,$H,$g,host_flags)))))
