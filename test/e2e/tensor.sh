#!/bin/sh
# Tensor parallelism in both modes, with data parallelism, pipelines, ZeRO and recompute: losses, norms, validation and
# checkpoints of one rank, to the bit, though vocabulary (257) and positions (30) don't divide; books predicted = measured; a
# run goes on with other ranks of other kinds, and after the death of one. Settings inside one run are test/unit/run/test_layouts.c's, more layouts full_tensor.sh's.
. test/e2e/lib/ranks.sh
. test/e2e/lib/processes.sh

kv=model.model_config.num_key_value_heads
odd="--set model.model_config.vocab_size=257 --set data.valid=$tmp/text.txt --set tokens.limit_val_batches=1"
four="$odd --set $kv=4"
bf16="--set model.dtype=bfloat16"
# shellcheck disable=SC2086  # lists of words without spaces
{
    #       dp tp pp zero micro
    plain "$family, two key-value heads" $odd
    on_mesh 1 2 1 0 8 $odd
    on_mesh 1 2 1 0 8 $odd $scatter
    on_mesh 2 2 2 3 2 $odd --set recompute=full --set loss_block_tokens=7
    on_mesh 2 2 2 2 2 $odd $scatter --set recompute=full --set loss_block_tokens=7
    on_mesh 2 1 2 1 2 $odd
    plain "$family bf16, untied" $four $bf16 --set model.model_config.tie_word_embeddings=false
    on_mesh 1 4 1 0 4 $four $bf16 --set model.model_config.tie_word_embeddings=false
    on_mesh 2 2 1 2 4 $four $bf16 --set model.model_config.tie_word_embeddings=false --set recompute=selective
    set -- $four $dropout $documents --set tokens.sequence_length=30 --set grain.sequence=2 --set grain.wire=bfloat16
    plain "$family, 30 positions, documents, dropout, two chunks, bf16 wire" "$@"
    on_mesh 1 4 1 0 1 "$@" $scatter
    on_mesh 2 2 2 0 2 "$@" $scatter --set parallelism.pp_engine=zb-h1
    family=gpt2
    plain "gpt2, dropout" $odd $dropout
    on_mesh 1 4 2 0 2 $odd $dropout $scatter --set recompute=full
    on_mesh 2 2 1 1 1 $odd $dropout
    plain "gpt2 bf16, bf16 gradients" $odd $bf16 --set optimizer.accumulate_grad_in_fp32=false
    on_mesh 2 4 1 3 4 $odd $bf16 --set optimizer.accumulate_grad_in_fp32=false $scatter
    plain "gpt2, 4 positions" $odd --set tokens.sequence_length=4
    on_mesh 2 4 1 0 2 $odd --set tokens.sequence_length=4 $scatter
    family=llama
}

# B35, B39, B41: saved by two tensor ranks that share the positions out, gone on with by 2 x 2 that don't, by two stages, by
# 2 x 2 x 2 with positions again, then by one; with dropout.
moves="$odd $dropout --set optimizer.learning_rate_scheduler.lr_warmup_steps=1
    --set optimizer.learning_rate_scheduler.lr_decay_steps=7"
on() { # STEPS DP TP PP ZERO [OPTION...]
    steps=$1 dp=$2 tp=$3 pp=$4 zero=$5
    shift 5
    # shellcheck disable=SC2086
    ends 0 train moved $moves --set tokens.train_steps="$steps" --set parallelism.dp="$dp" --set parallelism.tp="$tp" \
        --set parallelism.pp="$pp" --set optimizer.zero_stage="$zero" --set tokens.micro_batch_size=2 "$@"
}
# shellcheck disable=SC2086
ends 0 train stayed $moves --set tokens.train_steps=8 --set tokens.micro_batch_size=4
# shellcheck disable=SC2086
{
    on 2 1 2 1 0 $scatter
    cp -r "$tmp/moved" "$tmp/alone" # also straight to one rank
    on 4 1 2 2 0 --resume
    on 5 1 1 2 0 --resume
    on 7 2 2 2 3 $scatter --resume
    on 8 1 1 1 0 --resume
    ends 0 train alone $moves --set tokens.train_steps=8 --set tokens.micro_batch_size=8 --resume
}
numbers stayed | grep -v valid >"$tmp/stayed.numbers"
numbers moved | grep -v valid | cmp - "$tmp/stayed.numbers"
report $? "losses and norms of a run that moved from two slices to four ranks, two stages, eight ranks and one"
same_newest stayed moved "its last checkpoint"
numbers alone | grep -v valid | cmp - "$tmp/stayed.numbers"
report $? "losses and norms of a run that moved from two slices to one rank"
same_newest stayed alone "its last checkpoint"

