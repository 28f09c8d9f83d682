#!/bin/sh
# `make demo TEXT=file` in few steps: trains on the text, measures on its last twentieth, writes. In a folder of its own.
. test/e2e/lib/train.sh
ln -s "$PWD/examples" "$tmp"
ln -s "$(realpath "$wanhe")" "$tmp/wanhe"
demo=$PWD/tools/demo.sh
few="--set tokens.train_steps=3 --set optimizer.learning_rate_scheduler.lr_warmup_steps=1 --set tokens.sequence_length=64"
tools/tiny_text.sh 20000 >"$tmp/own.txt"
in_tmp() { (cd "$tmp" && DEMO_OPTIONS=$few "$demo" "$@"); }

ends 0 in_tmp own.txt
says "step 3/3"
says "nats per token over 960 tokens in 15 sequences of 64"
says '== a sample, after "'
[ "$(sed -n '/^== a sample/,$p' "$tmp/said" | wc -c)" -gt 400 ]
report $? "something was written"
[ "$(cat "$tmp/data/own-train.txt" "$tmp/data/own-valid.txt" | cksum)" = "$(cksum <"$tmp/own.txt")" ]
report $? "the text is shared out without loss"
ends 0 in_tmp own.txt # once more: the folder of the last demo is in the way
head -c 19999 "$tmp/own.txt" >"$tmp/short.txt"
ends 1 in_tmp short.txt
says "short.txt has 19999 bytes; 20000 are the least to learn from"
ends 1 in_tmp none.txt
exit "$failed"
