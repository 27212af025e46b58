# The bytes of one training step, by operation: the picture, and the table in the lesson.
$(call docs_run,step_18,VGPU_PROFILE=json:$$@,--steps 1)
$(call drawing,step_bytes.png,step_bytes,$T/docs/step_18.json)
.PHONY: step_bytes
docs: step_bytes
step_bytes: chapters/18_training/README.md $T/docs/step_18.json
	@python3 common/workshop/figures/step_bytes.py --table $(if $(CHECK),--check) $^
