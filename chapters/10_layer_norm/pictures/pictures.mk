# The normalized photo, the first loads of a warp, predicted times over the rows.
$(call photo,normalized.jpg,--step vector)
norm_batches := 1 4 16 64 256
$(foreach b,$(norm_batches),$(call docs_run,norm-rows-$b,,--predict --batch $b --json $$@))
$(call drawing,over_rows.png,over_rows,$(norm_batches:%=$T/docs/norm-rows-%.json))
$(call trace,norm_warp,warp_kernel:0)
$(call trace,norm_vector,vector_kernel:0)
$(call picture,warp_loads.png,warp_loads,norm_vector.json:x:load:0 norm_warp.json:x:load:0)
