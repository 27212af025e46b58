# The files of the repository that dependency files (FILE.d of the compilers) name, each once.
{
  for (i = 1; i <= NF; ++i) {
    f = $i
    if (f ~ /^\/|^build\/|:$|^[:\\]$/) continue
    while (match(f, /[^\/]+\/\.\.\//)) f = substr(f, 1, RSTART - 1) substr(f, RSTART + RLENGTH)
    if (!seen[f]++) print f
  }
}
