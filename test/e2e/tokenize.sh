#!/bin/sh
# `wanhe tokenize`: files, summary, refusals. Uses ./wanhe (or $WANHE); run from the root.
wanhe=${WANHE:-./wanhe} failed=0 tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

report() { # TEST-RESULT WHAT
    if [ "$1" -eq 0 ]; then echo "ok $2"; else echo "FAILED $2"; failed=1; fi
}
ends() { # CODE ARGUMENTS...: exit code; the streams stay in $tmp/out and $tmp/err
    want=$1
    shift
    "$wanhe" tokenize "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ "$got" -eq "$want" ]
    report $? "exit code $want: tokenize $*"
    [ "$got" -eq "$want" ] || { echo "  got $got"; cat "$tmp/err"; }
}
says() { grep -qF -- "$2" "$tmp/$1"; report $? "$1: $2"; } # STREAM TEXT
holds() { [ "$(od -An -v -t "$2" -j "$3" "$tmp/$1" | tr -s ' \n' ' ')" = " $4 " ]; report $? "$1: $4"; } # FILE TYPE FROM VALUES
absent() { [ ! -e "$tmp/$1" ]; report $? "no $1"; }

printf 'ab\n' >"$tmp/ab.txt"
printf '{"text": "hi"}\n{"text": "\\u4f60", "n": 1}\n' >"$tmp/two.jsonl"
printf 'one\ntwo\n\nthree\n' >"$tmp/blocks.txt"

ends 0 -t bytes -o "$tmp/ab" "$tmp/ab.txt"
holds ab.bin u2 1024 "97 98 10"
[ "$(od -An -t d4 -N 12 "$tmp/ab.bin" | tr -s ' ')" = " 20240520 1 3" ]; report $? "header of llm.c"

# Documents in order, each with its end of text: 256 with a tokenizer that has learned nothing.
ends 0 -t train:257 -o "$tmp/two" --format megatron --json "$tmp/two.jsonl"
holds two.bin u2 0 "104 105 256 228 189 160 256"
says out '{"schema":"wanhe.tokenize/1"'
says out '"vocab_size":257,"end_of_text":256,"format":"megatron","documents":2,"bytes":5,"tokens":7,'
ends 0 -t "$tmp/two_tokenizer.json" -o "$tmp/again" "$tmp/two.jsonl"
holds again.bin u2 1024 "104 105 256 228 189 160 256"
ends 0 -t "$tmp/two_tokenizer.json" -o "$tmp/bare" --no-end-of-text "$tmp/two.jsonl"
holds bare.bin u2 1024 "104 105 228 189 160"
ends 0 -t bytes -o "$tmp/joined" "$tmp/two.jsonl"
says err "no end-of-text token: 2 documents are joined"

ends 0 -t bytes -o "$tmp/blocks" --split-documents blank --valid 0.4 "$tmp/blocks.txt"
holds blocks_train.bin u1 1024 "111 0 110 0 101 0 10 0 116 0 119 0 111 0"
holds blocks_val.bin u1 1024 "116 0 104 0 114 0 101 0 101 0"
absent blocks.bin

# Special tokens spelled in the text.
printf 'a<|endoftext|>b' >"$tmp/special.txt"
ends 0 -t "$tmp/two_tokenizer.json" -o "$tmp/special" --no-end-of-text "$tmp/special.txt"
holds special.bin u2 1024 "97 256 98"
ends 0 -t "$tmp/two_tokenizer.json" -o "$tmp/plain" --no-end-of-text --added-as-text "$tmp/special.txt"
says out "15 tokens"

ends 2 -t bytes -o "$tmp/x"
says err "no input file is named"
ends 2 -o "$tmp/x" "$tmp/ab.txt"
says err "--tokenizer WHICH is missing"
ends 2 -t bytes "$tmp/ab.txt"
says err "--out PREFIX is missing"
ends 2 -t bytes -o "$tmp/x" --format npz "$tmp/ab.txt"
says err "--format npz: llmc or megatron is expected"
ends 2 -t bytes -o "$tmp/x" --valid 1 "$tmp/ab.txt"
ends 2 -t train:many -o "$tmp/x" "$tmp/ab.txt"
ends 2 -t train:256 -o "$tmp/x" "$tmp/ab.txt"
ends 1 -t "$tmp/none.json" -o "$tmp/x" "$tmp/ab.txt"
ends 1 -t bytes -o "$tmp/x" "$tmp/none.txt"
: >"$tmp/empty.txt"
ends 1 -t bytes -o "$tmp/x" "$tmp/empty.txt"
says err "no text"
printf 'ab\377' >"$tmp/broken.txt"
ends 1 -t "$tmp/two_tokenizer.json" -o "$tmp/x" "$tmp/broken.txt"
says err "byte 2 (0xff) of the text is not valid UTF-8"
says err "broken.txt:1"
absent x.bin
exit $failed
