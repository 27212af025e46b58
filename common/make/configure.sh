#!/bin/sh
# Finds what the build needs, installs what is missing, and writes the answers as make variables.
#
#   TOOLKIT=auto|wheels THIRD_PARTY=dir DEVICE=cuda|vgpu  configure.sh build/config.mk
#
# With DEVICE=cuda the libraries that only the virtual GPU needs may be missing: then VGPU_LIBS is
# empty.
#
# Runs at the start of every build, so it must be quick and silent when nothing has changed: then the
# file keeps its time stamp and make goes on without starting over.
set -eu

out=$1
toolkit=${TOOLKIT:-auto}
third_party=${THIRD_PARTY:-}
oldest=12.8                                   # first toolkit that knows sm_100 and sm_120
wheels=.toolkit                               # ignored by git, survives `make clean`
requirements=common/make/toolkit.txt

say() { echo "deps: $*" >&2; }
die() { echo "deps: error: $*" >&2; exit 1; }
bad_usage() { echo "deps: error: $*" >&2; exit 2; }
have() { command -v "$1" >/dev/null 2>&1; }

case $toolkit in auto|wheels) ;; *) bad_usage "TOOLKIT=$toolkit: say auto or wheels" ;; esac
[ -z "$third_party" ] || [ -d "$third_party" ] || bad_usage "THIRD_PARTY=$third_party is not a folder"
# Compilers and tests write there. A compiler that cannot would pass for a damaged one.
if ! probe=$(mktemp 2>/dev/null); then
  if [ -n "${TMPDIR:-}" ] && [ ! -d "$TMPDIR" ]; then
    bad_usage "TMPDIR=$TMPDIR is not a folder: name one that exists, or unset it"
  fi
  bad_usage "no file can be made in ${TMPDIR:-/tmp}: set TMPDIR to a folder that has room and that you" \
            "may write to"
fi
rm -f "$probe"
mkdir -p "$(dirname "$out")"

# ---- system packages -----------------------------------------------------------------------------

# The preprocessor's lines 'need PACKAGE'. Asking dpkg would miss headers that came another way.
needed() {
  g++ -std=c++20 ${third_party:+-isystem "$third_party"} -E -P -x c++ - | sed -n 's/^need //p'
}
missing_for_vgpu() {
  printf '%s\n' '#if !__has_include(<zstd.h>)' 'need libzstd-dev' '#endif' \
    '#if !__has_include(<lz4.h>)' 'need liblz4-dev' '#endif' | needed
  # A header may come from THIRD_PARTY, the library behind it does not.
  [ "$(g++ -print-file-name=libzstd.so)" != libzstd.so ] || echo libzstd-dev
  [ "$(g++ -print-file-name=liblz4.so)" != liblz4.so ] || echo liblz4-dev
}
# Prints the Debian packages whose files the compiler does not find.
missing_packages() {
  have g++ || echo g++
  if have g++; then
    printf '%s\n' \
      '#if !__has_include(<doctest/doctest.h>)' 'need doctest-dev' '#endif' \
      '#if !__has_include(<stb/stb_image.h>)' 'need libstb-dev' '#endif' \
      '#if !__has_include(<CLI/CLI.hpp>)' 'need libcli11-dev' '#endif' \
      '#if !__has_include(<nlohmann/json.hpp>)' 'need nlohmann-json3-dev' '#endif' | needed
    [ "${DEVICE:-}" = cuda ] || missing_for_vgpu
  else
    # Without a compiler nothing can be asked: name them all, apt skips what is there.
    printf '%s\n' doctest-dev libstb-dev libcli11-dev nlohmann-json3-dev libzstd-dev liblz4-dev
  fi
}

