#!/bin/sh
# Writes the C++ and CUDA files as .clang-format says; with --check only names those that differ.
#
#   format.sh [--check] [FILE...]     without files: all that git knows
#
# Versions of clang-format differ in what they write, so it is always this one: that of the system
# where it has it, else the wheel from PyPI, installed into .toolkit/.
set -eu
cd "$(dirname "$0")/../.."
wanted=14.0.6
major=${wanted%%.*}
own=.toolkit/format

version_of() { "$1" --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p'; }

tool=
for candidate in clang-format-$major clang-format $own/bin/clang-format; do
  if [ "$(version_of $candidate)" = "$major" ]; then tool=$candidate; break; fi
done
if [ -z "$tool" ]; then
  command -v python3 >/dev/null || {
    echo "make format needs clang-format $major, or python3 to install it with" >&2; exit 3; }
  echo "format: installing clang-format $wanted into $own" >&2
  rm -rf $own
  { python3 -m venv $own && $own/bin/python -m pip install -q --disable-pip-version-check \
    clang-format==$wanted; } >&2 || {
    rm -rf $own
    echo "make format needs clang-format $major: 'apt-get install clang-format-$major', or python3-venv" \
         "and network access for its wheel" >&2; exit 3; }
  tool=$own/bin/clang-format
fi

check=
if [ "${1-}" = --check ]; then check=1; shift; fi
[ $# -gt 0 ] || set -- $(git ls-files '*.cpp' '*.cc' '*.h' '*.cu' '*.cuh')
if [ -z "$check" ]; then "$tool" -i "$@"; exit; fi

# Many files a process, a process a core: one for each file would take most of its time to start.
said=$(printf '%s\n' "$@" | xargs -P "$(nproc)" -n 64 "$tool" --dry-run 2>&1) || {
  printf '%s\n' "$said" >&2; exit 1; }
differing=$(printf '%s\n' "$said" |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: code should be clang-formatted.*/\1/p' | sort -u)
if [ -n "$differing" ]; then
  printf '%s\n' "$differing" | sed "s/\$/ is not as clang-format $major writes it/"
  echo "$(printf '%s\n' "$differing" | wc -l) of $# files: make format mends them"
  exit 1
fi
echo "$# files are as clang-format $major writes them"
