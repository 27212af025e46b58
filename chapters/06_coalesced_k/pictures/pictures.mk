# The same before and after, and its step without padding.
phases_6 := multi-warp coalesced_K
$(foreach s,$(phases_6),$(call timeline,phases_6_$s,--batch 32 --tokens 197 --predict --step \
  '$(subst _, ,$s)'))
$(call picture,warp_phases.png,warp_phases,$(foreach s,$(phases_6),phases_6_$s.json:attention_kernel:$s),27000)
$(call trace,no_padding_6,no_padding:0,--step 'no padding')
$(call picture,padding.png,warp_banks,no_padding_6.json:load16:4:without_padding \
  coalesced_k.json:load16:4:padded_by_16_bytes)
$(call drawing,roofline.png,roofline,$(results)/gains.json,attention 1-6)
$(call trace,multi_warp,multi_warp:0)
$(call trace,coalesced_k,coalesced_k:0)
$(call picture,warp_loads.png,warp_loads,multi_warp.json:K:load:4 \
  $(addprefix coalesced_k.json:,K:load:4 V:load:4))
$(call picture,warp_banks.png,warp_banks,multi_warp.json:store2:0 coalesced_k.json:store16:4)
$(call look,look.png,block coalesced_k 'block.k[j][d]')
