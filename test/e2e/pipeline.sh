#!/bin/sh
# Pipelines: losses, norms and checkpoints of one rank, to the bit, under every schedule, with uneven stages (B17), a tied table
# (B13), dropout and recompute (B34), beside data parallelism; books predicted = measured; a schedule of one's own; the
# timeline; what is refused. Settings inside one run are test/unit/run/test_layouts.c's, all products full_pipeline.sh's.
. test/e2e/lib/ranks.sh

# PP ENGINE MICRO DP ZERO [OPTION...]
some="--set tokens.global_batch_size=40 --set grain.data=40 --set model.model_config.num_hidden_layers=8 --set model.model_config.tie_word_embeddings=false"
plain "llama" $some
in_pipeline 2 1f1b 5 1 0 $some
in_pipeline 8 zb-h1 40 1 0 $some
in_pipeline 3 interleaved 4 2 3 $some --set recompute=full
in_pipeline 4 zb-v 8 1 0 $some
in_pipeline 2 gpipe 10 2 2 $some
family=gpt2
some="--set tokens.global_batch_size=40 --set grain.data=40 --set model.model_config.n_layer=8 --set model.dtype=bfloat16 $dropout"
plain "gpt2 bf16, tied, dropout" $some
in_pipeline 2 zb-h1 4 2 1 $some --set recompute=selective
in_pipeline 4 1f1b 20 1 0 $some --set parallelism.pp_layers=[3,1,1,3] --set recompute=full
in_pipeline 3 interleaved 5 1 0 $some --set parallelism.pp_layers=[1,2,1,1,2,1]
in_pipeline 2 zb-v 10 2 3 $some --set recompute=selective # the weight part, too, needs weights

# A schedule of one's own: rank 0 splits two backwards, rank 1 one.
cat >"$tmp/own" <<'END'
wanhe schedule 1
ranks 2
micro-batches 4
messages derived
rank 0
F0 F1 F2 B0 F3 B1 I2 I3 W2 W3
rank 1
F0 I0 F1 W0 B1 F2 F3 B2 B3
END
in_pipeline 2 own 10 1 0 $some --set parallelism.pp_schedule="$tmp/own"
says "stages: layers 0-3 | 4-7; $tmp/own, 4 micro-batches, idle "
says "micro-batches kept by a rank 3 | 2"
mv "$tmp/own" "$tmp/moved"
ends 0 "$wanhe" eval "$tmp/other" "$tmp/text.txt" --json # by its config.yaml, though the schedule has moved
silent_about "is not used"
mv "$tmp/moved" "$tmp/own"

# Refused before any rank starts, all at once: faults of the file with its lines; what it doesn't fit.
refused() { # OPTION...
    ends 3 train refused $short $some --set tokens.micro_batch_size=10 "$@"
    [ ! -e "$tmp/refused" ]
    report $? "nothing was made"
}
sed 's/I3 W2 W3/I3 W3 W2/; s/^F0 I0/F0 J0/' "$tmp/own" >"$tmp/bad"
refused --set parallelism.pp=2 --set parallelism.pp_schedule="$tmp/bad"
says "$tmp/bad:8: 'J0': F, B, I, W"
sed 's/I3 W2 W3/I3 W3 W2/' "$tmp/own" >"$tmp/bad"
refused --set parallelism.pp=4 --set parallelism.pp_schedule="$tmp/bad" --set parallelism.pp_engine=1f1b --set tokens.micro_batch_size=5
says "$tmp/bad:6: rank 0, instruction "
says "the backward of micro-batch 2 comes next"
refused --set parallelism.pp=4 --set parallelism.pp_schedule="$tmp/own" --set parallelism.pp_engine=1f1b --set tokens.micro_batch_size=5
says "parallelism.pp_engine and parallelism.pp_schedule are both given"
says "parallelism.pp 4: parallelism.pp_schedule $tmp/own is for 2 ranks; nearest legal: 2"
says "is for 4 micro-batches; nearest legal: 4, with tokens.micro_batch_size 10"
refused --set parallelism.pp=2 --set parallelism.pp_schedule="$tmp/none"
says "$tmp/none: No such file"
refused --set parallelism.pp=4 --set parallelism.pp_layers=[3,3,3]
says "parallelism.pp_layers has 3 numbers: there are 4 stages; for example [2, 2, 2, 2]"
says "parallelism.pp_layers add up to 9: num_hidden_layers is 8"
refused --set parallelism.pp=4 --set model.model_config.n_layer=3
says "parallelism.pp 4 with 1 stage each is above num_hidden_layers 3"
says "nearest legal: 3"
refused --set logging.trace="$tmp/t.json" --set logging.trace_steps=5-3
says "logging.trace_steps '5-3': a step or some steps are wanted"
refused --set logging.trace_steps=1
says "logging.trace_steps is given, but no logging.trace"

