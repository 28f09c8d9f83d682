#!/bin/sh
# The made-up text is the same bytes everywhere and as long as asked; the Bible's, where its package is, is prose.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tools/tiny_text.sh 1000 >"$tmp/tiny.txt"
[ "$(cksum <"$tmp/tiny.txt")" = "3031294701 1000" ] || { echo "another text: $(cksum <"$tmp/tiny.txt")"; exit 1; }

command -v bible >/dev/null || exit 0
tools/kjv_text.sh "$tmp/kjv"
[ "$(cd "$tmp/kjv" && echo *)" = "kjv-train.txt kjv-valid.txt" ] || { ls "$tmp/kjv"; exit 1; }
head -n 1 "$tmp/kjv/kjv-train.txt" | grep -qx 'In the beginning God created the heaven and the earth.'
tail -n 1 "$tmp/kjv/kjv-valid.txt" | grep -q '^The grace of our Lord Jesus Christ be with you all. Amen.$'
if grep -nE '^[A-Z0-9][a-z]+[0-9]+:|[][]' "$tmp"/kjv/*.txt | head -n 3 | grep .; then echo "^ not prose"; exit 1; fi
train=$(wc -c <"$tmp/kjv/kjv-train.txt") valid=$(wc -c <"$tmp/kjv/kjv-valid.txt")
[ "$train" -gt 3800000 ] && [ "$valid" -gt 180000 ] && [ "$valid" -lt 220000 ]
