# make figures: the lessons' pictures, all drawn from runs of the virtual H200. Included by the Makefile.
#
# A chapter's pictures/pictures.mk names its pictures, and the runs that they are drawn from:
#   $(call trace,NAME,KERNEL:BLOCK,FLAGS)       $T/docs/NAME.json: what one block did in a run with FLAGS
#   $(call timeline,NAME,FLAGS)                 $T/docs/NAME.json: what all warps did, and when
#   $(call picture,FILE,SCRIPT,PANELS,OPTIONS)  drawn from these by common/workshop/figures/SCRIPT.py; a panel
#                                               begins with NAME.json
#   $(call drawing,FILE,SCRIPT,FILES,OPTIONS)   drawn from any files
#   $(call photo,FILE,FLAGS)                    what a run writes with --out
#   $(call look,FILE,VIEW)                      a look inside, as a browser shows it

# The chapter's program. A run on a photo has --out; random tensors have none.
program = $D/chapter$(call chapter_number,$(here)) $V/libvgpu.so
define docs_run_rule
$T/docs/$1.json: $(program)
	@mkdir -p $$(@D)
	$(on_h200) $2 $$< $3 $(if $(filter --tokens --preset --predict,$3),,--out $$(@:.json=.png)) | tail -n 1
endef
docs_run = $(eval $(docs_run_rule))
trace = $(call docs_run,$1,VGPU_TRACE=$2:$$@,$3)
timeline = $(call docs_run,$1,VGPU_TIME=1 VGPU_TIMELINE=$$@,$2)

pictures :=
add_picture = $(eval pictures += $(here)/pictures/$1)
define drawing_rule
$(here)/pictures/$1: $3
	'$$(python_plot)' common/workshop/figures/$2.py $$@ $4
endef
drawing = $(add_picture)$(eval $(call drawing_rule,$1,$2,$3,$$^ $4))
panel_files = $(addprefix $T/docs/,$(sort $(foreach p,$1,$(firstword $(subst :, ,$p)))))
picture = $(add_picture)$(eval $(call drawing_rule,$1,$2,$(call panel_files,$3),$4 $(addprefix $T/docs/,$3)))
define photo_rule
$(here)/pictures/$1: $(program)
	$(on_h200) $$< $2 --out $$@ | tail -n 1
endef
photo = $(add_picture)$(eval $(photo_rule))
# (Without a Chromium such a picture stays as it is, and screenshot.py says so.)
define look_rule
$T/docs/$(here)/look.html: $(program)
	@mkdir -p $$(@D)
	$(on_h200) $$< --tokens 197 --look $$@ | tail -n 1
$(here)/pictures/$1: $T/docs/$(here)/look.html
	common/vgpu/look/tests/screenshot.py $$@ $$< $2 || test $$$$? = 3
endef
look = $(add_picture)$(eval $(look_rule))
$(foreach here,$(chapter_dirs),$(eval -include $(here)/pictures/pictures.mk))

# What was measured, and the virtual GPU's limits: all result folders.
result_folders := $(patsubst %/,%,$(dir $(wildcard data/results/*/chapter1.json)))
.PHONY: $(result_folders)
pictures += $(result_folders)
$(result_folders):
	@'$(python_plot)' common/workshop/figures/measured.py $@

# Pictures are drawn each time, runs are repeated when a program has changed.
.PHONY: figures $(pictures)
figures: $(if $(filter figures,$(MAKECMDGOALS)),$(if $(python_plot),$(pictures)))
	@if [ -z '$(python_plot)' ]; then echo 'make figures needs matplotlib; on Debian or Ubuntu:' \
	  'apt-get install python3-matplotlib' >&2; exit 3; fi
