#!/bin/sh
# `make demo`: trains a small model for about two minutes on the King James Bible, or on the file given, then shows the
# loss on text that it never saw and lets it write.
#
#   tools/demo.sh [TEXT_FILE]        DEMO_OPTIONS: more options of `wanhe train`
set -eu
config=examples/kjv-llama.yaml out=runs/demo prompt="And the LORD said unto"
set_data=
if [ $# -gt 0 ]; then
    [ -s "$1" ] || { echo "$1 is not a file with text in it" >&2; exit 1; }
    mkdir -p data
    bytes=$(wc -c <"$1")
    [ "$bytes" -ge 20000 ] || { echo "$1 has $bytes bytes; 20000 are the least to learn from" >&2; exit 1; }
    head -c $((bytes / 20 * 19)) "$1" >data/own-train.txt # the last twentieth is for validation
    tail -c $((bytes - bytes / 20 * 19)) "$1" >data/own-valid.txt
    set_data="--set data.train=data/own-train.txt --set data.valid=data/own-valid.txt"
    prompt=$(tail -c 200 "$1" | head -c 60 | iconv -f utf-8 -t utf-8 -c) # -c: without half characters at its ends
fi
rm -rf "$out"
# shellcheck disable=SC2086  # lists of words without spaces in them
./wanhe train "$config" --out "$out" $set_data ${DEMO_OPTIONS:-}
echo
echo "== loss on the validation text"
./wanhe eval "$out"
echo
echo "== a sample, after \"$prompt\""
./wanhe generate "$out" --prompt "$prompt" --tokens 400
