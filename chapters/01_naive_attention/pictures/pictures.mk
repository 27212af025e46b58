$(call photo,attention.jpg,--image data/images/rocket.jpg --patch 4$(comma)6)
$(call trace,scores,scores_kernel:0)
$(call trace,values,values_kernel:0)
$(call picture,warp_loads.png,warp_loads,$(addprefix scores.json:,K:load:20 Q:load:20 \
  scores:store:0) $(addprefix values.json:,V:load:20 scores:load:20))
