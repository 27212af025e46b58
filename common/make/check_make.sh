#!/bin/sh
# Checks what make says to goals and variables that are wrong, that chapters are found by their
# folders' numbers, and which command a program is told to be renewed by. Builds nothing.
set -u
cd "$(dirname "$0")/../.." || exit 1
# DEVICE, TOOLKIT and THIRD_PARTY stay: with others something might have to be installed.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES ARCH SANITIZE ONLY ALL
case ${THIRD_PARTY:-} in ''|/*) ;; *) THIRD_PARTY=$PWD/$THIRD_PARTY ;; esac
failed=0
make deps >/dev/null 2>&1  # what it says the first time it says once

fail() { failed=1; echo "FAIL  make $1"; sed 's/^/      /' <<END
$2
END
}
# refused WORDS... -- TEXT: make with those words ends with a status that is not 0, and one line that
# has TEXT in it, a pattern of the shell.
refused() {
  words=
  while [ "$1" != -- ]; do words="$words '$1'"; shift; done
  if said=$(eval "make $words" 2>&1); then fail "$words" "it ended with status 0: $said"; return; fi
  case $said in
    *'No rule'* | *'
'*) fail "$words" "$said" ;;
    *$2*) ;;
    *) fail "$words" "$said" ;;
  esac
}
# shows TEXT WORDS...: what make would do has TEXT in it, a pattern of the shell.
shows() {
  text=$1; shift
  said=$(make -n "$@" 2>&1 | grep renew:)
  case $said in *$text*) ;; *) fail "-n $*, without '$text'" "$said" ;; esac
}

# chooses 'PROGRAM...' WORDS...: what make would run, without its folder.
chooses() {
  programs=$1; shift
  said=$(make -n "$@" 2>&1 | sed -n 's/.*run_tests\.sh//p' | xargs -rn 1 basename | xargs)
  [ "$said" = "$programs" ] || fail "$*, instead of '$programs'" "$said"
}

# compiles 'FILE...' 'OTHER...' WORDS...: of these files make would compile the first, but not the others,
# if all were new. (A file of a group is compiled where the group's .cc names it.)
compiles() {
  files=$1 others=$2; shift 2
  said=$(make -n $(printf ' -W %s' $files $others) "$@" 2>&1)
  for file in $files; do
    compiled $file || fail "$*" "it does not compile $file"
  done
  for file in $others; do
    if compiled $file; then fail "$*" "it compiles $file"; fi
  done
}
compiled() { printf '%s\n' "$said" | grep -qE "( -c |^printf '#include .* )$1 "; }

for goal in chapter99 chapter chapter00 chapter3x chapter0x3 chapter03 chapter-1; do
  refused $goal -- "$goal: there is no such chapter; there are: chapter0 chapter1 "
done
for goal in exercise99 exercise exercise3x; do
  refused $goal -- "$goal: there is no such exercise; there are: exercise0 exercise1 "
done
refused chapter1 chapter99 -- 'chapter99: there is no such chapter'
refused ARCH=sm_70 chapter1 -- 'ARCH=sm_70: *must be one of sm_75 sm_80'
refused ARCH=sm_999 chapter1 -- 'ARCH=sm_999: *must be one of sm_75 sm_80'
refused ARCH=sm_80a chapter1 -- 'ARCH=sm_80a: *must be one of sm_75 sm_80'
refused ARCH=sm_ chapter1 -- 'ARCH=sm_: *must be one of sm_75 sm_80'
refused ARCH=90 chapter1 -- 'ARCH=90: must be one architecture as nvcc writes it, for example sm_86'
refused 'ARCH=sm_80 sm_90' chapter1 -- 'ARCH=sm_80 sm_90: must be one architecture'
refused DEVICE=gpu chapter1 -- 'DEVICE=gpu: must be cuda (a real GPU) or vgpu'
refused 'DEVICE=cuda vgpu' chapter1 -- 'DEVICE=cuda vgpu: must be cuda'
refused DEVICE=% chapter1 -- 'DEVICE=%: must be cuda'
refused DEVICE= chapter1 -- 'DEVICE= is empty: leave it out'
refused ARCH= chapter1 -- 'ARCH= is empty: leave it out'
refused SANITIZE=yes test -- 'SANITIZE=yes: must be 1, or 0'
refused MINUTES=abc bench -- 'MINUTES=abc: must be a number'
refused FUZZ_SECONDS=abc fuzz -- 'FUZZ_SECONDS=abc: must be a number'
refused ONLY=% test -- 'ONLY=%: no name has a % in it'
said=$(make -n SANITIZE=0 chapter1 2>&1)
case $said in *sanitize*) fail SANITIZE=0 "it turns the sanitizers on" ;; esac
refused TOOLKIT=foo chapter1 -- 'TOOLKIT=foo: must be auto *or wheels'
refused ARCHS=sm_70 compile-all -- 'ARCHS=sm_70: must be of sm_75 sm_80'
refused CHAPTERS=chapters/99_x compile-all -- 'CHAPTERS=chapters/99_x: must be of chapters/00_'
refused 'ONLY=chapter3 vgppu' test -- 'ONLY=vgppu: no test program is called so or begins so; there are: toolkit *test_chapter3 *lab_tests *data/check.sh'
refused ONLY=chapter99 test-gpu -- 'ONLY=chapter99: no test program is called so*there are: *test_chapter3 '
refused ONLY=data test-gpu -- 'ONLY=data: nothing of that runs on a GPU; there are: lab_tests *test_chapter3 '

# A make too old is named. (One that lacks what 4.3 has is played by one that says so.)
refused .FEATURES=archives chapter1 -- 'this is GNU Make *, and the course needs 4.3 or newer'

# Programs of chapters: those that the chosen tests start.
compiles 'chapters/06_coalesced_k/main.cu chapters/05_multi_warp/main.cu' \
  'chapters/01_naive_attention/main.cu chapters/13_flash_attention/main.cu' test ONLY=chapter6
compiles 'chapters/13_flash_attention/tests/newest.cu chapters/01_naive_attention/main.cu chapters/01_naive_attention/tests/test.cu' \
  'chapters/13_flash_attention/kernels.cu chapters/13_flash_attention/tests/test.cu' test
compiles 'chapters/13_flash_attention/tests/newest.cu chapters/13_flash_attention/tests/test.cu' '' test ALL=1

# ONLY: a name, what it begins with up to a _ or anywhere; and chapter 4 is not chapter 40.
chooses 'test_chapter2 lab_tests lab_tile' test 'ONLY=chapter2 lab'
chooses 'check.sh' test ONLY=data/check.sh
chooses 'bad_input_tests test_chapter7_launches test_chapter7' test 'ONLY=bad test_chapter7'
chooses 'all.py' test ONLY=common/workshop/tests
if make -n test ALL=1 2>/dev/null | grep -q 'run_tests.sh.*/vgpu_tests '; then  # no zstd, no virtual GPU
  chooses 'vgpu_tests test_chapter3' test 'ONLY=chapter3 vgpu'
  chooses 'runtime_device' test ONLY=runtime_dev
  chooses 'exercise_tests grader_tests' test 'ONLY=grader exercise'
  chooses 'exercise_tests grader_tests' test 'ONLY=grader exercise' SUITE=toolkit
  # Of a suite what its cases need, and nothing else.
  chooses 'vgpu_tests test_chapter3' test 'ONLY=chapter3 vgpu' SUITE=toolkit
  chooses 'vgpu_tests' test 'ONLY=vgpu_tests' SUITE=toolkit
  in_suite="$(grep -l 'doctest::test_suite("toolkit")' common/vgpu/tests/*.cpp) common/vgpu/tests/main.cpp
    common/vgpu/tests/forms_cases.cpp chapters/02_tiling/exercise/exercise.cu chapters/04_wmma/tests/test.cu"
  outside="common/vgpu/tests/forms_floats.cpp chapters/01_naive_attention/main.cu chapters/04_wmma/exercise/exercise.cu"
  outside="$outside chapters/08_fused_conv_norm/kernels/fp32.cu chapters/05_multi_warp/exercise/exercise.cu"
  compiles "$in_suite" "$outside" test ONLY=toolkit SUITE=toolkit
  compiles "$in_suite $outside" '' test ONLY=toolkit
  # Of the chapters one program for each function of common/testing that calls the compiler.
  chooses 'exercise_tests grader_tests vgpu_tests time_programs test_chapter4 test_chapter1 look_programs runtime_device runtime_library runtime_process' \
    test ONLY=toolkit SUITE=toolkit
  calls=$(cat common/testing/*.cpp | grep -c 'environment("NVCC"')
  [ "$calls" -eq 2 ] || fail 'test ONLY=toolkit SUITE=toolkit' \
    "common/testing calls the compiler in $calls places, tests.mk chooses chapters for two"
fi

# assembles 'PTX...' 'ARCH...' ARCHS: for which architectures the compiler makes PTX, and for which that is assembled.
assembles() {
  said=$(make -n -W chapters/04_wmma/main.cu ARCH=sm_90 compile-all CHAPTERS=chapters/04_wmma "ARCHS=$3" 2>&1)
  ptx=$(printf '%s\n' "$said" | sed -n 's/.*code=\([^ ]*\).* -ptx .*/\1/p' | sort | xargs)
  code=$(printf '%s\n' "$said" | sed -n 's/.*assemble\.sh .*\.ptx \([^ ]*\) .*/\1/p' | sort | xargs)
  [ "$ptx: $code" = "$1: $2" ] || fail "compile-all ARCHS='$3', instead of $1: $2" "$ptx: $code"
}
assembles 'compute_100 compute_75 compute_80' 'sm_100 sm_120 sm_75 sm_80 sm_86 sm_89' \
  'sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120'
