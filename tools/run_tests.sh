#!/bin/sh
# Runs test programs or scripts, each in its own process; the exit code is the verdict, the output is shown if it fails.
# 77: could not run here, for the reason in its last line; counts neither as passed nor as failed.
#
#   tools/run_tests.sh LABEL LOG_FOLDER PROGRAM...
#
# TEST_SECONDS (120) is the limit for each, TEST_JOBS (number of processors) run at once. Ends with
# "LABEL: N passed, N failed" (counted in programs) and exit 1 if any failed; with TALLY=FILE "N N" is appended to FILE.
label=$1 logs=$2
shift 2
mkdir -p "$logs"
rm -f "$logs"/*.failed "$logs"/*.skipped
# Several multi-threaded programs share the processors here: spinning threads would only take them from each other.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" TEST_LOGS="$logs" TEST_SECONDS="${TEST_SECONDS:-120}"
[ $# -eq 0 ] || printf '%s\0' "$@" | xargs -0 -n 1 -P "${TEST_JOBS:-$(nproc)}" sh -c '
    name=$(echo "$1" | tr / _) start=$(date +%s)
    timeout "$TEST_SECONDS" "$1" >"$TEST_LOGS/$name.log" 2>&1
    rc=$? seconds=$(($(date +%s) - start))
    [ $seconds -lt 15 ] || echo "slow: $1 took $seconds s"
    [ $rc -ne 77 ] || { echo "$1: $(tail -n 1 "$TEST_LOGS/$name.log")" >"$TEST_LOGS/$name.skipped"; exit 0; }
    [ $rc -eq 0 ] || { echo "$1 (exit code $rc)"; tail -n 40 "$TEST_LOGS/$name.log"; } >"$TEST_LOGS/$name.failed"
    exit 0' run
failed=0 skipped=0
for f in "$logs"/*.skipped; do
    [ -e "$f" ] || continue
    skipped=$((skipped + 1))
    printf 'SKIPPED %s\n' "$(cat "$f")"
done
for f in "$logs"/*.failed; do
    [ -e "$f" ] || continue
    failed=$((failed + 1))
    printf 'FAILED '
    cat "$f"
done
passed=$(($# - failed - skipped))
[ -z "${TALLY:-}" ] || echo "$passed $failed" >>"$TALLY"
[ "$skipped" -eq 0 ] || label="$label ($skipped skipped)"
echo "$label: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
