# The course's kernels as a library for other programs: libvision_operators.so, of C functions, and what
# Python makes of it. Included by the Makefile.
#
# The virtual GPU, or NVIDIA's static runtime, is a hidden part of the library. So a process may have
# another CUDA runtime beside it, as PyTorch brings one, and neither takes the other's functions.

operators_library := $D/libvision_operators.so
operators_exports := common/operators/exports.map
operators_own := $(patsubst %.cu,$D/%.o,$(wildcard common/operators/*.cu)) \
  $(patsubst %.cpp,$H/%.o,$(wildcard common/operators/*.cpp))
# Kernels that chapters compile for their own programs; of chapter 16, the projection alone.
operators_kernels := $(foreach n,8 10 15 19,$(call kernels_in,$(call chapter_folder,$n),$D)) \
  $(filter %/kernels/conv_projection.o,$(call kernels_in,$(call chapter_folder,16),$D))
operators_runtime := $(if $(filter vgpu,$(DEVICE)),$(vgpu_objects))
operators_libs := $(if $(filter vgpu,$(DEVICE)),-lzstd -llz4,$(libs_cuda))

$(operators_kernels) $(filter $D/%,$(operators_own)): nvcc_host += -Xcompiler -fPIC
$(filter $H/%,$(operators_own)): host_flags += -fPIC
$(filter $H/%,$(operators_own)): optimize := -Og

$(operators_library): $(operators_runtime) $(operators_own) $(operators_kernels) $(operators_exports) \
  common/make/operators.mk
	@mkdir -p $(@D)
	$(call run,link,$@,$(CXX) -shared $(filter %.o,$^) -Wl$(comma)-soname$(comma)$(@F) -Wl$(comma)-z$(comma)nodelete \
	  -Wl$(comma)--version-script=$(operators_exports) $(operators_libs) $(libs) -o $@)

.PHONY: operators
operators: $(operators_library)
	@mkdir -p build/operators
	@ln -sfn $(operators_library:build/%=../%) build/operators/libvision_operators_$(DEVICE).so
	@echo 'DEVICE=$(DEVICE) ($(device_reason)), $(ARCH), $(TOOLKIT_ID):' \
	  'build/operators/libvision_operators_$(DEVICE).so, its header common/operators/operators.h;' \
	  'in Python: PYTHONPATH=common/operators, import vision_operators'

# Its tests: a program that knows only the header, which is C; and Python's. (Python cannot load a library
# that was built with AddressSanitizer.)
operators_tests_cpp := $(wildcard common/operators/tests/*.cpp)
operators_header_test := $H/common/operators/tests/header_is_c.o
operators_tests := $(if $(operators_tests_cpp),$D/operators_tests)
operators_python := $(if $(SANITIZE),,$(if $(python3),common/operators/tests/all.py))
$(operators_header_test): common/operators/tests/header_is_c.c common/operators/operators.h common/make/operators.mk
	@mkdir -p $(@D)
	$(call run,gcc,$<,gcc -std=c99 -pedantic -Wall -Wextra -Werror -c $< -o $@)
$(operators_tests): $(operators_tests_cpp:%.cpp=$H/%.o) $(operators_header_test) $H/libdoctest_main.a \
  | $(operators_library)
	$(call link,$(operators_library) -Wl$(comma)-rpath$(comma)'$$ORIGIN')
test: export VISION_OPERATORS_$(if $(filter vgpu,$(DEVICE)),VGPU,CUDA) := $(CURDIR)/$(operators_library)
$(operators_python): | $(operators_library)
