# Two programs, of which each reads flags and reports: compiled together, for little work.
$(call group,$(here)/host/group_programs,$(here)/host/program $(here)/host/style_program)
