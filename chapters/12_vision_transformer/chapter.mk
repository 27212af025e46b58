# The programs, compiled together for little work, and what they run.
$(call group,$(here)/host/group_programs,$(addprefix $(here)/host/,program projection run))
$(call group,$(here)/host/group_weights,$(addprefix $(here)/host/,plan resample weights))
