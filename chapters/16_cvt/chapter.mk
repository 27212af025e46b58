# These run the chapter's own kernels, which the exercise does not have.
not_in_exercises += $H/$(here)/host/components.o $H/$(here)/host/projection_steps.o
$H/$(here)/host/components.o $H/$(here)/host/projection.o: optimize := -O3
