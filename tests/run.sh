#!/usr/bin/env bash
# Everything from a clean clone to test results: set-up, build, all tests.
set -euo pipefail

usage() {
  cat <<'END'
Usage: tests/run.sh [--preset PRESET] [--label REGEX] [--no-setup]

Installs what is missing, builds every target and runs the tests. Exit status 0 when all passed.
Ends with one line: N passed, N failed, N skipped (single test cases, not test programs).

  --preset PRESET   release (default), debug, asan or tsan
  --label REGEX     only tests with such a label: unit, sim, integration, e2e
  --no-setup        do not look whether packages and .deps/ are in place
  --help            this text

Examples:
  tests/run.sh
  tests/run.sh --preset asan --label 'unit|sim'
  tests/run.sh --no-setup --label e2e
END
}

preset=release
label=
setup=1
while (($#)); do
  case $1 in
    --preset)
      preset=${2:?"--preset needs a name: release, debug, asan or tsan"}
      shift 2
      ;;
    --label)
      label=${2:?"--label needs a regular expression, such as unit"}
      shift 2
      ;;
    --no-setup)
      setup=0
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      printf 'tests/run.sh: unknown option %s\n\n' "$1" >&2
      usage >&2
      exit 2
      ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ((setup)); then
  deploy/setup.sh --tests
fi
deploy/build.sh --preset "$preset"

# Counts test cases from ctest's log: googletest's closing lines where a program prints them, else
# the program counts as one case. A program that ended without its closing lines has failed.
count_cases() {
  awk '
    function close_block() {
      if (!open) return
      if (bad && !failed_here) failed_here = 1
      if (!closing && !bad) passed_here = 1
      passed += passed_here; failed += failed_here; skipped += skipped_here
      open = 0
    }
    /^[0-9]+\/[0-9]+ Test(ing)?: / && !/Test: .*Command/ {
      close_block()
      open = 1; bad = 0; closing = 0; passed_here = 0; failed_here = 0; skipped_here = 0
    }
    /^\[  PASSED  \] [0-9]+ tests?\./ { closing = 1; passed_here += $4 }
    /^\[  SKIPPED \] [0-9]+ tests?, listed below/ { skipped_here += $4 }
    /^\[  FAILED  \] [0-9]+ tests?, listed below/ { failed_here += $4 }
    /^Test (Failed|timed out|not run)/ || /^\*\*\*/ || /^Unable to find executable/ { bad = 1 }
    END {
      close_block()
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$1"
}

status=0
# A filter that matches nothing fails: a run without tests proves nothing.
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" \
  ${label:+--label-regex "$label"} || status=$?
log=build/$preset/Testing/Temporary/LastTest.log
if [[ -f $log ]]; then
  counts=$(count_cases "$log")
  echo "tests skipped: ${counts##*failed, }" | sed 's/ skipped$//'
  echo "$counts"
else
  status=1
fi
exit "$status"
