#!/bin/sh
# What a first user meets: progress lines, runs that stand for themselves, messages that say what would be legal.
. test/e2e/lib/train.sh

json() { # WHAT: stdout of the last `split` is one JSON object on one line
    [ "$(wc -l <"$tmp/out")" -eq 1 ] && python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$tmp/out"
    report $? "one JSON object: $1"
}
split() { "$@" >"$tmp/out" 2>"$tmp/said" </dev/null; } # COMMAND...

# A line of progress has the mean rate since the last one.
ends 0 train rate --set logging.iteration_step_info_interval=10
awk -F '[ :,]+' '/"step_ms"/ { for (i = 1; i < NF; i++) if ($i == "\"step_ms\"") ms += $2 > 10 ? $(i + 1) : 0 }
    /^step 20\/20 / { for (i = 2; i <= NF; i++) if ($i == "tok/s") said = $(i - 1) }
    END { want = 10 * 8 * 32 / (ms / 1000); exit !(said > 0.99 * want && said < 1.01 * want) }' \
    "$tmp/rate/metrics.jsonl" "$tmp/rate/log.txt"
report $? "progress: tokens per second of the last ten steps"

# Hours and days left; a signal leaves one JSON object.
in_place=exec
train long --json --set tokens.train_steps=268435455 --set logging.iteration_step_info_interval=20 \
    >"$tmp/out" 2>"$tmp/said" </dev/null &
pid=$! in_place=
await_step long 21
kill -TERM $pid
wait $pid
[ $? -eq 75 ]
report $? "exit code 75"
grep -Eq '  left ([0-9]+d )?[0-9]+:[0-5][0-9]:[0-5][0-9]$' "$tmp/said"
report $? "progress: hours left"
json "stopped by a signal"
split "$wanhe" eval --no-such-option --json
json "a wrong command line"
ends 3 train long --resume --set model.model_config.hidden_size=64
says "embed.token.weight is F32 [256, 32]; the model's is F32 [256, 64]"
says "layer.0.attn.norm.gain is F32 [32]; the model's is F32 [64]"

# A run with a tokenizer of its own is read from any folder, when the file is gone.
ends 0 "$wanhe" tokenize "$tmp/text.txt" --tokenizer train:300 --out "$tmp/own"
ends 0 train own-run --set data.train="$tmp/own.bin" --set tokenizer.tokenizer_name_or_path="$tmp/own_tokenizer.json" \
    --set model.model_config.vocab_size=300
"$wanhe" generate "$tmp/own-run" --prompt the --tokens 20 >"$tmp/before" 2>"$tmp/said"
mv "$tmp/own_tokenizer.json" "$tmp/moved.json"
mv "$tmp/own-run" "$tmp/it's moved"
"$wanhe" generate "$tmp/it's moved" --prompt the --tokens 20 >"$tmp/after" 2>"$tmp/said"
[ -s "$tmp/before" ] && cmp -s "$tmp/before" "$tmp/after"
report $? "a moved run has its tokenizer"

# A run that took its model from another one doesn't need that one again.
ends 0 train first --set tokens.train_steps=5
cat >"$tmp/second.yaml" <<END
model: {init_from: $tmp/first}
data: {train: $tmp/text.txt}
tokens: {global_batch_size: 4, sequence_length: 16, train_steps: 2}
END
ends 0 "$wanhe" train "$tmp/second.yaml" --out "$tmp/second"
mv "$tmp/first" "$tmp/gone"
ends 0 "$wanhe" eval "$tmp/second" "$tmp/text.txt"
says "sequences of 16 "
silent_about warning
ends 0 "$wanhe" config show "$tmp/second/config.yaml" --effective
says "hidden_size: 32"

# A config.yaml beside a model is not a run's.
ends 0 "$wanhe" import test/golden/hf/llama "$tmp/imported"
printf 'tokenizer: nothing of ours\n' >"$tmp/config.yaml"
ends 2 "$wanhe" generate "$tmp/imported" --tokens 3
says "no tokenizer is known"
ends 0 "$wanhe" generate "$tmp/imported" --tokens 3 --tokenizer bytes
silent_about warning

# Messages.
ends 6 "$wanhe" generate test/golden/hf/llama
says "\`wanhe import\` makes a checkpoint of it"
ends 1 train no-data --set data.train="$tmp/none.txt"
says "while opening data.train"
ends 1 train no-tokenizer --set tokenizer.tokenizer_name_or_path=gpt2
says "there is no tokenizer 'gpt2'; legal: bytes, or the path of a tokenizer.json"
ends 2 "$wanhe" tokenize "$tmp/text.txt" --tokenizer train:10 --out "$tmp/few"
ends 3 "$wanhe" config show examples/tiny-llama.yaml --set 'tokens.train_steps=[3]'
says "tokens.train_steps takes one value, not a list"
ends 2 "$wanhe" config keys --set a=b
ends 2 "$wanhe" config show examples/tiny-llama.yaml --markdown
ends 1 "$wanhe" inspect "$tmp/gone/checkpoints/$(cat "$tmp/gone/checkpoints/latest")/state.json"
says "inspect the folder it lies in"
ends 3 train elsewhere --set checkpoints.checkpoints_path="$tmp/elsewhere"
says "checkpoints lie in the run folder (--out), in checkpoints/"
ends 2 "$wanhe" eval "$tmp/second" "$tmp/text.txt" --sequence-length 4294967312
says "--sequence-length 4294967312: legal: 0 to 16777216"
ends 2 "$wanhe" generate "$tmp/second" --threads 4294967297
split "$wanhe" generate "$tmp/second" --tokens 3 --prompt "$(printf '\377')" --json
grep -q '"prompt":null' "$tmp/out"
report $? "a prompt that no JSON string can hold"
for n in $(seq 200); do echo "key_$n: 1"; done >"$tmp/many.yaml"
ends 3 "$wanhe" config show "$tmp/many.yaml"
tail -n 1 "$tmp/said" | grep -Eq '^\.\.\. and [0-9]+ more$'
report $? "many faults: how many are not shown"
ends 0 "$wanhe" --help train
says "usage: wanhe train [options] RUN.yaml"
exit "$failed"
