# The lessons' pictures, all drawn by `make figures` from runs of the virtual H200. Included by the
# Makefile, which says where things go; $D is the programs' folder, $T/docs that of the traces.
#
#   $(call trace,NAME,CHAPTER,KERNEL:BLOCK,FLAGS)   the trace $T/docs/NAME.json of one block, in a run of
#                                                   that chapter's program
#   $(call picture,FILE,SCRIPT,PANELS,OPTIONS)      FILE in chapters/, drawn by common/workshop/figures/SCRIPT.py;
#                                                   each panel begins with NAME.json of a trace
#   $(call look,FILE,CHAPTER,VIEW)                  FILE in chapters/: a look inside that chapter's program,
#                                                   as common/vgpu/look/tests/screenshot.py shows it

# --out belongs to a photo: random tensors (--tokens, --preset) have none.
define trace_rule
$T/docs/$1.json: $D/chapter$2 $V/libvgpu.so
	@mkdir -p $$(@D)
	$(docs_env) VGPU_TRACE=$3:$$@ $$< $4 $(if $(findstring --tokens,$4)$(findstring --preset,$4),,--out $$(@:.json=.png)) \
	  | tail -n 1
endef
define picture_rule
pictures += chapters/$1
chapters/$1: $(addprefix $T/docs/,$(sort $(foreach p,$3,$(firstword $(subst :, ,$p)))))
	'$$(python_plot)' common/workshop/figures/$2.py $$@ $4 $(addprefix $T/docs/,$3)
endef
# $(call timeline,NAME,CHAPTER,FLAGS): the timeline $T/docs/NAME.json of a run.
define timeline_rule
$T/docs/$1.json: $D/chapter$2 $V/libvgpu.so
	@mkdir -p $$(@D)
	$(docs_env) VGPU_TIME=1 VGPU_TIMELINE=$$@ $$< $3 $(if $(findstring --tokens,$3)$(findstring --predict,$3),,--out $$(@:.json=.png)) \
	  | tail -n 1
endef
# Without a Chromium such a picture stays as it is, and that is said.
define look_rule
pictures += chapters/$1
$T/docs/look_$2.html: $D/chapter$2 $V/libvgpu.so
	@mkdir -p $$(@D)
	$(docs_env) $$< --tokens 197 --look $$@ | tail -n 1
chapters/$1: $T/docs/look_$2.html
	common/vgpu/look/tests/screenshot.py $$@ $$< $3 || test $$$$? = 3
endef
trace = $(eval $(trace_rule))
look = $(eval $(look_rule))
picture = $(eval $(picture_rule))
timeline = $(eval $(timeline_rule))

# Chapter 0
pictures += chapters/00_a_first_kernel/pictures/blurred.jpg chapters/00_a_first_kernel/pictures/memories.png
chapters/00_a_first_kernel/pictures/blurred.jpg: $D/chapter0 $V/libvgpu.so
	$(docs_env) $< --out $@ | tail -n 1
chapters/00_a_first_kernel/pictures/memories.png:
	'$(python_plot)' common/workshop/figures/memories.py $@ common/vgpu/profile/devices/h200.json common/vgpu/time/timing.cpp
$(call trace,grey_columns,0,grey_columns_kernel:0)
$(call trace,grey_rows,0,grey_rows_kernel:0)
$(call picture,00_a_first_kernel/pictures/warp_loads.png,warp_loads,grey_columns.json:photo:load:0 \
  grey_rows.json:photo:load:0 grey_rows.json:grey:store:0)

# Chapter 1
pictures += chapters/01_naive_attention/pictures/attention.jpg
chapters/01_naive_attention/pictures/attention.jpg: $D/chapter1 $V/libvgpu.so
	$(docs_env) $< --image data/images/rocket.jpg --patch 4,6 --out $@ | tail -n 1
$(call trace,scores,1,scores_kernel:0)
$(call trace,values,1,values_kernel:0)
$(call picture,01_naive_attention/pictures/warp_loads.png,warp_loads,$(addprefix scores.json:,K:load:20 Q:load:20 \
  scores:store:0) $(addprefix values.json:,V:load:20 scores:load:20))

# Chapter 2
$(call trace,scores_128,2,scores_kernel:0,--tokens 128)
$(call trace,tiling_128,2,tiling::attention_kernel:0,--tokens 128)
$(call picture,02_tiling/pictures/score_blocks.png,score_blocks,scores_128.json tiling_128.json,128 64)
$(call trace,tiling_197,2,tiling::attention_kernel:0,--tokens 197 --head-dim 32 --step tiling)
$(call picture,02_tiling/pictures/tile_walk.png,tile_walk,tiling_197.json,197 32)