# Installs the named packages, or prints the command and stops where that is not possible.
install_packages() {
  command="apt-get update && apt-get install -y --no-install-recommends $*"
  have apt-get || die "missing: $*. There is no apt-get here: install what these Debian packages hold," \
                      "or give headers with THIRD_PARTY=dir"
  if [ "$(id -u)" = 0 ]; then as_root=
  elif have sudo; then as_root=sudo
  else
    die "missing: $*, and neither root nor sudo to install them. Have this run as root, then try again:
  $command"
  fi
  say "installing $*"
  if ! { $as_root apt-get -q -o DPkg::Lock::Timeout=300 update &&
         $as_root env DEBIAN_FRONTEND=noninteractive \
           apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"; } >&2; then
    die "the packages could not be installed. The command was, as root:
  $command"
  fi
}

# Two makes may start at once (two terminals): one installs, the other waits and finds it done.
locked() {
  if have flock; then exec 9>"$(dirname "$out")/deps.lock"; flock 9; fi
}

missing=$(missing_packages | sort -u | tr '\n' ' ')
if [ -n "$missing" ]; then
  locked
  missing=$(missing_packages | sort -u | tr '\n' ' ')
  # shellcheck disable=SC2086  # a list of words
  [ -z "$missing" ] || install_packages $missing
  missing=$(missing_packages | sort -u | tr '\n' ' ')
  [ -z "$missing" ] || die "still missing after the installation: $missing"
fi

vgpu_libs=yes
[ -z "$(missing_for_vgpu)" ] || vgpu_libs=

# ---- CUDA Toolkit --------------------------------------------------------------------------------

notes=
note() { notes="$notes
$*"; }

version_of() { "$1" --version 2>/dev/null | sed -n 's/.*, V\([0-9.]*\).*/\1/p'; }

# The host's compilers: g++, then those that stand beside it, for a toolkit that does not know g++'s version yet.
host_compilers() {
  for c in g++ g++-15 g++-14 g++-13 g++-12 g++-11; do ! have $c || echo $c; done
}
# What decides whether a toolkit works here besides itself.
surroundings() {
  for c in $(host_compilers); do echo "$c $($c -dumpfullversion)"; done
  getconf GNU_LIBC_VERSION 2>/dev/null || true
}

# Compiles and links a small program with nvcc, cuda_inc, cuda_lib and $cxx; prints the first error when it cannot.
small_program() {
  folder=$(mktemp -d)
  cat >"$folder/small.cu" <<END
#include <cuda_fp16.h>
#include <algorithm>
#include <cmath>
#include <concepts>
__global__ void roots(float* x, half* y) { y[threadIdx.x] = __float2half(rsqrtf(x[threadIdx.x])); }
int main() {
  roots<<<1, 32>>>(nullptr, nullptr);
  return std::max(std::sqrt(2.0), 1.0) > 1 && cudaDeviceSynchronize() == cudaSuccess ? 0 : 3;
}
END
  { "$nvcc" -ccbin "$cxx" -std=c++20 -gencode arch=compute_90,code=[compute_90,sm_90] -Xcompiler -fopenmp \
      -c "$folder/small.cu" -o "$folder/small.o" &&
    "$cxx" "$folder/small.o" -L"$cuda_lib" -lcudart_static -fopenmp -ldl -lrt -lpthread -o "$folder/small"
  } >"$folder/log" 2>&1 && worked=yes || worked=
  [ -n "$worked" ] || { grep -E 'error|undefined|cannot' "$folder/log" || cat "$folder/log"; } | head -n 1 | cut -c 1-200
  rm -rf "$folder"
}

# Sets cxx to the first of the host's compilers with which nvcc works; says why when there is none. What was found
# is kept for as long as the compilers and the C library stay what they are.
tried=$(dirname "$out")/compilers-tried
host_compiler_for() {
  key=$(echo "$nvcc $version $(surroundings)" | tr '\n' ' ')
  found=$(awk -v key="$key" -F'\t' '$1 == key { print $2 FS $3 }' "$tried" 2>/dev/null | tail -n 1)
  cxx=${found%%	*} reason=${found#*	}
  [ -z "$cxx" ] || return 0
  if [ -z "$reason" ]; then
    for cxx in $(host_compilers); do
      say "compiling a small program with $nvcc and $cxx"
      error=$(small_program)
      [ -n "$error" ] || { printf '%s\t%s\t\n' "$key" "$cxx" >>"$tried"; return 0; }
      reason=${reason:-"with $cxx $($cxx -dumpfullversion): $error"}
      # An older compiler helps against this alone.
      newest_gnu=$(echo "$error" | sed -n 's/.*unsupported GNU version.* later than \([0-9]*\) .*/\1/p')
      [ -n "$newest_gnu" ] || break
    done
    # (The wheels are the last choice: they are tried again each time.)
    [ "${nvcc#"$wheels"/}" != "$nvcc" ] || printf '%s\t\t%s\n' "$key" "$reason" >>"$tried"
  fi
  note "refused $nvcc: it does not compile a small program here, $reason"
  return 1
}

# Sets nvcc, cuda_inc, cuda_lib, version and cxx when the compiler $1 will do; says why when not.
try_nvcc() {
  [ -x "$1" ] || return 1
  v=$(version_of "$1")
  [ -n "$v" ] || { note "refused $1: it does not tell its version"; return 1; }
  [ "$(printf '%s\n' "$oldest" "$v" | sort -V | head -n 1)" = "$oldest" ] ||
    { note "refused $1: it is CUDA $v, this course needs $oldest or newer"; return 1; }
  # nvcc may be a wrapper script far from its toolkit; it knows its own root.
  root=$("$1" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
  inc= lib=
  for d in "$root"/targets/*/include "$root/include"; do
    [ ! -f "$d/cuda_runtime.h" ] || inc=$d
  done
  for d in "$root"/targets/*/lib "$root/lib" "$root/lib64"; do
    [ ! -f "$d/libcudart_static.a" ] || lib=$d
  done
  [ -n "$inc" ] && [ -n "$lib" ] ||
    { note "refused $1: no cuda_runtime.h or libcudart_static.a under $root"; return 1; }
  nvcc=$1 cuda_inc=$inc cuda_lib=$lib version=$v
  host_compiler_for
}

system_toolkit() {
  seen=
  for candidate in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
      $(ls -d /usr/local/cuda-*/bin/nvcc 2>/dev/null | sort -rV) /opt/cuda/bin/nvcc; do
    case " $seen " in *" $candidate "*) continue ;; esac
    seen="$seen $candidate"
    [ -n "$candidate" ] && try_nvcc "$candidate" && return 0
  done
  return 1
}

wheels_installed() { [ -e $wheels/cuda/bin/nvcc ] && cmp -s $requirements $wheels/installed; }

install_wheels() {
  locked
  ! wheels_installed || return 0
  if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then install_packages python3-venv; fi
  say "installing NVIDIA's CUDA compiler wheels into $wheels (about 300 MB on disk)"
  rm -rf $wheels
  python3 -m venv $wheels/venv >&2 || die "python3 -m venv failed"
  $wheels/venv/bin/python -m pip install -q --disable-pip-version-check -r $requirements >&2 ||
    die "pip could not install the wheels of $requirements; alternatively install a CUDA Toolkit >= $oldest"
  root=$(echo $wheels/venv/lib/python3*/site-packages/nvidia/cu13)
  [ -x "$root/bin/nvcc" ] || die "no nvcc in the wheels ($root)"
  ln -sfn "${root#"$wheels"/}" $wheels/cuda
  cp $requirements $wheels/installed            # last, so that a broken installation is repeated
}

# The wheels lack two names by which a toolkit's own compiler and the linker look for libraries: the
# folder lib64, and libcudart.so of programs with the shared runtime.
name_libraries() {
  [ -e $wheels/cuda/lib64 ] || ln -sfn lib $wheels/cuda/lib64
  [ -e $wheels/cuda/lib/libcudart.so ] ||
    for library in $wheels/cuda/lib/libcudart.so.*; do
      ln -sfn "${library##*/}" $wheels/cuda/lib/libcudart.so
    done
}

# glibc 2.43 declares rsqrt and rsqrtf as functions that never throw. CUDA 13.0's header declares them, too, and a
# compiler takes both only when they agree. (Written once: what is built depends on the header's time.)
agree_with_glibc() {
  local header=$wheels/cuda/include/crt/math_functions.h throwing='^extern .*[ (]rsqrtf?\((double|float) x\);'
  ! grep -qE "$throwing" $header || ! echo '#include <math.h>' | g++ -E -D_GNU_SOURCE -x c++ - | grep -qw rsqrt ||
    sed -i -E "/$throwing/s/;\$/ noexcept (true);/" $header
}

if [ "$toolkit" = auto ] && system_toolkit; then
  kind=cuda
else
  wheels_installed || install_wheels
  name_libraries
  agree_with_glibc
  # A relative path, so that a checkout in a folder with spaces works.
  if ! try_nvcc $wheels/cuda/bin/nvcc; then
    [ -n "${newest_gnu-}" ] && ! have "g++-$newest_gnu" || die "the wheels do not work:$notes"
    install_packages "g++-$newest_gnu"
    notes=
    try_nvcc $wheels/cuda/bin/nvcc || die "the wheels do not work:$notes"
  fi
  cuda_inc=$wheels/cuda/include cuda_lib=$wheels/cuda/lib kind=wheels
fi

# ---- GPU -----------------------------------------------------------------------------------------

gpu_arch='' gpu_name=''
if have nvidia-smi && nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then
  cc=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d '. ')
  gpu_name=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0)
  case $cc in
    *[!0-9]*|'') note "nvidia-smi does not tell the compute capability of $gpu_name: say ARCH=sm_.." ;;
    *) if [ "$cc" -ge 75 ]; then gpu_arch=sm_$cc
       else note "$gpu_name (sm_$cc) is older than sm_75: the virtual GPU is taken instead"; fi ;;
  esac
fi

# ---- answers -------------------------------------------------------------------------------------

cat >"$out.$$" <<END
# Written by common/make/configure.sh.$(echo "$notes" | sed 's/^./# &/')
TOOLKIT_ID := $kind-$version
NVCC := $nvcc
CUDA_INC := $cuda_inc
CUDA_LIB := $cuda_lib
CXX := $cxx
GPU_ARCH := $gpu_arch
GPU_NAME := $gpu_name
VGPU_LIBS := $vgpu_libs
END
if cmp -s "$out.$$" "$out"; then
  rm "$out.$$"
else
  mv "$out.$$" "$out"
  [ -z "$notes" ] || echo "$notes" | sed -n 's/^\(..*\)/deps: \1/p' >&2
  say "CUDA $version: $nvcc, with $($cxx --version | head -n 1)"
fi
