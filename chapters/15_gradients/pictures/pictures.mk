# The rows that a block touches, and what a patch's gradient says of the keys.
$(call trace,walk_15,tensor_kernel:1,--step 'tensor cores' --tokens 320 --heads 1)
$(call trace,walk_15_rows,rows_kernel:1,--step deterministic --tokens 320 --heads 1)
$(call picture,block_walks.png,block_walks,walk_15.json:tensor_cores \
  walk_15_rows.json:rows_of_deterministic,320 K+V:load:128 Q+dO:load:128 workspace:atomic:256:dQ \
  dK+dV:store:128 dQ:store:128 --)
$(call photo,gradients.jpg,--step 'tensor cores')
