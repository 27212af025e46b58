# The flags and reports, compiled together for little work, and what the net is made of.
$(call group,$(here)/host/group_programs,$(addprefix $(here)/host/,options lines report projection problem run))
$(call group,$(here)/host/group_weights,$(addprefix $(here)/host/,plan resample weights))
