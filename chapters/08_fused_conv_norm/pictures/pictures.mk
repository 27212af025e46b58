$(call photo,responses.jpg,--size 160)
$(call drawing,bytes_moved.png,bytes_moved,$T/docs/chapter8.json)
# Two blocks of one SM, of which the second computes longer: who waits at the barrier of the grid.
$(call timeline,phases_8,--step fused --predict)
$(call picture,grid_barrier.png,warp_phases,phases_8.json:fused_kernel@112:block_112 \
  phases_8.json:fused_kernel@244:block_244,110000)
$(call drawing,roofline.png,roofline,$(results)/gains.json,'fused conv norm' 8-8 preset=deep)
