# The bytes of one training step, by operation.
$(call docs_run,step_16,VGPU_PROFILE=json:$$@,--steps 1)
$(call drawing,step_bytes.png,step_bytes,$T/docs/step_16.json)
