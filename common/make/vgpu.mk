# The virtual GPU: libvgpu.so, its launcher, its driver. Included by the Makefile.

# (GCC 12 warns of the undefined vectors in its own AVX-512 header, GCC bug 105593.)
vgpu_flags := -Wno-maybe-uninitialized -fno-math-errno -fno-trapping-math -fPIC -fvisibility=hidden
vgpu_plain_flags = $(plain_flags) $(vgpu_flags) -I$P/generated
vgpu_host_flags = $(host_flags) $(vgpu_flags) -I$V/generated
$V/%.o: %.cpp Makefile common/make/vgpu.mk
	$(call compile,$(vgpu_host_flags))
$V/%.o: %.cc Makefile common/make/vgpu.mk
	$(call compile,$(vgpu_host_flags))
$P/common/vgpu/%.o: common/vgpu/%.cpp Makefile common/make/vgpu.mk
	$(call compile,$(vgpu_plain_flags))

# ---- libvgpu.so ----------------------------------------------------------------------------------

# Only runtime/ and cudart/ know CUDA's headers; time/built_with.cpp knows where this toolkit is. Objects
# stand in the order of their optimization, since of an inline function that several objects hold the
# linker keeps the first.
built_with := $V/common/vgpu/time/built_with.o
$(built_with): private vgpu_host_flags += -DVGPU_BUILT_WITH='"$(toolkit_bin)"'
vgpu_code = $(call in_groups,$(wildcard $(1:%=common/vgpu/%/*.cpp)))
cudart_objects := $(patsubst %.cpp,$V/%.o,$(call vgpu_code,runtime cudart))
vgpu_objects := $(patsubst %.cpp,$P/%.o,$(filter-out common/vgpu/time/built_with.cpp,\
  $(call vgpu_code,core ops check profile ptx time look))) $(cudart_objects) $(built_with) $(json_objects)
fastest_first := $P/common/vgpu/core/% $P/common/vgpu/ops/%
vgpu_objects := $(foreach p,$(fastest_first),$(filter $p,$(vgpu_objects))) \
  $(filter-out $(fastest_first) $(seldom_run),$(vgpu_objects)) $(filter $(seldom_run),$(vgpu_objects))

# Tables that sources include: the figures of the GPUs, and the functions under CUDA 12's version name.
tables := common/make/vgpu_tables.sh
vgpu_devices := $(wildcard common/vgpu/profile/devices/*.json)
$P/generated/devices.inc: $(vgpu_devices) $(tables)
	@mkdir -p $(@D)
	@$(tables) devices $(vgpu_devices) >$@
$P/common/vgpu/group_programs.o $P/common/vgpu/profile/devices.o: | $P/generated/devices.inc
vgpu_cuda12 := common/vgpu/cudart/cuda12
$V/generated/cuda12.inc: $(vgpu_cuda12).cc $(cudart_objects) $(tables)
	@mkdir -p $(@D)
	@$(tables) cuda12 $< $(cudart_objects) >$@
$V/$(vgpu_cuda12).o: $V/generated/cuda12.inc

# The page of a look inside: page.html with the styles and scripts that files.txt lists, in one piece.
look_page := common/vgpu/look/page
$P/generated/look_page.html: $(wildcard $(look_page)/*) common/make/look_page.sh
	@mkdir -p $(@D)
	@common/make/look_page.sh $(look_page) >$@
$P/common/vgpu/look/page.o: $P/generated/look_page.html


# The library reports when the program ends, so it stays when the program closes it (nodelete). What takes
# longest to compile is named first: make starts it first.
vgpu_exports := common/vgpu/cudart/exports.map
$V/libvgpu.so: $P/generated/devices.inc $(cudart_objects) $(filter $V/%,$(vgpu_objects)) \
  $(patsubst %,$P/common/vgpu/%.o,group_programs group_watchers ops/group_floats time/group core/group) \
  $(vgpu_objects) $V/$(vgpu_cuda12).o $(vgpu_exports)
	$(call run,link,$@,$(CXX) -shared $(vgpu_objects) $V/$(vgpu_cuda12).o -Wl$(comma)-soname$(comma)libvgpu.so \
	  -Wl$(comma)-z$(comma)nodelete -Wl$(comma)--version-script=$(vgpu_exports) -lzstd -llz4 $(libs) -o $@)
	$(call note_sources,,$(vgpu_objects) $V/$(vgpu_cuda12).o)

# ---- the driver and the launcher -----------------------------------------------------------------

# The driver's functions and the names of its errors, as this toolkit's cuda.h has them.
driver := common/vgpu/cuda_driver
$V/generated/driver_names.inc: $(driver)/exports.txt $(driver)/driver.cc $(tables) $(CONFIG)
	@mkdir -p $(@D)
	@$(tables) driver_names '$(CUDA_INC)/cuda.h' $(driver)/driver.cc $(driver)/exports.txt >$@
$V/generated/driver_errors.inc: $(tables) $(CONFIG)
	@mkdir -p $(@D)
	@$(tables) driver_errors '$(CUDA_INC)/cuda.h' >$@
$V/$(driver)/driver.o: $V/generated/driver_names.inc $V/generated/driver_errors.inc
vgpu_driver := $V/vgpu-lib/libcuda.so.1
$(vgpu_driver): $V/$(driver)/driver.o
	@mkdir -p $(@D)
	$(call run,link,$@,$(CXX) -shared $< -Wl$(comma)-soname$(comma)libcuda.so.1 $(libs) -o $@)

# What the launcher puts in the place of the real shared runtime and driver.
vgpu_links := $V/vgpu-lib/libcudart.so.12 $V/vgpu-lib/libcudart.so.13
$(vgpu_links) &: $V/libvgpu.so | $(vgpu_driver)
	@mkdir -p $V/vgpu-lib
	@for link in $(vgpu_links); do ln -sfn ../libvgpu.so $$link; done
	@ln -sfn $(V:build/%=%)/vgpu-lib build/vgpu-lib
vgpu_launcher := $V/vgpu
$(vgpu_launcher): $V/common/vgpu/runtime/launcher.o
	$(call link)
	@ln -sfn $(V:build/%=%)/vgpu build/vgpu

.PHONY: vgpu
vgpu: $V/libvgpu.so $(vgpu_launcher) $(vgpu_links)

# ---- programs on the virtual GPU, whatever DEVICE says -------------------------------------------

libs_beside_vgpu := -L$V -lvgpu -Wl,-rpath,'$$ORIGIN/..'
$V/cu/%.o: nvcc_arch = sm_90
$V/cu/%.o: %.cu Makefile common/make/vgpu.mk
	$(call compile_cu,$(or $(vgpu_gencode),$(call gencode,sm_90)))

# How fast the virtual GPU itself is.
.PHONY: bench-vgpu
bench-vgpu: $V/tests/bench_vgpu $(chapters:%=$T/vgpu-sm_90/chapter%)
	@$^
$V/tests/bench_vgpu: $V/cu/common/workshop/bench/vgpu.o $H/libgrader.a $(test_archives) | $V/libvgpu.so
	$(call link,$(libs_beside_vgpu))

# Damaged fat binaries, tensor files and PTX, parsed and executed under sanitizers.
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= $(shell date +%s)
$V/fuzz: $(vgpu_objects) $(patsubst %.cc,$V/%.o,$(wildcard common/workshop/fuzz/*.cc)) $H/liblab.a
	$(call link,-lzstd -llz4)
.PHONY: fuzz
ifdef SANITIZE
fuzz: $V/fuzz
	@$V/fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --out $T/fuzz
else
fuzz:
	@$(MAKE) SANITIZE=1 fuzz
endif