# A tensor rank dies in a step (B72): one message, nothing is left; others go on.
set -- --set tokens.train_steps=60 --set checkpoints.checkpoint_interval=8 --set tokens.micro_batch_size=2
count=4
# shellcheck disable=SC2086
{
    ends 0 train whole "$@"
    launch dead "$@" $scatter --set parallelism.dp=2 --set parallelism.tp=2 --set optimizer.zero_stage=2
    await_step dead 11
    kill -9 "$(rank 3)"
    ended dead 5 "a tensor rank dies"
    says "rank 3 (step "
    says "was ended by SIGKILL"
    one_message "a tensor rank dies"
    ends 0 train dead "$@" $scatter --set parallelism.tp=2 --resume
    same whole dead "gone on with after a tensor rank's death"
}

# B15: 65,535 tokens on four ranks, saved, exported and gone on with by two, as by one; no row is added.
wide="--set model.model_config.vocab_size=65535 --set model.model_config.hidden_size=8 --set $kv=4
    --set model.model_config.tie_word_embeddings=false"
for tp in 1 4; do
    # shellcheck disable=SC2086
    {
        ends 0 train wide-$tp $wide --set tokens.train_steps=1 --set parallelism.tp=$tp --set lr_warmup_iters=0
        ends 0 "$wanhe" export "$tmp/wide-$tp" "$tmp/wide-$tp-hf"
        ends 0 train wide-$tp $wide --set tokens.train_steps=2 --set parallelism.tp=$(((tp + 1) / 2)) --resume \
            --set lr_warmup_iters=0
    }
done
diff -r "$tmp/wide-1-hf" "$tmp/wide-4-hf" >"$tmp/differ" 2>&1
report $? "65,535 tokens on four ranks: the export"
"$python" - "$tmp/wide-4-hf" <<'END_PY'
import json, struct, sys
with open(f"{sys.argv[1]}/model.safetensors", "rb") as f:
    tensors = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
shapes = [tensors[name]["shape"] for name in ("model.embed_tokens.weight", "lm_head.weight")]
sys.exit(shapes != [[65535, 8]] * 2 or json.load(open(f"{sys.argv[1]}/config.json"))["vocab_size"] != 65535)
END_PY
report $? "65,535 tokens on four ranks: shapes of the export"
same wide-1 wide-4 "65,535 tokens on four ranks, then two"

# Refused before any rank starts (B18, B21).
# shellcheck disable=SC2086
{
    ends 3 train nothing $odd --set parallelism.tp=4
    says "parallelism.tp 4 > 2 key-value heads: ranks hold equally many, in whole slices (grain.tensor 2); nearest legal: 2"
    ends 3 train nothing $odd --set parallelism.tp=2 --set grain.tensor=1
    says "parallelism.tp 2 does not divide grain.tensor 1; nearest legal: 1 (or choose another grain.tensor)"
    ends 3 train nothing $four $scatter --set parallelism.tp=4 --set tokens.sequence_length=3
    says "parallelism.tp_mode REDUCE_SCATTER: tokens.sequence_length 3 gives 4 ranks no position each"
    ends 3 train nothing $odd $scatter --set parallelism.tp=2 --set tokens.global_batch_size=120 --set grain.data=120
    says "grain.data 120 leaves each replica 120 groups, 64 at most; nearest legal: ALL_REDUCE, or grain.data 60"
    [ ! -e "$tmp/nothing" ]
    report $? "nothing was made"
}
exit "$failed"