# Chapter 3
$(call trace,tiling,3,tiling::attention_kernel:0)
$(call trace,coalescing,3,coalescing::attention_kernel:0)
$(call picture,03_coalescing/pictures/warp_loads.png,warp_loads,tiling.json:K:load:20 \
  $(addprefix coalescing.json:,K:load:0 V:load:0 O:store:0))
$(call trace,no_padding_3,3,coalesced_loads::attention_kernel:0,--step 'no padding')
$(call trace,padded_3,3,coalesced_loads::attention_kernel:0,--step 'coalesced loads')
$(call picture,03_coalescing/pictures/warp_banks.png,warp_banks,no_padding_3.json:load16:0:without_padding:8 \
  padded_3.json:load16:0:with_8_halves_of_padding)
$(call look,03_coalescing/pictures/look.png,3,source tiling 'row_global[d]' sectors)

# Chapter 4
$(call trace,coalescing_4,4,coalescing::attention_kernel:0)
$(call trace,wmma,4,wmma_attention:0)
$(call picture,04_wmma/pictures/warp_loads.png,warp_loads,wmma.json:K:load:20 coalescing_4.json:K:load:0 \
  wmma.json:V:load:20)
$(call picture,04_wmma/pictures/fragment_layout.png,fragment_layout,wmma.json,72 5)
$(call timeline,phases_4a,4,--batch 32 --tokens 197 --predict --step wmma)
$(call timeline,phases_4b,4,--batch 32 --tokens 197 --predict --step '4 loads at a time')
$(call picture,04_wmma/pictures/warp_phases.png,warp_phases,phases_4a.json:attention_kernel:wmma \
  phases_4b.json:attention_kernel:4_loads_at_a_time,41000)

# Chapter 5: what the warps of a block do, a run for each number of warps, since all kernels have one name.
phases_5 := wmma 4_warps 8_warps 16_warps
$(foreach s,$(phases_5),$(call timeline,phases_5_$s,5,--batch 32 --tokens 197 --predict \
  --step '$(subst _, ,$s)'))
$(call picture,05_multi_warp/pictures/warp_phases.png,warp_phases,$(foreach s,$(phases_5),\
  phases_5_$s.json:attention_kernel:$(s:wmma=1_warp)),32000)

# Chapter 6: the same before and after, and its step without padding.
phases_6 := multi-warp coalesced_K
$(foreach s,$(phases_6),$(call timeline,phases_6_$s,6,--batch 32 --tokens 197 --predict \
  --step '$(subst _, ,$s)'))
$(call picture,06_coalesced_k/pictures/warp_phases.png,warp_phases,$(foreach s,$(phases_6),\
  phases_6_$s.json:attention_kernel:$s),27000)
$(call trace,no_padding_6,6,coalesced_k:0,--step 'no padding')
$(call picture,06_coalesced_k/pictures/padding.png,warp_banks,no_padding_6.json:load16:4:without_padding \
  coalesced_k.json:load16:4:padded_by_16_bytes)
pictures += chapters/06_coalesced_k/pictures/roofline.png
chapters/06_coalesced_k/pictures/roofline.png: data/results/virtual_h200/gains.json
	'$(python_plot)' common/workshop/figures/roofline.py $@ $< attention 1-6
$(call trace,multi_warp,6,multi_warp:0)
$(call trace,coalesced_k,6,coalesced_k:0)
$(call picture,06_coalesced_k/pictures/warp_loads.png,warp_loads,multi_warp.json:K:load:4 \
  $(addprefix coalesced_k.json:,K:load:4 V:load:4))
$(call picture,06_coalesced_k/pictures/warp_banks.png,warp_banks,multi_warp.json:store2:0 coalesced_k.json:store16:4)

