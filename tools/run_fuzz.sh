#!/bin/sh
# Runs each fuzz target for FUZZ_SECONDS on test/fuzz/corpus/NAME (seeds, read only) and build/fuzz/corpus/NAME (grows).
# A crash, a sanitizer report, a leak or a hang (10 s) fails it; the input is kept in build/fuzz/crash/NAME-*.
#
#   tools/run_fuzz.sh PROGRAM...
mkdir -p build/fuzz/run build/fuzz/crash
for program; do
    name=$(basename "$program" | sed 's/^fuzz_//')
    seeds=test/fuzz/corpus/$name
    mkdir -p "build/fuzz/corpus/$name"
    [ -d "$seeds" ] || seeds=
    cat >"build/fuzz/run/$name" <<EOF
#!/bin/sh
exec $program -max_total_time=${FUZZ_SECONDS:-5} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/crash/$name- build/fuzz/corpus/$name $seeds
EOF
    chmod +x "build/fuzz/run/$name"
    set -- "$@" "build/fuzz/run/$name"
    shift
done
TEST_SECONDS=$((${FUZZ_SECONDS:-5} + 60)) exec tools/run_tests.sh fuzz build/fuzz/logs "$@"
