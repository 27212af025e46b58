#!/bin/bash
# Compiles each source file and each header by itself, as far as a compiler looks for mistakes: a file that
# includes too little often compiles in a group, or with one release of the standard library, all the same.
#
#   NVCC=... CUDA_INC=... CXX=... each_alone.sh [PART/PARTS]
#
# Files without device code: by the newest g++ at hand, without CUDA's headers where a file must not need them. Those
# with device code, .cu and .cuh and headers that include them: by nvcc with CXX, up to the end of its front end.
# PART/PARTS, such as 2/5: every fifth file, from the second on. Prints the first errors of each file that fails. Exit status 1: one failed; 2: bad usage.
set -u
part=${1:-1/1}
[[ $part =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] && [ "${BASH_REMATCH[1]}" -le "${BASH_REMATCH[2]}" ] ||
  { echo "each_alone.sh: error: PART=$part: must be like 2/5, the second of five parts" >&2; exit 2; }
first=${BASH_REMATCH[1]} parts=${BASH_REMATCH[2]}

newest=$(for c in g++ g++-{11..30}; do command -v "$c" >/dev/null && echo "$("$c" -dumpfullversion) $c"; done |
  sort -V | tail -n 1 | cut -d' ' -f2)
export newest NVCC CUDA_INC CXX

alone() {
  local file=$1 log flags=(-std=c++20 -fopenmp -march=native -Icommon)
  flags+=("-I$PLAIN_GENERATED" "-I$VGPU_GENERATED" '-DVGPU_BUILT_WITH=""')
  # What the build makes of these is in build/plain, the same for all toolkits.
  case $file in
    */reference.cpp | common/json/*.cpp | common/vgpu/time/built_with.cpp) ;;
    common/vgpu/core/*.cpp | common/vgpu/ops/*.cpp | common/vgpu/check/*.cpp | common/vgpu/profile/*.cpp) ;;
    common/vgpu/ptx/*.cpp | common/vgpu/time/*.cpp | common/vgpu/look/*.cpp) ;;
    *) flags+=(-isystem "$CUDA_INC") ;;
  esac
  if [[ $file = *.cu* ]] || grep -q '^#include .*\.cuh"' "$file"; then
    log=$("$NVCC" -std=c++20 -ccbin "$CXX" -Icommon "-I$VARIANTS" -x cu -ptx -fdevice-syntax-only -arch=sm_90a -o /dev/null \
      "$file" 2>&1)
  elif [[ $file = *.h ]]; then
    log=$("$newest" "${flags[@]}" -fsyntax-only -x c++ -include "$file" /dev/null 2>&1)
  else
    log=$("$newest" "${flags[@]}" -fsyntax-only "$file" 2>&1)
  fi || { printf '%s does not compile alone:\n%s\n' "$file" "$(grep -m 3 error <<<"$log" || tail -n 3 <<<"$log")"; return 1; }
}
export -f alone

# (A file that another one includes in the middle of itself says so in its name, .inc.)
files=$(git ls-files '*.cpp' '*.cc' '*.h' '*.cu' '*.cuh' | awk -v first="$first" -v parts="$parts" \
  'NR % parts == first % parts')
echo "$(wc -l <<<"$files") files, each by itself: $newest $("$newest" -dumpfullversion), nvcc with $CXX"
xargs -P "$(nproc)" -I{} bash -c 'alone "$1"' alone {} <<<"$files" || exit 1
