# A variant of a step, from the lines in which it differs:
#
#   awk -v folder=chapters/06_coalesced_k -v name=no_padding -f variant.awk no_padding.diff >no_padding.cuh
#
# The diff is what `git diff` prints when the step's file is changed, with a comment above it. The variant is
# that file with the changes, in a namespace that is called as the variant and finds what is in the step's;
# includes are found from the step's folder. Ends with 1 where the lines around a change are no longer those of the step's file.
function fail(words) {
  print FILENAME ": " words > "/dev/stderr"
  failed = 1
  exit 1
}
# The line at which a hunk's lines stand: where the diff says, else in the only place behind the last hunk's.
function place(    at, i, found, places) {
  for (at = next_line; at + old_count - 1 <= count; ++at) {
    for (i = 1; i <= old_count && line[at + i - 1] == old[i]; ++i) ;
    if (i <= old_count) continue
    if (at == said_line) return at
    found = at
    ++places
  }
  if (!places) fail(step " no longer has these lines:\n" hunk)
  if (places > 1) fail(step " has these lines " places " times; give the hunk more lines:\n" hunk)
  return found
}
function apply(    at, i) {
  at = place()
  for (i = next_line; i < at; ++i) result = result line[i] "\n"
  result = result new
  next_line = at + old_count
}
/^--- a\// {
  step = substr($0, 7)
  while ((getline text < step) > 0) line[++count] = text
  if (!count) fail("there is no " step)
  next_line = 1
  next
}
/^@@/ {
  if (in_hunk) apply()
  in_hunk = 1
  old_count = 0
  new = hunk = ""
  said_line = substr($2, 2) + 0
  next
}
!in_hunk { next }
{ mark = substr($0, 1, 1); text = substr($0, 2) }
mark != "+" { old[++old_count] = text; hunk = hunk "  " text "\n" }
mark != "-" { new = new text "\n" }
END {
  if (failed) exit 1
  if (!in_hunk) fail("changes nothing")
  apply()
  for (; next_line <= count; ++next_line) result = result line[next_line] "\n"
  rows = split(result, row, "\n")
  for (i = 1; i < rows; ++i) {
    if (row[i] ~ /^namespace [a-z0-9_]+ \{$/) {
      split(row[i], word, " ")
      row[i] = "namespace " word[2] " {} namespace " name " { using namespace " word[2] ";"
    }
    if (row[i] ~ /^#include "/) sub(/"/, "\"" folder "/", row[i])
    print row[i]
  }
}
