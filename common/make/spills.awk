# Reads what `ptxas -v` said of one file's kernels and tells which of them use the stack or spill registers:
# one line each, and exit status 1. A file `known` names those that may, "KERNEL ARCHITECTURE BYTES why": a part of
# the mangled name, an architecture or `any`, the most bytes of stack.
#
#   awk -v known=common/make/spills.txt -v file=chapters/01_naive_attention/main.cu -f spills.awk LOG
BEGIN {
  while ((getline line <known) > 0) {
    if (line ~ /^#/ || split(line, word, " ") < 4) continue
    ++kernels
    kernel[kernels] = word[1]
    on[kernels] = word[2]
    most[kernels] = word[3]
  }
}
function is_known(name, arch, bytes, i) {
  for (i = 1; i <= kernels; ++i)
    if (index(name, kernel[i]) && (on[i] == arch || on[i] == "any") && bytes <= most[i] + 0) return 1
  return 0
}
/ptxas info/ { said = 1 }
# A kernel of whose stack nothing was said, before the next one or the end.
function require_told() {
  if (name == "") return
  printf "%s: ptxas has not said how much stack %s has for %s\n", file, name, arch
  bad = 1
}
/Compiling entry function/ { require_told(); split($0, part, "'"); name = part[2]; arch = part[4] }
/bytes stack frame/ {
  if (($1 || $5 || $9) && name != "" && !is_known(name, arch, $1)) {
    printf "%s: %s for %s: %d bytes of stack, %d bytes of spill stores, %d of spill loads\n", \
      file, name, arch, $1, $5, $9
    bad = 1
  }
  name = ""
}
END {
  require_told()
  if (!said) { printf "%s: ptxas has said nothing\n", file; bad = 1 }
  exit bad
}
