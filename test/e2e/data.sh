#!/bin/sh
# The same tokens give the same run, whatever file they come from: raw text, llm.c .bin, Megatron .bin/.idx, several files;
# with bytes and with a trained tokenizer. Evaluation does not depend on how many sequences go at once (case B05).
. test/e2e/lib/train.sh
set -- --set tokens.train_steps=6
head -c 3000 "$tmp/text.txt" >"$tmp/a.txt"
tail -c +3001 "$tmp/text.txt" >"$tmp/b.txt"

ends 0 train text "$@"
ends 0 train text2 "$@" --set data.train="[$tmp/a.txt, $tmp/b.txt]"
same text text2 "two text files"
cp "$tmp/text.txt" "$tmp/noname"
ends 1 train refused "$@" --set data.train="$tmp/noname"
says "$tmp/noname"
ends 0 train told "$@" --set data.train="$tmp/noname" --set data.format=text
same text told "a file without a name that tells"
for format in llmc megatron; do
    ends 0 "$wanhe" tokenize --tokenizer bytes --format $format --no-end-of-text --out "$tmp/$format" "$tmp/text.txt"
    ends 0 train $format.run "$@" --set data.train="$tmp/$format.bin"
    same text $format.run "$format"
done
ends 0 train twice "$@" --set data.train="[$tmp/text.txt, $tmp/text.txt]"
ends 0 train mixed "$@" --set data.train="[$tmp/llmc.bin, $tmp/text.txt]"
same twice mixed "files of two kinds"
ends 1 train missing "$@" --set data.train="$tmp/none.txt"
says "$tmp/none.txt: No such file or directory"

# A tokenizer learnt from the text: text and token file are the same run.
ends 0 "$wanhe" tokenize --tokenizer train:300 --out "$tmp/learnt" "$tmp/text.txt"
set -- "$@" --set model.model_config.vocab_size=301 --set tokenizer.tokenizer_name_or_path="$tmp/learnt_tokenizer.json"
ends 0 train as.text "$@"
ends 0 train tokens "$@" --set data.train="$tmp/learnt.bin"
same as.text tokens "a learnt tokenizer"
[ "$(numbers as.text)" != "$(numbers text)" ]
report $? "its tokens are not bytes"
ends 1 train none "$@" --set tokenizer.tokenizer_name_or_path="$tmp/no.json"
says "there is no tokenizer '$tmp/no.json'"
ends 1 train small "$@" --set model.model_config.vocab_size=280
says "$tmp/text.txt"
says "280"

# B05: 21 sequences of 32 bytes.
head -c 673 "$tmp/text.txt" >"$tmp/21.txt"
for micro in 1 2 4 21; do
    ends 0 "$wanhe" eval "$tmp/text" "$tmp/21.txt" --micro-batch $micro --json --threads $((micro % 2 + 1))
    grep -o '"loss_hex".*' "$tmp/said" >"$tmp/eval.$micro"
    grep -q '"sequences":21,' "$tmp/said" && cmp -s "$tmp/eval.1" "$tmp/eval.$micro"
    report $? "evaluation by $micro: the same loss of 21 sequences"
done
for option in "--micro-batch 0" "--sequence-length 4294967297" "--threads 4294967296"; do
    # shellcheck disable=SC2086
    ends 2 "$wanhe" eval "$tmp/text" "$tmp/21.txt" $option
    says "$option: legal: "
done
ends 0 "$wanhe" eval "$tmp/as.text" "$tmp/text.txt" --json
cp "$tmp/said" "$tmp/eval.text"
ends 0 "$wanhe" eval "$tmp/as.text" "$tmp/learnt.bin" --json
cmp -s "$tmp/said" "$tmp/eval.text"
report $? "evaluation of text goes through the run's tokenizer"
exit "$failed"
