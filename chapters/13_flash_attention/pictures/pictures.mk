# What the warps of a block do, before and after copies run ahead.
$(call timeline,phases_13,--batch 32 --tokens 197 --predict)
$(call picture,warp_phases.png,warp_phases,phases_13.json:registers_kernel:registers \
  phases_13.json:pipeline_kernel:pipeline,17000)
