#!/bin/sh
# Tensor parallelism, with data parallelism, pipelines, ZeRO and recompute: losses, norms, validation and checkpoints of one
# rank, to the bit, though the vocabulary (257) doesn't divide; books predicted = measured; a run goes on with other ranks of
# other kinds. Settings inside one run are test/unit/run/test_layouts.c's, more layouts full_tensor.sh's.
. test/e2e/lib/ranks.sh

kv=model.model_config.num_key_value_heads
odd="--set model.model_config.vocab_size=257 --set data.valid=$tmp/text.txt --set tokens.limit_val_batches=1"
four="$odd --set $kv=4"
# shellcheck disable=SC2086  # lists of words without spaces
{
    plain "$family, two key-value heads" $odd
    on_mesh 1 2 1 0 8 $odd
    on_mesh 2 2 2 3 2 $odd --set recompute=full --set loss_block_tokens=7
    on_mesh 2 1 2 1 2 $odd
    plain "$family bf16, untied" $four --set model.dtype=bfloat16 --set model.model_config.tie_word_embeddings=false
    on_mesh 1 4 1 0 4 $four --set model.dtype=bfloat16 --set model.model_config.tie_word_embeddings=false
    on_mesh 2 2 1 2 4 $four --set model.dtype=bfloat16 --set model.model_config.tie_word_embeddings=false \
        --set recompute=selective
    family=gpt2
    plain "gpt2, dropout" $odd $dropout
    on_mesh 1 4 2 0 2 $odd $dropout --set recompute=full
    on_mesh 2 2 1 1 1 $odd $dropout
    plain "gpt2 bf16, bf16 gradients" $odd --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false
    on_mesh 2 4 1 3 4 $odd --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false
    family=llama
}

# B35, B39, B41: saved by two tensor ranks, gone on with by two stages, then by 2 x 2 x 2, then by one; with dropout.
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
on 2 1 2 1 0
on 4 1 1 2 0 --resume
on 6 2 2 2 3 --resume
on 8 1 1 1 0 --resume
numbers stayed | grep -v valid >"$tmp/stayed.numbers"
numbers moved | grep -v valid | cmp - "$tmp/stayed.numbers"
report $? "losses and norms of a run that moved from two slices to two stages, eight ranks and one"
same_newest stayed moved "its last checkpoint"

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
    [ ! -e "$tmp/nothing" ]
    report $? "nothing was made"
}
exit "$failed"
