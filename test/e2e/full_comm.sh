#!/bin/sh
# Collectives between processes, all combinations: bits of every operation, type, size, place and number of ranks;
# every algorithm's step lists; every way to die at every phase. Needs the unit tests built.
set -eu
build=${BUILD:-build/release}
programs=""
for test in collectives exec async failures; do programs="$programs $build/test/unit/comm/test_$test"; done
${MAKE:-make} -s CONFIG="${build#build/}" $programs
export WH_TEST_LONG=1
said=$(mktemp)
trap 'rm -f "$said"' EXIT
for program in $programs; do
    start=$(date +%s)
    "$program" >/dev/null 2>"$said" || { cat "$said"; exit 1; }
    echo "$program: $(($(date +%s) - start)) s"
done
