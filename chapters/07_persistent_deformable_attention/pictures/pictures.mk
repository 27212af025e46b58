# Block 960 of simple_kernel has queries from the middle of the picture.
$(call photo,directions.jpg,--batch 1 --queries 1 --image data/images/coffee_360x240.png --size 224)
$(call trace,simple_local,simple_kernel:960,--batch 1)
$(call trace,simple_uniform,simple_kernel:960,--batch 1 --distribution uniform)
$(call trace,vectorized_local,vectorized_kernel:240,--batch 1)
$(call picture,sample_points.png,sample_points,simple_local.json \
  simple_uniform.json,92x160$(comma)46x80$(comma)23x40$(comma)12x20 32)
$(call picture,warp_loads.png,warp_loads,vectorized_local.json:value:load:0 \
  $(addprefix simple_local.json:,value:load:0 value:load:1))
$(foreach s,persistent even_shares,$(call timeline,phases_7_$s,--heads 8 --queries 4000 \
  --predict --step '$(subst _, ,$s)'))
$(call picture,warp_phases.png,warp_phases,phases_7_persistent.json:persistent_kernel:persistent \
  phases_7_even_shares.json:persistent_kernel:even_shares,137000)
