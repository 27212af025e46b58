# The virtual GPU: libvgpu.so, its launcher, its tests. Included by the Makefile, which says where
# things go; $V is build/TOOLKIT_ID/vgpu, $H the host objects.

# Only cudart/ and cuda_driver/ know CUDA's headers. The core stands first and what is compiled with -Og
# last: of an inline function that several objects hold, the linker keeps the first, which should be that
# of -O3.
files_in = $(foreach d,$1,$(wildcard common/vgpu/$d/*.cpp))
# (The one file that knows where this toolkit is.)
vgpu_built_with := common/vgpu/time/built_with
vgpu_units := $(call units,$(filter-out $(vgpu_built_with).cpp,$(call files_in,core ops check profile ptx time look)))
cudart_objects := $(patsubst %.cpp,$V/%.o,$(call units,$(call files_in,runtime cudart)))
vgpu_objects := $(vgpu_units:%.cpp=$P/%.o) $(cudart_objects) $V/$(vgpu_built_with).o $(json_objects)
vgpu_objects := $(filter-out $(seldom_run),$(vgpu_objects)) $(filter $(seldom_run),$(vgpu_objects))
vgpu_tests_cpp := $(wildcard common/vgpu/tests/*.cpp)
vgpu_tests_cu := $(wildcard common/vgpu/tests/*.cu)
vgpu_tests_program := $V/$(addsuffix /,$(SUITE))vgpu_tests
vgpu_tests := $(if $(vgpu_tests_cpp),$(vgpu_tests_program)) $(vgpu_tests_cu:common/vgpu/tests/%.cu=$V/tests/%)
vgpu_launcher := $(if $(wildcard common/vgpu/runtime/launcher.cc),$V/vgpu)
vgpu_devices := $(wildcard common/vgpu/profile/devices/*.json)
vgpu_exports := $(wildcard common/vgpu/cudart/exports.map)
vgpu_links := $V/vgpu-lib/libcudart.so.12 $V/vgpu-lib/libcudart.so.13
vgpu_driver := $V/vgpu-lib/libcuda.so.1

# (GCC 12 takes the undefined vectors of its own AVX-512 header for a mistake, GCC bug 105593.)
vgpu_flags := -Wno-maybe-uninitialized -fno-math-errno -fno-trapping-math -fPIC -fvisibility=hidden
vgpu_plain_flags = $(plain_flags) $(vgpu_flags) -I$P/generated
vgpu_host_flags = $(host_flags) $(vgpu_flags)

.PHONY: vgpu
vgpu: $V/libvgpu.so $(vgpu_launcher) $(vgpu_links)

$V/%.o: %.cpp Makefile common/make/vgpu.mk
	@mkdir -p $(@D)
	$(call run,g++,$<,$(CXX) $(vgpu_host_flags) -c $< -o $@)
$V/%.o: %.cc Makefile common/make/vgpu.mk
	@mkdir -p $(@D)
	$(call run,g++,$<,$(CXX) $(vgpu_host_flags) -I$V/generated -c $< -o $@)
$P/common/vgpu/%.o: common/vgpu/%.cpp Makefile common/make/vgpu.mk
	@mkdir -p $(@D)
	$(call run,g++,$<,$(CXX) $(vgpu_plain_flags) -c $< -o $@)
$V/$(vgpu_built_with).o: private vgpu_host_flags += \
  -DVGPU_BUILT_WITH='"$(toolkit_bin)"'
$P/common/vgpu/group_programs.o: | $P/generated/devices.inc

# The figures of the GPUs, as rows {"h200", R"json(...)json"}, so that the library is one file.
$P/generated/devices.inc: $(vgpu_devices) Makefile common/make/vgpu.mk
	@mkdir -p $(@D)
	@for f in $(vgpu_devices); do \
	  printf '{"%s", R"json(' "$$(basename $$f .json)"; cat $$f; printf ')json"},\n'; done > $@

# The page of a look inside: page.html with the styles and scripts that files.txt lists, in one piece.
look_page := common/vgpu/look/page
look_page_files := $(shell sed '/^ *\#/d; /^ *$$/d; s|^|$(look_page)/|' $(look_page)/files.txt)
$P/generated/look_page.html: $(look_page)/page.html $(look_page)/files.txt $(look_page_files) \
  common/make/look_page.sh
	@mkdir -p $(@D)
	@common/make/look_page.sh $(look_page) >$@
$P/common/vgpu/look/page.o: $P/generated/look_page.html

# The functions under CUDA 12's version name, see the head of cuda12.cc.
vgpu_cuda12 := common/vgpu/cudart/cuda12
$V/generated/cuda12.inc: $(cudart_objects) $(vgpu_cuda12).cc
	@mkdir -p $(@D)
	@nm $(cudart_objects) | awk '$$2 == "T" && $$3 ~ /^(__)?cuda/ { print $$3 }' | LC_ALL=C sort -u > $@.all
	@sed -nE 's/^(NEW|JUMP)[(]([^,]*),.*/\2/p' $(vgpu_cuda12).cc > $@.other
	@{ grep -vxFf $@.other $@.all | sed 's/.*/SAME(&)/'; grep -xFf $@.other $@.all | sed 's/.*/OTHER(&)/'; } > $@
$V/$(vgpu_cuda12).o: $V/generated/cuda12.inc

# It stays when a program closes it (nodelete): it reports when the program ends.
link_vgpu = $(CXX) -shared $(vgpu_objects) $V/$(vgpu_cuda12).o -Wl,-soname,libvgpu.so -Wl,-z,nodelete \
  $(vgpu_exports:%=-Wl,--version-script=%) -lzstd -llz4 $(libs) -o $@
# What others wait for first, then the long ones: make starts them in this order.
$V/libvgpu.so: $P/generated/devices.inc $(cudart_objects) $(filter $V/%,$(vgpu_objects)) \
  $(patsubst %,$P/common/vgpu/%.o,group_programs group_watchers ops/group_floats time/group core/group) $(vgpu_objects) $V/$(vgpu_cuda12).o $(vgpu_exports)
	$(call run,link,$@,$(link_vgpu))
	$(call note_sources,,$(vgpu_objects) $V/$(vgpu_cuda12).o)

# The driver interface: all names of exports.txt and of this toolkit's cuda.h, which of them have a
# function of their own, and what errors are called.
driver := common/vgpu/cuda_driver
$V/generated/driver_names.inc: $(driver)/exports.txt $(driver)/driver.cc common/make/vgpu.mk $(CONFIG)
	@mkdir -p $(@D)
	@sed -nE 's/^DRIVER_API CUresult (cu[A-Za-z0-9_]+)[(].*/\1/p' $(driver)/driver.cc > $@.own
	@sed -nE 's/^ *CUresult CUDAAPI (cu[A-Za-z0-9_]+)[(].*/\1/p' '$(CUDA_INC)/cuda.h' | \
	  LC_ALL=C sort -u - $(driver)/exports.txt | awk 'NR == FNR { own[$$1] = 1; next } \
	  { print ($$1 in own ? "DRIVER_OWN(" : "DRIVER_REFUSED(") $$1 ")" }' $@.own - > $@
$V/generated/driver_errors.inc: common/make/vgpu.mk $(CONFIG)
	@mkdir -p $(@D)
	@sed -nE 's/^ *(CUDA_(SUCCESS|ERROR_[A-Z0-9_]+)) *= *[0-9]+.*/ERROR_NAME(\1)/p' '$(CUDA_INC)/cuda.h' > $@
$V/$(driver)/driver.o: $V/generated/driver_names.inc $V/generated/driver_errors.inc
$(vgpu_driver): $V/$(driver)/driver.o
	@mkdir -p $(@D)
	$(call run,link,$@,$(CXX) -shared $< -Wl$(comma)-soname$(comma)libcuda.so.1 $(libs) -o $@)

# What the launcher puts in the place of the real shared runtime and driver.
$(vgpu_links) &: $V/libvgpu.so | $(vgpu_driver)
	@mkdir -p $V/vgpu-lib
	@for link in $(vgpu_links); do ln -sfn ../libvgpu.so $$link; done
	@ln -sfn $(V:build/%=%)/vgpu-lib build/vgpu-lib

$V/vgpu: $V/common/vgpu/runtime/launcher.o
	$(call link)
	@ln -sfn $(V:build/%=%)/vgpu build/vgpu

# Linked from objects, since the library hides all but the runtime's functions. Of a suite a program of its
# own, of the files that have a case of it and those that have no case at all.
vgpu_tests_used := $(if $(SUITE),$(call in_suite,$(vgpu_tests_cpp)) $(shell grep -L TEST_CASE $(vgpu_tests_cpp)), \
  $(vgpu_tests_cpp))
$(vgpu_tests_program): $(vgpu_objects) $(patsubst %.cpp,$V/%.o,$(call units_used,$(vgpu_tests_used))) \
  $H/libdoctest_main.a
	$(call link,-lzstd -llz4)
$V/ptx-coverage: $(vgpu_objects) $V/common/vgpu/tests/ptx_coverage.o
	$(call link,-lzstd -llz4)

# Mutated fat binaries, tensor files and PTX, parsed and executed under AddressSanitizer and UBSan.
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

# Programs on the virtual GPU, whatever DEVICE says.
$V/cu/%.o: %.cu Makefile common/make/vgpu.mk
	@mkdir -p $(@D)
	$(call compile_cu,$(or $(vgpu_code),$(call gencode,sm_90)))
# (PTX alone: ptxas would mend what it sees of the planted mistakes, and say so.)
$V/cu/common/vgpu/tests/runtime_warpgroup.o: vgpu_code = -gencode arch=compute_90a,code=compute_90a
# (A multicast is for sm_90a, says ptxas; for sm_90 it is allowed.)
$V/cu/common/vgpu/tests/check_clusters.o: nvcc_common += -Xptxas -w
$V/tests/bench_vgpu: $V/cu/common/workshop/bench/vgpu.o
$(vgpu_tests_cu:common/vgpu/tests/%.cu=$V/tests/%): $V/tests/%: $V/cu/common/vgpu/tests/%.o
$V/tests/bench_vgpu $(filter $V/tests/%,$(vgpu_tests)) $(exercises:%=$V/tests/exercise%): \
  $H/libgrader.a $(test_archives) | $V/libvgpu.so
	$(call link,-L$V -lvgpu -Wl$(comma)-rpath$(comma)'$$ORIGIN/..')
	$(if $(filter exercise%,$(@F)),$(call note_sources,$(@F)$(not_default),$(filter %.o,$^) \
	  $(grader_objects) $(lab_objects),$V/libvgpu.so))
