#!/bin/sh
# What `make test` (or, with the argument "all", `make test-all`) runs. A step that fails doesn't stop the others; a step
# that fails before it could count anything (a build, say) counts as one failure. Last line: "N passed, N failed".
all=${1:-} CC=${CC:-gcc} make="${MAKE:-make} -s --no-print-directory -j$(nproc)"
unset MAKEFLAGS MFLAGS MAKELEVEL
mkdir -p build
TALLY=$PWD/build/tally
export TALLY
: >"$TALLY"

step() { # NAME COMMAND...
    name=$1 before=$(wc -l <"$TALLY") start=$(date +%s)
    shift
    "$@" && rc=0 || rc=$?
    if [ "$rc" -ne 0 ] && [ "$(wc -l <"$TALLY")" -eq "$before" ]; then
        echo "FAILED $name (exit code $rc)"
        echo "0 1" >>"$TALLY"
    fi
    echo "-- $name: $(($(date +%s) - start)) s"
}
passes() { "$@" && echo "1 0" >>"$TALLY"; } # a command that is a test by itself

step "packages" tools/deps.sh build test
step "build" $make CC="$CC" all
step "unit tests" $make CC="$CC" unit
step "end-to-end tests" $make CC="$CC" e2e
step "unit tests with sanitizers" $make CC="$CC" CONFIG=asan unit
step "fuzzing" $make fuzz
if [ "$all" = all ]; then
    for other in gcc clang; do
        [ "$other" = "$CC" ] || step "unit tests, $other" $make CC=$other unit
    done
    step "unit tests, unoptimized" $make CC="$CC" CONFIG=debug unit
    step "test matrices" $make CC="$CC" e2e-full
    step "lint" passes $make lint
fi
awk '{ p += $1; f += $2 } END { printf "%d passed, %d failed\n", p, f; exit f > 0 }' "$TALLY"
