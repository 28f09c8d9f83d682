#!/bin/sh
# Collectives between processes, all combinations: bits of every operation, type, size, place and number of ranks;
# every algorithm's step lists; every way to die at every phase.
set -eu
build=${BUILD:-build/release}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export WH_TEST_LONG=1
for test in collectives sums exec async failures; do
    program=$build/test/unit/comm/test_$test
    ${MAKE:-make} -s CONFIG="$(basename "${build%-clang}")" CC="${CC:-gcc}" "$program"
    start=$(date +%s)
    "$program" >"$log" 2>&1 || { cat "$log"; exit 1; }
    echo "$program: $(($(date +%s) - start)) s"
done
