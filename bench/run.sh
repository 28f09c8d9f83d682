#!/bin/sh
# `make bench`: runs each bench program given and, if "bench/step" is among them, the training step beside PyTorch, "bench/dp" the same with ranks.
# What a program prints goes to the terminal and, under the machine's description, to bench/results/NAME-DATE.txt.
#
#   bench/run.sh PROGRAM... [bench/step]
set -eu
date=$(date -u +%Y-%m-%d-%H%M)
mkdir -p bench/results
for program; do
    [ "$program" = bench/step ] && bench/step.py && continue
    [ "$program" = bench/dp ] && bench/dp.py && continue
    name=$(basename "$program" | sed 's/^bench_//')
    echo "== $name"
    { [ "$name" = machine ] || build/release/bench/machine/bench_machine; "$program"; } | tee "bench/results/$name-$date.txt"
done