# B17: 30 layers on 4 stages, each of them trained; what `wanhe layout` shows is what runs.
some="--set model.model_config.n_layer=30 --set model.model_config.n_embd=16"
plain "30 layers" $some
in_pipeline 4 1f1b 2 1 0 $some
says "stages: layers 0-7 | 8-15 | 16-22 | 23-29; 1f1b, 4 micro-batches, idle 42.9 % of the time if a backward takes two forwards, micro-batches kept by a rank 4 | 3 | 2 | 1"
ends 0 "$wanhe" layout examples/tiny-gpt2.yaml $some --set parallelism.pp=4 --json
says '"layers":8,"embedding":true,"head":false},{"pp":1,"first_layer":8,"layers":8,"embedding":false,"head":false},{"pp":2,"first_layer":16,"layers":7,"embedding":false,"head":false},{"pp":3,"first_layer":23,"layers":7,'

# The timeline: JSON whose blocks nest, in the order of the programs, on every rank.
for case in "2 zb-h1 1 4" "2 interleaved 2 4" "1 1f1b 1 4"; do
    # shellcheck disable=SC2086
    set -- $case
    rm -rf "$tmp/traced"
    ends 0 train traced --set tokens.train_steps=5 --set optimizer.learning_rate_scheduler.lr_warmup_steps=1 \
        --set model.model_config.n_layer=4 --set parallelism.pp="$1" --set parallelism.pp_engine="$2" --set parallelism.dp="$3" \
        --set tokens.batch_accumulation_per_replica="$4" --set tokens.global_batch_size=8 --set tokens.micro_batch_size=null \
        --set optimizer.zero_stage=2 --trace "$tmp/t.json" --set logging.trace_steps=3-4
    says "t.json: timeline of 2 steps; the pipeline idles "
    "$wanhe" explain schedule --p "$1" --m "$4" --schedule "$2" --program >"$tmp/program"
    "$python" test/e2e/lib/check_trace.py "$tmp/t.json" 2 "$1" "$3" "$tmp/program" >"$tmp/differ" 2>&1
    report $? "the timeline of $2, pp $1, dp $3"
    head -n 5 "$tmp/differ"
done
sed 's/"name":"F0"/"name":"F1"/' "$tmp/t.json" >"$tmp/wrong.json"
"$python" test/e2e/lib/check_trace.py "$tmp/wrong.json" 2 1 1 "$tmp/program" >"$tmp/differ" 2>&1
[ $? -eq 1 ] && grep -q "not \['F0'" "$tmp/differ"
report $? "a wrong order is noticed"
ends 1 train traced --resume --set tokens.train_steps=9 --set optimizer.learning_rate_scheduler.lr_warmup_steps=1 \
    --set model.model_config.n_layer=4 --trace "$tmp/no/t.json"
says "making logging.trace"

# Any name of a file: as an option, and in the run folder's configuration.
odd="$tmp/- {odd}: # 'name' \"|\" \\n [&a, *b] 万核
 .json"
rm -rf "$tmp/traced"
ends 0 train traced --set tokens.train_steps=1 --set lr_warmup_iters=0 --trace "$odd"
"$python" -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["traceEvents"])' "$odd"
report $? "a timeline with an odd name"
rm -f "$odd"
ends 0 "$wanhe" train "$tmp/traced/config.yaml" --out "$tmp/again"
[ -s "$odd" ]
report $? "the effective configuration has that name"
ends 2 train empty --trace ''
says "--trace: a file is wanted"
ends 3 train bytes --trace "$(printf '\377')"
says "UTF-8"
exit "$failed"
