$(call photo,blurred.jpg)
$(call drawing,memories.png,memories,common/vgpu/profile/devices/h200.json \
  common/vgpu/time/timing.cpp)
$(call trace,grey_columns,grey_columns_kernel:0)
$(call trace,grey_rows,grey_rows_kernel:0)
$(call picture,warp_loads.png,warp_loads,grey_columns.json:photo:load:0 \
  grey_rows.json:photo:load:0 grey_rows.json:grey:store:0)
