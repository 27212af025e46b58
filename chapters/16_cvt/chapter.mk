# The programs, compiled together for little work.
$(call group,$(here)/group_programs,$(addprefix $(here)/,dense/program projection/program))
# This runs the chapter's own kernels, which the exercise does not have.
not_in_exercises += %/dense/problem.o
