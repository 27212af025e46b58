# The kernels of a file of PTX: with `list` one line each, "CHECKSUM LENGTH NAME" of its text, without the numbers
# that labels have in this file; else the file without the kernels that such lines of a first file name.
#
#   awk -v list=1 -f kernels_in_ptx.awk FILE.ptx
#   awk -f kernels_in_ptx.awk LINES FILE.ptx
!list && NR == FNR { left_out[$3] = 1; next }
/^[^\/]*\.entry / {
  name = $0
  sub(/.*\.entry /, "", name)
  sub(/[^A-Za-z0-9_$].*/, "", name)
  sum = "cksum | tr '\\n' ' '; echo '" name "'"
}
list && name != "" {
  gsub(/\$L__BB[0-9]+_/, "$L_")
  # (A function's text counts, too: a kernel that calls one is equal to none of another file.)
  if ($1 ~ /^call/) print FILENAME | sum
  print | sum
}
!list && !(name in left_out) { print }
# A kernel ends with its last brace: there are others in it.
name != "" && /[{}]/ {
  depth += gsub(/{/, "{") - gsub(/}/, "}")
  if (depth == 0) {
    if (list) close(sum)
    name = ""
  }
}
