#!/bin/bash
# Runs test programs one after another (each may use all cores) and adds up their test cases.
#
#   run_tests.sh PROGRAM...
#
# A doctest program or one of Python's unittest counts as its test cases; any other program as one. A
# program that crashes, hangs, fails without a failed case or runs no case at all counts as one
# failed. Ends with `N passed, N failed`. TEST_TIMEOUT (900) is how many seconds one program may
# take.
set -u

limit=${TEST_TIMEOUT:-900}
passed=0 failed=0
log=$(mktemp) && trap 'rm -f "$log"' EXIT

for program in "$@"; do
  start=$SECONDS
  timeout -k 5 "$limit" "./$program" </dev/null >"$log" 2>&1
  code=$?
  # "[doctest] test cases:  3 |  3 passed | 0 failed | 0 skipped", with colours if there is a terminal
  summary=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -a '^\[doctest\] test cases:' | tail -n 1)
  if [ -n "$summary" ]; then
    ok=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed.*/\1/p' <<<"$summary")
    bad=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) failed.*/\1/p' <<<"$summary")
    ok=${ok:-0} bad=${bad:-0}
    if [ $code -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ]; then bad=1; echo "$program: it ran no test case"; fi
  # "Ran 12 tests in 0.5s", and then "FAILED (failures=1, errors=2)" unless all is well
  elif ran=$(grep -a -oE '^Ran [0-9]+ tests? in' "$log" | grep -oE '[0-9]+'); then
    bad=$(sed -n 's/^FAILED (\(.*\))$/\1/p' "$log" | grep -oE '(failures|errors)=[0-9]+' |
      awk -F= '{ sum += $2 } END { print sum + 0 }')
    ok=$((ran > bad ? ran - bad : 0))
    if [ $code -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  elif [ $code -eq 0 ]; then ok=1 bad=0
  else ok=0 bad=1
  fi
  if [ "$bad" -ne 0 ]; then
    # Enough to see what went wrong, the end above all.
    echo "---- $program: exit status $code"
    [ $code -ne 124 ] && [ $code -ne 137 ] || echo "(stopped after $limit s)"
    if [ "$(wc -l <"$log")" -gt 400 ]; then head -n 200 "$log"; echo '[...]'; tail -n 200 "$log"; else cat "$log"; fi
    echo "----"
  fi
  printf '%-44s %5d passed %5d failed %5d s\n' "$(basename "$program")" "$ok" "$bad" $((SECONDS - start))
  passed=$((passed + ok)) failed=$((failed + bad))
done

if [ $((passed + failed)) -eq 0 ]; then
  echo "there was no test to run" >&2
  failed=1
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