# What was measured, and the virtual GPU's limits: all result folders.
result_folders := $(patsubst %/,%,$(dir $(wildcard data/results/*/chapter1.json)))
.PHONY: $(result_folders)
pictures += $(result_folders)
$(result_folders):
	@'$(python_plot)' common/workshop/figures/measured.py $@

$(call look,06_coalesced_k/pictures/look.png,6,block coalesced_k 'tiles.k[j][d]')

# Chapter 7: block 960 of simple_kernel has queries from the middle of the picture.
pictures += chapters/07_persistent_deformable_attention/pictures/directions.jpg
chapters/07_persistent_deformable_attention/pictures/directions.jpg: $D/chapter7 $V/libvgpu.so
	$(docs_env) $< --batch 1 --queries 1 --image data/images/coffee_360x240.png --size 224 \
	  --out $@ | tail -n 1
$(call trace,simple_local,7,simple_kernel:960,--batch 1)
$(call trace,simple_uniform,7,simple_kernel:960,--batch 1 --distribution uniform)
$(call trace,vectorized_local,7,vectorized_kernel:240,--batch 1)
$(call picture,07_persistent_deformable_attention/pictures/sample_points.png,sample_points,simple_local.json \
  simple_uniform.json,92x160$(comma)46x80$(comma)23x40$(comma)12x20 32)
$(call picture,07_persistent_deformable_attention/pictures/warp_loads.png,warp_loads,vectorized_local.json:value:load:0 \
  $(addprefix simple_local.json:,value:load:0 value:load:1))
$(foreach s,persistent even_shares,$(call timeline,phases_7_$s,7,--heads 8 --queries 4000 --predict \
  --step '$(subst _, ,$s)'))
$(call picture,07_persistent_deformable_attention/pictures/warp_phases.png,warp_phases,\
  phases_7_persistent.json:persistent_kernel:persistent \
  phases_7_even_shares.json:persistent_kernel:even_shares,137000)

# Chapter 8
pictures += chapters/08_fused_conv_norm/pictures/responses.jpg chapters/08_fused_conv_norm/pictures/bytes_moved.png
chapters/08_fused_conv_norm/pictures/responses.jpg: $D/chapter8 $V/libvgpu.so
	$(docs_env) $< --size 160 --out $@ | tail -n 1
chapters/08_fused_conv_norm/pictures/bytes_moved.png: $T/docs/chapter8.json
	'$(python_plot)' common/workshop/figures/bytes_moved.py $@ $<
# Two blocks of one SM, of which the second computes longer: who waits at the barrier of the grid.
$(call timeline,phases_8,8,--step fused --predict)
$(call picture,08_fused_conv_norm/pictures/grid_barrier.png,warp_phases,phases_8.json:fused_kernel@112:block_112 \
  phases_8.json:fused_kernel@244:block_244,110000)
pictures += chapters/08_fused_conv_norm/pictures/roofline.png
chapters/08_fused_conv_norm/pictures/roofline.png: data/results/virtual_h200/gains.json
	'$(python_plot)' common/workshop/figures/roofline.py $@ $< 'fused conv norm' 8-8 preset=deep

# Chapter 9: six outputs by each step, and all tokens by the last. A title has _ for blanks.
$(call timeline,steps_9a,9,--part 1x6 --step 'channel launches')
$(call timeline,steps_9b,9,--part 1x6 --step unified)
$(call timeline,steps_9c,9,--part 1x6 --step '4 streams')
$(call timeline,steps_9d,9,--part 1x6 --step resident)
$(call timeline,steps_9e,9,--part 1x6 --step graph)
$(call timeline,steps_9f,9,--step 'one product')
gantt_panels := steps_9a.json:channel_launches,_6_outputs steps_9b.json:unified,_6_outputs \
  steps_9c.json:4_streams,_6_outputs steps_9d.json:resident,_6_outputs steps_9e.json:graph,_6_outputs \
  steps_9f.json:one_product,_all_37,632_outputs
pictures += chapters/09_patch_embedding/pictures/tokens.jpg
chapters/09_patch_embedding/pictures/tokens.jpg: $D/chapter9 $V/libvgpu.so
	$(docs_env) $< --step 'one product' --out $@ | tail -n 1
$(call picture,09_patch_embedding/pictures/gantt.png,gantt,$(gantt_panels),80)

# Over batch and image size, chapters 9 and 12: from the reference that `make bench DEVICE=vgpu` writes.
pictures += chapters/09_patch_embedding/pictures/sweeps.png chapters/12_vision_transformer/pictures/sweeps.png
chapters/09_patch_embedding/pictures/sweeps.png: data/results/virtual_h200/sweeps.json
	'$(python_plot)' common/workshop/figures/sweeps_embedding.py $@ $<
chapters/12_vision_transformer/pictures/sweeps.png: data/results/virtual_h200/sweeps.json
	'$(python_plot)' common/workshop/figures/sweeps_net.py $@ $<

# Chapter 11: three layouts of a tile, and the way of one through the last step's kernel.
$(foreach l,no_padding pipeline swizzle,$(call trace,tile_$l,11,pipeline_kernel:0,--preset tiny \
  --step '$(subst _, ,$l)'))
$(call picture,11_mlp/pictures/tile_layouts.png,tile_layouts,tile_no_padding.json:no_padding \
  tile_pipeline.json:padded tile_swizzle.json:swizzled,x:384)
$(call trace,tile_life,11,epilogue_kernel:0,--tokens 64 --width 384 --hidden 128 --step epilogue)
$(call picture,11_mlp/pictures/tile_life.png,tile_life,tile_life.json,x:768 hidden:256)

# Chapter 12: what each component costs, which array lies where.
pictures += chapters/12_vision_transformer/pictures/component_shares.png \
  chapters/12_vision_transformer/pictures/memory_plan.png
chapters/12_vision_transformer/pictures/component_shares.png: data/results/virtual_h200/sweeps.json
	'$(python_plot)' common/workshop/figures/component_shares.py $@ $<
chapters/12_vision_transformer/pictures/memory_plan.png: $T/docs/sweep-net-simple-1-224.json
	'$(python_plot)' common/workshop/figures/memory_plan.py $@ $<

# Chapter 10: the normalized photo, the first loads of a warp, predicted times over the rows.
pictures += chapters/10_layer_norm/pictures/normalized.jpg chapters/10_layer_norm/pictures/over_rows.png
chapters/10_layer_norm/pictures/normalized.jpg: $D/chapter10 $V/libvgpu.so
	$(docs_env) $< --step vector --out $@ | tail -n 1
norm_batches := 1 4 16 64 256
define norm_rows_rule
$T/docs/norm-rows-$1.json: $D/chapter10 $V/libvgpu.so
	@mkdir -p $$(@D)
	$(docs_env) $$< --predict --batch $1 --json $$@ | tail -n 1
endef
$(foreach b,$(norm_batches),$(eval $(call norm_rows_rule,$b)))
chapters/10_layer_norm/pictures/over_rows.png: $(norm_batches:%=$T/docs/norm-rows-%.json)
	'$(python_plot)' common/workshop/figures/over_rows.py $@ $^
$(call trace,norm_warp,10,warp_kernel:0)
$(call trace,norm_vector,10,vector_kernel:0)
$(call picture,10_layer_norm/pictures/warp_loads.png,warp_loads,norm_vector.json:x:load:0 norm_warp.json:x:load:0)

# Chapter 13: what the warps of a block do, before and after copies run ahead.
$(call timeline,phases_13,13,--batch 32 --tokens 197 --predict)
$(call picture,13_flash_attention/pictures/warp_phases.png,warp_phases,phases_13.json:registers_kernel:registers \
  phases_13.json:pipeline_kernel:pipeline,17000)

# Chapter 14: the life of the ring's stages, of nine whole tiles.
$(call timeline,ring_14,14,--batch 32 --tokens 576 --predict)
$(call picture,14_hopper/pictures/ring_life.png,ring_life,ring_14.json:tensor_maps_kernel:tensor_maps,4:9)
$(call picture,14_hopper/pictures/warp_phases.png,warp_phases,ring_14.json:tensor_maps_kernel:tensor_maps \
  ring_14.json:wgmma_kernel:wgmma ring_14.json:specialized_kernel:specialized,30000)

# Chapter 15: the rows that a block touches, and what one patch's gradient says of the keys.
$(call trace,walk_15,15,tensor_kernel:1,--step 'tensor cores' --tokens 320 --heads 1)
$(call trace,walk_15_rows,15,rows_kernel:1,--step deterministic --tokens 320 --heads 1)
$(call picture,15_gradients/pictures/block_walks.png,block_walks,walk_15.json:tensor_cores \
  walk_15_rows.json:rows_of_deterministic,320 K+V:load:128 Q+dO:load:128 workspace:atomic:256:dQ \
  dK+dV:store:128 dQ:store:128 --)
pictures += chapters/15_gradients/pictures/gradients.jpg
chapters/15_gradients/pictures/gradients.jpg: $D/chapter15 $V/libvgpu.so
	$(docs_env) $< --step 'tensor cores' --out $@ | tail -n 1

# Chapter 15: where the gradient of deformable attention is.
pictures += chapters/15_gradients/pictures/gradient.jpg
chapters/15_gradients/pictures/gradient.jpg: $D/chapter15 $V/libvgpu.so
	$(docs_env) $< --deformable --queries 1 --size 96 --step sorted --out $@ | tail -n 1

# Chapter 16: the bytes of one training step, by operation.
pictures += chapters/16_cvt/pictures/step_bytes.png
$T/docs/step_16.json: $D/chapter16 $V/libvgpu.so
	@mkdir -p $(@D)
	$(docs_env) VGPU_PROFILE=json:$@ $< --steps 1 --out $(@:.json=.png) | tail -n 1
chapters/16_cvt/pictures/step_bytes.png: $T/docs/step_16.json
	'$(python_plot)' common/workshop/figures/step_bytes.py $@ $<

# Pictures are drawn each time, traces when a program has changed. Last, since it takes all of them.
.PHONY: figures $(pictures)
figures: $(if $(filter figures,$(MAKECMDGOALS)),$(if $(python_plot),$(pictures)))
	@if [ -z '$(python_plot)' ]; then echo 'make figures needs matplotlib; on Debian or Ubuntu:' \
	  'apt-get install python3-matplotlib' >&2; exit 3; fi
