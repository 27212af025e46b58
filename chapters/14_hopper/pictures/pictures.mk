# The life of the ring's stages, of nine whole tiles.
$(call timeline,ring_14,--batch 32 --tokens 576 --predict)
$(call picture,ring_life.png,ring_life,ring_14.json:tensor_maps_kernel:tensor_maps,4:9)
$(call picture,warp_phases.png,warp_phases,ring_14.json:tensor_maps_kernel:tensor_maps \
  ring_14.json:wgmma_kernel:wgmma ring_14.json:specialized_kernel:specialized,30000)
