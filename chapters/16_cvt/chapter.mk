# The programs, compiled together for little work, and what they train.
$(eval $(call group,$(here)/host/group_programs,program $(here)/dense/program $(here)/projection/program))
$(eval $(call group,$(here)/group_training,$(addprefix $(here)/,net/parameters train/data train/pictures train/trainer)))
# These run the chapter's own kernels, which the exercise does not have.
not_in_exercises += %/net/net.o %/group_training.o %/dense/problem.o
