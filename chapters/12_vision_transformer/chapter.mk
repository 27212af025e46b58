# The programs, compiled together for little work, and what they run.
$(eval $(call group,$(here)/host/group_programs,program projection run))
$(eval $(call group,$(here)/host/group_weights,plan resample weights))
