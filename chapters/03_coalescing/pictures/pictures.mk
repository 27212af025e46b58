$(call trace,tiling,tiling::attention_kernel:0)
$(call trace,coalescing,coalescing::attention_kernel:0)
$(call picture,warp_loads.png,warp_loads,tiling.json:K:load:20 \
  $(addprefix coalescing.json:,K:load:0 V:load:0 O:store:0))
$(call trace,no_padding_3,no_padding::attention_kernel:0,--step 'no padding')
$(call trace,padded_3,coalesced_loads::attention_kernel:0,--step 'coalesced loads')
$(call picture,warp_banks.png,warp_banks,no_padding_3.json:load16:0:without_padding:8 \
  padded_3.json:load16:0:with_8_halves_of_padding)
$(call look,look.png,source tiling 'row_global[d]' sectors)
