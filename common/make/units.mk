# Which source files are compiled as one. Included by the Makefile, which says where things go.
#
# Most of a compiler's work on a small file is headers and the templates that it shares with its
# neighbours: core/ takes 27 s of processor time file by file and 11 s in groups. A file that stands
# in no group is compiled by itself. In a group names without linkage must differ, and what a file
# needs it still includes itself.

# $(call group,folder/name,files): they become the object $P (or $V, $H)/folder/name.o
groups :=
define group
groups += $1
files_of_$1 := $(patsubst %,$(dir $1)%.cpp,$2)
endef
$(eval $(call group,common/vgpu/core/group_blocks,block cluster calls random turns waiting warp warp_sync))
$(eval $(call group,common/vgpu/core/group_memory,access builtins joins memory straight))
$(eval $(call group,common/vgpu/core/group_launch,gather loading machine names spelling))
$(eval $(call group,common/vgpu/ops/group_decode,decode decode_control decode_operands forms))
$(eval $(call group,common/vgpu/ops/group_integers,integer logic warp async move video))
$(eval $(call group,common/vgpu/ops/group_floats,float convert half compare))
$(eval $(call group,common/vgpu/ops/group_memory,memory bulk atomic mbarrier tensor))
$(eval $(call group,common/vgpu/check/group_races,race race_order touches))
$(eval $(call group,common/vgpu/check/group_findings,checks race_words streams))
$(eval $(call group,common/vgpu/check/group_values,init memory_check proxy sync undefined))
$(eval $(call group,common/vgpu/ptx/group,cfg parameter_names parser parser_module parser_operand \
  parser_text paths types unassigned))
$(eval $(call group,common/vgpu/profile/group_reports,devices limits occupancy output_file report_json \
  report_text source_lines trace))
$(eval $(call group,common/vgpu/profile/group_timeline,predicted timeline timeline_json))
$(eval $(call group,common/vgpu/profile/group_cache,cache cache_model))
$(eval $(call group,common/vgpu/time/group_code,annotate code_cache cubin_code debug_line \
  machine_code opcodes))
$(eval $(call group,common/vgpu/time/group_sm,recording sm sm_units))
$(eval $(call group,common/vgpu/time/group_walk,kernel_time timing walk walk_steps))
$(eval $(call group,common/vgpu/runtime/group,allocate capture copy cubin fatbin graph launch \
  modules order runtime settings status stream time_table transfer watched_machine))
$(eval $(call group,common/vgpu/cudart/group,capture copy device face function graph graph_exec graph_nodes \
  launch library memory pool register stream vgpu_c))
$(eval $(call group,common/json/group,json nlohmann))
$(eval $(call group,common/lab/group_flags,flags))
$(eval $(call group,common/lab/group,device files images program progress report sources table tensors \
  timing))
$(eval $(call group,common/attention/group,all heat_map ladder program))

# $(call units,files): what is compiled instead, as if it were files
units = $(foreach g,$(groups),$(if $(filter $(files_of_$g),$1),$g.cpp)) \
  $(filter-out $(foreach g,$(groups),$(files_of_$g)),$1)

# The file that includes them all lies beside the object.
define group_rule
$1/$2.o: $(files_of_$2) Makefile common/make/units.mk
	@mkdir -p $$(@D)
	@printf '#include "%s"\n' $(files_of_$2) >$1/$2.cc
	$$(call run,g++,$(patsubst %/,%,$(dir $2)): $(basename $(notdir $(files_of_$2))),\
	  $$(CXX) -iquote . $$($3) -c $1/$2.cc -o $$@)
endef
$(foreach g,$(groups),$(eval $(if $(filter common/vgpu/runtime/% common/vgpu/cudart/%,$g), \
  $(call group_rule,$V,$g,vgpu_host_flags), $(if $(filter common/vgpu/% common/json/%,$g), \
  $(call group_rule,$P,$g,vgpu_plain_flags), $(call group_rule,$H,$g,host_flags)))))
