# Which test file is the first that calls the compiler in each way, of the cases marked
# `* doctest::test_suite("toolkit")`: one line "FUNCTION:FILE" a way.
#
#   awk -v functions='Mutants check_load_groups' -f ways.awk FILE...
BEGIN { split(functions, way, " ") }
/^TEST_CASE/ || /^}/ { marked = 0 }
/test_suite\("toolkit"\)/ { marked = 1 }
marked {
  for (i in way)
    if ($0 ~ "(^|[^A-Za-z0-9_])" way[i] "[ (]" && !seen[i]++) print way[i] ":" FILENAME
}
