#!/bin/bash
# Runs test programs, three at a time, and adds up their test cases: alone the grader's tests keep two cores
# busy for less than half of the time, since they wait for each process that runs a student's code to
# start. What is told stands in the order of the programs.
#
#   run_tests.sh PROGRAM...
#
# A doctest program or one of Python's unittest counts as its test cases; any other program as one. A
# program that crashes, hangs, fails without a failed case or runs no case at all counts as one
# failed. Skipped cases of unittest count as neither; a program that skips all counts as one failed. Of a
# program that passes, lines that begin with `note: ` are shown, and doctest's messages `skipped: `. Ends with
# `N passed, N failed`. TEST_LEFT_OUT, in words, stands in front of it. TEST_TIMEOUT (1800) is how many seconds one
# program may take, TEST_JOBS (3) how many run at a time. With TEST_SUITE only the cases of that suite run of a
# doctest program, and a program that has none counts as one failed; with TEST_QUICK none of the suite `programs`.
# Exit status 2: one of these is no such number, or there is no place for the programs' output.
set -u

bad_usage() { echo "run_tests.sh: error: $*" >&2; exit 2; }
require_number() {  # require_number NAME VALUE MOST
  [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] && [ "$2" -le "$3" ] ||
    bad_usage "$1='$2': must be a whole number from 1 to $3"
}
limit=${TEST_TIMEOUT:-1800}
jobs=${TEST_JOBS:-3}
require_number TEST_TIMEOUT "$limit" 1000000
require_number TEST_JOBS "$jobs" 1024
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}  # threads that wait leave the cores to others
passed=0 failed=0
logs=$(mktemp -d 2>/dev/null) ||
  bad_usage "no folder can be made in ${TMPDIR:-/tmp} (TMPDIR) for the tests' output"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

programs=("$@")
declare -a started=() took=() code_of=()      # by the program's place; SECONDS, seconds, exit status
declare -A place_of=()                        # by process

wait_for_one() {
  wait -n -p process
  local code=$? place
  place=${place_of[$process]}
  code_of[place]=$code took[place]=$((SECONDS - started[place]))
}

tell() {  # tell PLACE: the verdict on a program that has ended
  local program=${programs[$1]} code=${code_of[$1]} log=$logs/$1 summary ok bad ran skipped=0
  # "[doctest] test cases:  3 |  3 passed | 0 failed | 0 skipped", with colours if there is a terminal
  summary=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -a '^\[doctest\] test cases:' | tail -n 1)
  if [ -n "$summary" ]; then
    ok=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed.*/\1/p' <<<"$summary")
    bad=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) failed.*/\1/p' <<<"$summary")
    ok=${ok:-0} bad=${bad:-0}
    if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ]; then bad=1; echo "$program: it ran no test case"; fi
  # "Ran 12 tests in 0.5s", and then "OK (skipped=3)" or "FAILED (failures=1, errors=2, skipped=3)"
  elif ran=$(grep -a -oE '^Ran [0-9]+ tests? in' "$log" | grep -oE '[0-9]+'); then
    bad=$(sed -n 's/^FAILED (\(.*\))$/\1/p' "$log" | grep -oE '(^|, )(failures|errors)=[0-9]+' |
      awk -F= '{ sum += $2 } END { print sum + 0 }')
    skipped=$(sed -nE 's/^(OK|FAILED) \(.*skipped=([0-9]+).*/\2/p' "$log" | tail -n 1)
    skipped=${skipped:-0} ok=$((ran - bad - skipped))
    if [ "$ok" -lt 0 ]; then ok=0; fi
    if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ]; then bad=1; echo "$program: it skipped all its cases"; fi
  elif [ "$code" -eq 0 ]; then ok=1 bad=0
  else ok=0 bad=1
  fi
  if [ "$bad" -ne 0 ]; then
    # Enough to see what went wrong, the end above all.
    echo "---- $program: exit status $code"
    [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || echo "(stopped after $limit s)"
    if [ "$(wc -l <"$log")" -gt 400 ]; then
      head -n 200 "$log"; echo '[...]'; tail -n 200 "$log"
    else cat "$log"; fi
    echo "----"
  else
    grep -a '^note: ' "$log"
    sed 's/\x1b\[[0-9;]*m//g' "$log" | sed -nE 's/^[^ ]+: MESSAGE: (skipped: .*)/note: \1/p' | sort -u
  fi
  printf '%-44s %5d passed %5d failed %5d s%s\n' "$(name_of "$program")" "$ok" "$bad" "${took[$1]}" \
    "$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
  passed=$((passed + ok)) failed=$((failed + bad))
}

# As ONLY calls it: a program's file, a script's path.
name_of() { case $1 in build/*) basename "$1" ;; *) echo "$1" ;; esac; }

# doctest programs are what is built; scripts take no flags.
suite_of() {
  case $1 in build/*-solution) return ;; build/*) ;; *) return ;; esac
  [ -z "${TEST_SUITE-}" ] || echo "--test-suite=$TEST_SUITE"
  [ -z "${TEST_QUICK-}" ] || echo "--test-suite-exclude=programs"
}

next=0 told=0
while [ $told -lt ${#programs[@]} ]; do
  while [ $next -lt ${#programs[@]} ] && [ ${#place_of[@]} -lt "$jobs" ]; do
    timeout -k 5 "$limit" "./${programs[next]}" $(suite_of "${programs[next]}") </dev/null >"$logs/$next" 2>&1 &
    place_of[$!]=$next started[next]=$SECONDS next=$((next + 1))
  done
  wait_for_one
  unset "place_of[$process]"
  while [ -n "${code_of[told]-}" ]; do tell $told; told=$((told + 1)); done
done

if [ $((passed + failed)) -eq 0 ]; then
  echo "there was no test to run" >&2
  failed=1
fi
[ -z "${TEST_LEFT_OUT-}" ] || fmt -w 100 <<<"Left out: $TEST_LEFT_OUT."
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
