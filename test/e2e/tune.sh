#!/bin/sh
# `wanhe tune` measures, keeps and compares; `wanhe explain` predicts with what was kept. Figures are the machine's business
# here, their form is tested.
. test/e2e/lib/train.sh

ends 0 "$wanhe" tune --ranks 2 --max-bytes 64K --seconds 0.0002 --out "$tmp/new/links.json"
says "kept in $tmp/new/links.json"
says "all_reduce in place of float32"
says "all_gather in place of float32"
says "within 25%"
grep -qE '^ +1024 \*' "$tmp/said"
report $? "a choice is marked"
grep -qF '"schema": "wanhe.links/2"' "$tmp/new/links.json"
report $? "the file says what it is"

ends 0 "$wanhe" tune --ranks 3 --quick --max-bytes 64K --json --out "$tmp/links3.json"
says '"schema":"wanhe.tune/1"'
says '"ranks":3'

HOME=$tmp/home XDG_CACHE_HOME='' ends 0 "$wanhe" tune --ranks 1 --quick --max-bytes 64K
[ -f "$tmp/home/.cache/wanhe/links-1.json" ]
report $? "kept in the cache folder"
HOME='' XDG_CACHE_HOME='' ends 2 "$wanhe" tune --ranks 1 --quick
says "give --out FILE"

ends 0 "$wanhe" explain allreduce --ranks 2 --links "$tmp/new/links.json"
says "measured with 2 ranks on"
says "shared memory, without messages"
ends 2 "$wanhe" explain allreduce --ranks 4 --ranks-per-machine 2 --links "$tmp/new/links.json"
says "exclude each other"
head -c 200 "$tmp/new/links.json" >"$tmp/cut.json"
ends 3 "$wanhe" explain allreduce --ranks 2 --links "$tmp/cut.json"
says "$tmp/cut.json:"
ends 1 "$wanhe" explain allreduce --ranks 2 --links "$tmp/none.json"

ends 2 "$wanhe" tune --ranks 65
says "--ranks 65: legal: 1 to 64"
ends 2 "$wanhe" tune --max-bytes 1K
ends 2 "$wanhe" tune --seconds 0
exit "$failed"
