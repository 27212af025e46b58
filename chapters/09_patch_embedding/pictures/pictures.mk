# Six outputs by each step, and all tokens by the last. A title has _ for blanks.
steps_9 := channel_launches unified 4_streams resident graph
$(foreach s,$(steps_9),$(call timeline,steps_9_$s,--part 1x6 --step '$(subst _, ,$s)'))
$(call timeline,steps_9_one_product,--step 'one product')
gantt_panels := $(foreach s,$(steps_9),steps_9_$s.json:$s,_6_outputs) \
  steps_9_one_product.json:one_product,_all_37,632_outputs
$(call photo,tokens.jpg,--step 'one product')
$(call picture,gantt.png,gantt,$(gantt_panels),80)
$(call drawing,sweeps.png,sweeps_embedding,$(results)/sweeps.json)
