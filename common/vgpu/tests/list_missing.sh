#!/bin/bash
# Prints the points of the table of forms (common/vgpu/ops/forms.def) that no test touches.
#
#   common/vgpu/tests/list_missing.sh [vgpu_tests]    in the repository root, after `make test`
set -u
program=${1:-$(ls -t build/*/vgpu/vgpu_tests 2>/dev/null | head -n 1)}
[ -x "${program:-}" ] || { echo "no vgpu_tests in build/: make test first" >&2; exit 2; }
VGPU_LIST_MISSING=1 "./${program#./}" 2>&1 | sed -n '/no test has touched:/,/^$/{s/.*no test has touched://;/./p}'
