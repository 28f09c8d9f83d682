#!/bin/sh
# docs/zero.md holds what it quotes: `wanhe explain zero` and the measured tables of bench/zero_table.py. Also the start lines of
# a run about what ranks hold and send.
. test/e2e/lib/train.sh

quoted() { # WHAT: each line of $tmp/said that is part of a table
    grep -E '^( *[0-3]  |\| [0-9s])' "$tmp/said" >"$tmp/lines"
    [ -s "$tmp/lines" ]
    report $? "$1: a table"
    while IFS= read -r line; do
        grep -qF -- "$line" docs/zero.md || { report 1 "docs/zero.md has: $line"; return; }
    done <"$tmp/lines"
    report 0 "docs/zero.md has the table of $1"
}

ends 0 "$wanhe" explain zero --params 7e9 --ranks 8
quoted "explain zero"
ends 0 "$wanhe" explain zero --params 7e9 --ranks 8 --json
for bytes in 112000000000 38500000000 26250000000 14000000000; do says "\"total_bytes\":$bytes"; done
ends 0 "$wanhe" explain zero --params 12368 --ranks 5 --json # case B74: shares round up to 2,474
says '"parameters_per_rank":2474'
says '"total_bytes":39584'
ends 2 "$wanhe" explain zero --params 0
ends 2 "$wanhe" explain zero --dtype float16
ends 0 env WANHE="$wanhe" "${PYTHON:-/usr/bin/python3}" bench/zero_table.py
quoted "bench/zero_table.py"

two="--set parallelism.dp=2 --set tokens.train_steps=5 --set tokens.micro_batch_size"
# shellcheck disable=SC2086  # words without spaces
{
    ends 0 train whole $two=4 --set optimizer.zero_stage=2
    says "rank 0 sends "
    says "dp.grad.reduce_scatter"
    silent_about "shares out gradients only"
    ends 0 train sums $two=2 --set optimizer.zero_stage=2
    says "ZeRO 2 shares out gradients only where tokens.batch_accumulation_per_replica is 1: here it is 2"
    ends 0 train alone --set tokens.train_steps=5
    silent_about "rank 0 sends"
}
exit "$failed"
