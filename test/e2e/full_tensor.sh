#!/bin/sh
# 104 layouts of up to 16 ranks with tensor parallelism, 20 steps each, through the command line: both families, both number
# formats, an odd vocabulary, every ZeRO stage, pipelines of every schedule. The two modes take turns, so that each line is run
# in both. Then sequences that tensor ranks don't divide, or of one position for each. Some minutes.
. test/e2e/lib/ranks.sh

all="--set tokens.train_steps=20 --set tokens.global_batch_size=16 --set grain.data=16 --set model.model_config.vocab_size=257
    --set model.model_config.num_attention_heads=8 --set model.model_config.num_hidden_layers=4"
at_least="--set tokens.val_check_interval=10 --set data.valid=$tmp/text.txt --set tokens.limit_val_batches=2"
eight="--set model.model_config.num_key_value_heads=8"
full="--set recompute=full" selective="--set recompute=selective"
engine="--set parallelism.pp_engine"
turn=0
# shellcheck disable=SC2086  # lists of words without spaces
by_turns() { # as on_mesh
    turn=$((turn + 1))
    [ $((turn % 2)) -eq 0 ] || set -- "$@" $scatter
    on_mesh "$@"
}
# shellcheck disable=SC2086
for family in llama gpt2; do
    for dtype in float32 bfloat16; do
        extra="$all $at_least --set model.dtype=$dtype"
        [ $family = gpt2 ] || extra="$extra $eight"
        plain "$family $dtype" $extra
        # 19 lines in turns: an odd number, so that the next model begins with the other mode
        #        dp tp pp zero micro
        by_turns 1 2 1 0 16 $extra
        by_turns 1 4 1 0 1 $extra $full
        by_turns 1 8 1 0 4 $extra --set loss_block_tokens=5
        for zero in 0 1 2 3; do
            by_turns 2 2 1 $zero 4 $extra $selective
            by_turns 4 4 1 $zero 2 $extra $full
        done
        by_turns 8 2 1 3 1 $extra --set optimizer.prefetch=2
        by_turns 2 8 1 2 8 $extra --set optimizer.bucket_bytes=4096
        on_mesh 1 1 4 0 2 $extra $engine=gpipe
        by_turns 1 2 2 0 4 $extra $engine=interleaved
        by_turns 1 4 4 0 2 $extra $engine=zb-h1 $full
        by_turns 1 8 2 0 2 $extra $engine=zb-v
        by_turns 2 2 2 1 2 $extra $engine=zb-h1
        by_turns 2 2 4 2 1 $extra $engine=1f1b $selective
        by_turns 2 4 2 3 2 $extra $engine=interleaved $full
    done
done

# What positions alone can go wrong with: 30 on 4 and 8 ranks, 8 on 8, chunks without one; packed documents, dropout on parts
# of rows, chunks of grain.sequence, rounded nodes of sums, many micro-batches.
# shellcheck disable=SC2086
{
    for family in llama gpt2; do
        extra="$all $at_least --set tokens.sequence_length=30"
        [ $family = gpt2 ] || extra="$extra $eight"
        plain "$family, 30 positions, documents, dropout" $extra $documents $dropout
        on_mesh 1 8 1 0 16 $extra $documents $dropout $scatter
        on_mesh 2 4 2 1 2 $extra $documents $dropout $scatter $full
        on_mesh 4 4 1 3 1 $extra $documents $dropout $scatter $selective
        plain "$family bf16, 30 positions, two chunks, bf16 wire" $extra --set model.dtype=bfloat16 \
            --set grain.sequence=2 --set grain.wire=bfloat16
        set -- $extra --set model.dtype=bfloat16 --set grain.sequence=2 --set grain.wire=bfloat16 $scatter
        on_mesh 1 4 1 0 1 "$@" $full
        on_mesh 2 2 2 2 8 "$@"
        on_mesh 2 8 1 3 8 "$@"
        on_mesh 2 4 2 0 1 "$@" $engine=zb-v
        plain "$family, 30 positions, 16 groups of one, bf16 gradients" $extra --set model.dtype=bfloat16 \
            --set optimizer.accumulate_grad_in_fp32=false
        set -- $extra --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false $scatter
        on_mesh 1 2 1 0 1 "$@"
        on_mesh 2 4 1 2 1 "$@" $selective
    done
    family=llama
    extra="$all $at_least $eight --set tokens.sequence_length=8"
    plain "llama, 8 positions" $extra
    on_mesh 1 8 1 0 4 $extra $scatter
    on_mesh 2 8 1 1 2 $extra $scatter $full
    extra="$all $at_least $eight --set tokens.sequence_length=4 --set grain.sequence=2"
    plain "llama, 4 positions in 16 chunks" $extra
    on_mesh 1 4 2 0 2 $extra $scatter $engine=zb-h1
    on_mesh 4 2 1 3 1 $extra $scatter
    family=gpt2
    extra="$all $at_least --set model.dtype=bfloat16 --set tokens.sequence_length=9 --set grain.wire=bfloat16"
    plain "gpt2 bf16, 9 positions, bf16 wire" $extra $dropout
    on_mesh 2 8 1 0 1 $extra $dropout $scatter $full
    on_mesh 1 4 4 0 1 $extra $dropout $scatter $engine=zb-h1
}
exit "$failed"
