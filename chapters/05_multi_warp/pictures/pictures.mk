# What the warps of a block do, a run for each number of warps, since all kernels have one name.
phases_5 := wmma 4_warps 8_warps 16_warps
$(foreach s,$(phases_5),$(call timeline,phases_5_$s,--batch 32 --tokens 197 --predict --step \
  '$(subst _, ,$s)'))
$(call picture,warp_phases.png,warp_phases,$(foreach s,$(phases_5),phases_5_$s.json:attention_kernel:$(s:wmma=1_warp)),32000)
