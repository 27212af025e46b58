# The files of the repository that dependency files (FILE.d of the compilers) name, each once.
{
  for (i = 1; i <= NF; ++i) {
    f = $i
    if (f ~ /^\/|:$|^[:\\]$/) continue
    while (match(f, /[^\/]+\/\.\.\//)) f = substr(f, 1, RSTART - 1) substr(f, RSTART + RLENGTH)
    if (f ~ /^build\/[^\/]*\/variants\//) {  # made of a diff
      sub(/^build\/[^\/]*\/variants\//, "chapters/", f)
      sub(/\/[^\/]*$/, "/variants&", f)
      sub(/cuh$/, "diff", f)
    }
    if (f !~ /^build\// && !seen[f]++) print f
  }
}
