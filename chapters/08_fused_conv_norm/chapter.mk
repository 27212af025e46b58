# Two programs, of which each reads flags and reports: compiled together, for little work.
$(eval $(call group,$(here)/host/group_programs,program style_program))
