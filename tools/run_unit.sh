#!/bin/sh
# Runs the unit tests of build folder $1 whose path contains $2 (default: all), each in its own process; cmocka prints
# what failed. Ends with "N passed, N failed" (counted in test programs); exit 1 if any failed.
build=$1 match=${2:-} passed=0 failed=0
for t in $(find "$build/test/unit" -type f -name 'test_*' ! -name '*.*' | sort); do
    case $t in *"$match"*) ;; *) continue ;; esac
    if timeout 120 "$t" >"$t.log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED ${t#"$build"/}"
        tail -n 40 "$t.log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
