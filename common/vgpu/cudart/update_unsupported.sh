#!/bin/sh
# Prints unsupported.inc: the functions of exports.txt that no object file among the arguments
# defines. Give it the objects of runtime/ without unsupported.o. exports.txt itself comes from
#   readelf --dyn-syms -W libcudart.so.13, the defined functions, without their version, sorted.
set -eu
cd "$(dirname "$0")"
echo '// Made by update_unsupported.sh. A name that is implemented twice does not link.'
nm "$@" | awk '$2 == "T" { print $3 }' | LC_ALL=C sort -u |
  LC_ALL=C comm -23 exports.txt - | sed 's/.*/VGPU_UNSUPPORTED(&)/'
