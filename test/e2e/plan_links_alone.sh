#!/bin/sh
# The pure half (base ledger mesh arch coll sched config sim plan) links without the rest, without threads, OpenMP or MPI,
# and calls nothing that opens files, starts threads or reads a clock.
set -eu
build=${BUILD:-build/release}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat >"$tmp/main.c" <<'EOF'
#include <stdio.h>
#include "arch/params.h"
#include "ledger/rows.h"
int main(void) {
    struct wh_model m;
    struct wh_params p;
    wh_model_defaults(WH_GPT2, &m);
    m.V = 50257, m.C = m.F = 768, m.F *= 4, m.L = m.H = m.Hkv = 12, m.D = 64, m.max_position = 1024;
    if (wh_params_new(&m, &p) != WH_OK) return 1;
    printf("%zu %s\n", p.elems, wh_row_name(WH_ROW_WEIGHTS));
    wh_params_free(&p);
    return 0;
}
EOF
${CC:-gcc} -std=c11 -Isrc -o "$tmp/main" "$tmp/main.c" -Wl,--whole-archive "$build/libwanhe-plan.a" -Wl,--no-whole-archive \
    -ljansson -lyaml -lsleef -lm
answer=$("$tmp/main")
[ "$answer" = "124439808 memory.weights" ] || { echo "GPT-2 has 124439808 parameters, got: $answer"; exit 1; }

nm -u "$build/libwanhe-plan.a" | awk '$1 == "U" { print $2 }' | sort -u >"$tmp/calls"
[ -s "$tmp/calls" ] || { echo "nm found no calls at all"; exit 1; }
banned='^(f?d?open(at|dir)?(64)?|f?popen|mmap(64)?|(f|l)?stat(64)?|read|write|unlink|rename|mkdir|socket|connect|fork|exec.*|system|time|clock.*|gettimeofday|getenv|getpid|rand|random|sleep|nanosleep|pthread_.*|thrd_.*|omp_.*|GOMP_.*|__kmpc_.*|MPI_.*)$'
if grep -E "$banned" "$tmp/calls"; then
    echo "^ called by the pure half"
    exit 1
fi
