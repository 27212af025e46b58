#!/bin/bash
# Prints what the virtual GPU's sources include as generated tables:
#
#   vgpu_tables.sh devices GPU.json...                       rows {"h200", R"json(...)json"}
#   vgpu_tables.sh cuda12 CUDA12.cc OBJECT...                the runtime's functions in the objects: OTHER() for
#                                                            those that CUDA12.cc has code for, SAME() for the others
#   vgpu_tables.sh driver_names CUDA.H DRIVER.cc EXPORTS.txt the driver's functions, those of cuda.h and of exports.txt:
#                                                            DRIVER_OWN() with code in DRIVER.cc, else DRIVER_REFUSED()
#   vgpu_tables.sh driver_errors CUDA.H                      the names of the driver's errors
set -eu -o pipefail
export LC_ALL=C
table=$1
shift
case $table in
  devices)
    for json in "$@"; do
      printf '{"%s", R"json(' "$(basename "$json" .json)"
      cat "$json"
      printf ')json"},\n'
    done ;;
  cuda12)
    others=$(sed -nE 's/^(NEW|JUMP)[(]([^,]*),.*/\2/p' "$1")
    functions=$(nm "${@:2}" | awk '$2 == "T" && $3 ~ /^(__)?cuda/ { print $3 }' | sort -u)
    grep -vxF "$others" <<<"$functions" | sed 's/.*/SAME(&)/'
    grep -xF "$others" <<<"$functions" | sed 's/.*/OTHER(&)/' ;;
  driver_names)
    own=$(sed -nE 's/^DRIVER_API CUresult (cu[A-Za-z0-9_]+)[(].*/\1/p' "$2")
    sed -nE 's/^ *CUresult CUDAAPI (cu[A-Za-z0-9_]+)[(].*/\1/p' "$1" | sort -u - "$3" |
      awk 'NR == FNR { own[$1] = 1; next } { print ($1 in own ? "DRIVER_OWN(" : "DRIVER_REFUSED(") $1 ")" }' \
        <(echo "$own") - ;;
  driver_errors)
    sed -nE 's/^ *(CUDA_(SUCCESS|ERROR_[A-Z0-9_]+)) *= *[0-9]+.*/ERROR_NAME(\1)/p' "$1" ;;
  *) echo "vgpu_tables.sh: error: $table: no such table" >&2; exit 2 ;;
esac
