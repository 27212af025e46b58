#!/bin/sh
# Checks that the committed data are the bytes they were, and that none is missing from the list.
#
#   data/check.sh             exit 1 when a file was changed, is missing or is not listed
#   data/check.sh --update    writes the list anew
set -eu
cd "$(dirname "$0")"
files() { find images golden fashion_mnist -type f ! -name '*.pyc' | LC_ALL=C sort; }

if [ "${1:-}" = --update ]; then
  files | xargs sha256sum >SHA256SUMS
  exit
fi
sha256sum --check --strict --quiet SHA256SUMS
listed=$(sed 's/^[0-9a-f]*  //' SHA256SUMS)
present=$(files)
[ "$listed" = "$present" ] || { echo "SHA256SUMS does not list exactly these files:"; echo "$present"; exit 1; }
