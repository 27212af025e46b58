$(call trace,coalescing_4,coalescing::attention_kernel:0)
$(call trace,wmma,wmma_attention:0)
$(call picture,warp_loads.png,warp_loads,wmma.json:K:load:20 coalescing_4.json:K:load:0 \
  wmma.json:V:load:20)
$(call picture,fragment_layout.png,fragment_layout,wmma.json,72 5)
$(call timeline,phases_4a,--batch 32 --tokens 197 --predict --step wmma)
$(call timeline,phases_4b,--batch 32 --tokens 197 --predict --step '4 loads at a time')
$(call picture,warp_phases.png,warp_phases,phases_4a.json:attention_kernel:wmma \
  phases_4b.json:attention_kernel:4_loads_at_a_time,41000)
