# What the user asks for, what this machine has, and which device and architecture follow from them.
# Included by the Makefile.

# Older versions of make and bash lack &: in rules and wait -n -p, and would fail with odd messages.
ifeq ($(filter grouped-target,$(.FEATURES)),)
$(error this is GNU Make $(MAKE_VERSION), and the course needs 4.3 or newer)
endif
ifneq ($(shell echo $$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501))),1)
$(error $(SHELL) is version $(shell echo "$$BASH_VERSION"), and the course needs 5.1 or newer)
endif

# ---- what is asked for ---------------------------------------------------------------------------
# Mistakes end make here, before anything is installed or built.

# $(call known_goals,chapter,numbers): refuses a goal chapterN whose number is none of these.
known_goals = $(foreach goal,$(filter-out $(2:%=$1%) $1s/%,$(filter $1%,$(MAKECMDGOALS))),\
  $(error $(goal): there is no such $1; there are: $(or $(2:%=$1%),none at all)))
$(call known_goals,chapter,$(chapters))
$(call known_goals,exercise,$(exercises))

# $(call one_of,VARIABLE,words,what it must be): refuses a value that is not one of the words.
one_of = $(if $($1),$(if $(if $(filter 1,$(words $($1))),$(filter $2,$($1))),,$(error $1=$($1): must be $3)))
TOOLKIT ?= auto
$(call one_of,TOOLKIT,auto wheels,auto (the system's CUDA Toolkit if it will do) or wheels)
$(call one_of,DEVICE,cuda vgpu,cuda (a real GPU) or vgpu (the virtual one))
# (Whether the toolkit knows the architecture is checked below, when the toolkit is known.)
$(call one_of,ARCH,sm_%,one architecture as nvcc writes it$(comma) for example sm_86)

# Words of the command line: none may be empty, switches are 1 or 0, numbers are numbers.
from_command_line = $(foreach v,$1,$(if $(filter command,$(firstword $(origin $v))),$v))
$(foreach v,$(call from_command_line,DEVICE ARCH),$(if $(strip $($v)),,\
  $(error $v= is empty: leave it out, and what suits the machine is taken)))
switches := ALL CHECK FRESH QUICK SANITIZE SOLUTION VERBOSE
$(foreach v,$(call from_command_line,$(switches)),$(if $(filter-out 0 1,$($v)),\
  $(error $v=$($v): must be 1, or 0, which is the same as nothing)))
$(foreach v,$(switches),$(if $(filter 0,$($v)),$(eval override $v :=)))
$(foreach v,FUZZ_SECONDS FUZZ_SEED MINUTES ROUNDS,$(if $($v),$(if $(shell \
  [[ '$($v)' =~ ^[0-9]+([.][0-9]+)?$$ ]] && echo yes),,$(error $v=$($v): must be a number))))
$(if $(findstring %,$(ONLY)),$(error ONLY=$(ONLY): no name has a % in it))

# ---- what this machine has -----------------------------------------------------------------------

# configure.sh installs what is missing and writes TOOLKIT_ID, NVCC, CUDA_INC, CUDA_LIB, CXX, GPU_ARCH,
# GPU_NAME and VGPU_LIBS. help, clean and format work without.
THIRD_PARTY ?=
CONFIG := build/config-$(TOOLKIT).mk
ifneq ($(filter-out help clean format,$(MAKECMDGOALS)),)
include $(CONFIG)
endif
$(CONFIG): FORCE
	@TOOLKIT='$(TOOLKIT)' THIRD_PARTY='$(THIRD_PARTY)' DEVICE='$(DEVICE)' common/make/configure.sh $@
FORCE:

# The path of the checkout may hold spaces. make's functions split words there, so they only see the
# part below the checkout.
absolute = $(if $(filter /%,$1),$1,$(CURDIR)/$1)
toolkit_bin := $(call absolute,$(patsubst %/,%,$(dir $(NVCC))))
toolkit_ptxas := $(toolkit_bin)/ptxas
python3 := $(shell command -v python3)
need_python = $(if $(python3),,echo 'make $@ needs python3' >&2; exit 3)
# $(call python_with,module): a python3 that has it; the system's may, where python3 is another one.
python_with = $(shell for p in python3 /usr/bin/python3; do \
  $$p -c 'import $1' 2>/dev/null && echo $$p && break; done)

# ---- device and architecture ---------------------------------------------------------------------

vgpu_asked := $(filter vgpu,$(DEVICE))
ifdef DEVICE
device_reason := as DEVICE says
else ifdef GPU_ARCH
DEVICE := cuda
device_reason := $(GPU_NAME)
else
DEVICE := vgpu
device_reason := no GPU found
endif
# Some goals need a GPU, or that DEVICE asks for the virtual one. $(call no_gpu,what else to do)
has_device := $(GPU_ARCH)$(vgpu_asked)
no_gpu = echo 'make $@ needs a GPU, and nvidia-smi lists none$1' >&2; exit 3
default_arch := $(if $(filter vgpu,$(DEVICE)),sm_90,$(or $(GPU_ARCH),sm_90))
ARCH ?= $(default_arch)

# Every toolkit that configure.sh accepts knows these, which the course promises. nvcc itself lists the
# others. An `a` at the end adds what that architecture alone has.
all_archs := sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120
ifneq ($(if $(TOOLKIT_ID),$(filter-out $(all_archs),$(ARCH))),)
archs := $(filter-out sm_5% sm_6% sm_70 sm_72,$(shell '$(NVCC)' --list-gpu-code 2>/dev/null))
archs += $(patsubst %,%a,$(filter-out sm_7% sm_8%,$(archs)))
$(if $(strip $(archs)),$(if $(filter $(ARCH),$(archs)),,\
  $(error ARCH=$(ARCH): with this toolkit ($(TOOLKIT_ID)) it must be one of $(archs))))
endif

# The words that make the same program again: `make chapter1 ARCH=sm_80`.
not_default := $(if $(filter-out auto,$(TOOLKIT)), TOOLKIT=$(TOOLKIT))$(if \
  $(THIRD_PARTY), THIRD_PARTY='$(THIRD_PARTY)')$(if $(SANITIZE), SANITIZE=$(SANITIZE))
not_default_device := $(if $(filter-out $(if $(GPU_ARCH),cuda,vgpu),$(DEVICE)), DEVICE=$(DEVICE))$(if \
  $(filter-out $(default_arch),$(ARCH)), ARCH=$(ARCH))
