# The programs, compiled together for little work, and what they train.
$(call group,$(here)/host/group_programs,$(addprefix $(here)/,host/program dense/program projection/program))
$(call group,$(here)/group_training,$(addprefix $(here)/,net/parameters train/*))
# These run the chapter's own kernels, which the exercise does not have.
not_in_exercises += %/net/net.o %/group_training.o %/dense/problem.o