assembles 'compute_100 compute_80' 'sm_120 sm_86' 'sm_86 sm_120'

# The command of a program's own choices, and no others.
main=chapters/01_naive_attention/main.cu
shows 'renew: chapter1* ARCH=sm_80*"' -W $main ARCH=sm_80 chapter1
if [ -z "${DEVICE:-}${TOOLKIT:-}${THIRD_PARTY:-}" ]; then
  shows 'renew: chapter1"' -W $main chapter1
  shows 'renew: chapter1 ARCH=sm_80"' -W $main ARCH=sm_80 chapter1
  shows 'renew: chapter1 SANITIZE=1"' -W $main SANITIZE=1 chapter1
  shows 'renew: exercise1"' -W chapters/01_naive_attention/exercise/exercise.cu exercise1
fi

# Chapters are found by their number, whatever it is.
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/chapters"
for entry in Makefile common data build .toolkit; do
  [ ! -e "$entry" ] || ln -s "$PWD/$entry" "$tree/$entry"
done
for folder in chapters/*/; do ln -s "$PWD/${folder%/}" "$tree/chapters"; done
for number in 40 41 42; do
  mkdir -p "$tree/chapters/${number}_new/tests"
  touch "$tree/chapters/${number}_new/main.cu" "$tree/chapters/${number}_new/tests/test.cu"
done
cd "$tree" || exit 1
said=$(make -n chapter40 chapter41 chapter42 2>&1)
for number in 40 41 42; do
  case $said in *"-c chapters/${number}_new/main.cu"*) ;; *) fail "chapter$number" "$said" ;; esac
done
chooses test_chapter4 test ONLY=chapter4
chooses test_chapter40 test ONLY=chapter40
refused chapter4x -- 'chapter4x: *chapter8 *chapter40 chapter41 chapter42'

exit $failed
