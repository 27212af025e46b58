#!/bin/bash
# Assembles PTX for one architecture; no kernel may spill registers or use the stack, see spills.awk.
#
#   NVCC=nvcc assemble.sh SOURCE.cu FILE.ptx sm_86 OUT PASSED
#
# PASSED lists the kernels that have passed for this architecture, in whichever file, as kernels_in_ptx.awk does
# (and FILE.kernels those of FILE.ptx): chapters have kernels of those before them, and what has the same text
# is assembled once. OUT.log has what ptxas said.
set -eu -o pipefail
export LC_ALL=C
source=$1 ptx=$2 arch=$3 out=$4 passed=$5
here=$(dirname "$0") kernels=${ptx%.ptx}.kernels
virtual=$(sed -n 's/^\.target sm_\([0-9]*\).*/compute_\1/p' "$ptx")

trap 'rm -f "$out.known" "$out.ptx"' EXIT
grep -Fxf "$kernels" "$passed" >"$out.known" || true
if [ -s "$out.known" ]; then
  if ! grep -qvFxf "$out.known" "$kernels"; then  # all of them
    : >"$out.log"
    : >"$out"
    exit
  fi
  awk -f "$here/kernels_in_ptx.awk" "$out.known" "$ptx" >"$out.ptx"
  ptx=$out.ptx
fi
if ! "$NVCC" -gencode "arch=$virtual,code=$arch" -Xptxas -v -cubin "$ptx" -o "$out" 2>"$out.log"; then
  cat "$out.log"
  exit 1
fi
awk -v known="$here/spills.txt" -v file="$source" -f "$here/spills.awk" "$out.log"
cat "$kernels" >>"$passed"
