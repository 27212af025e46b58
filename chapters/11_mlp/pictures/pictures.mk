# Three layouts of a tile, and the way of one through the last step's kernel.
$(foreach l,no_padding pipeline swizzle,$(call trace,tile_$l,pipeline_kernel:0,--preset tiny \
  --step '$(subst _, ,$l)'))
$(call picture,tile_layouts.png,tile_layouts,tile_no_padding.json:no_padding \
  tile_pipeline.json:padded tile_swizzle.json:swizzled,x:384)
$(call trace,tile_life,epilogue_kernel:0,--tokens 64 --width 384 --hidden 128 --step epilogue)
$(call picture,tile_life.png,tile_life,tile_life.json,x:768 hidden:256)
