#!/bin/sh
# 80 layouts of up to 16 ranks with tensor parallelism, 20 steps each, through the command line: both families, both number
# formats, an odd vocabulary, every ZeRO stage, pipelines of every schedule. Some minutes.
. test/e2e/lib/ranks.sh

all="--set tokens.train_steps=20 --set tokens.global_batch_size=16 --set grain.data=16 --set model.model_config.vocab_size=257
    --set model.model_config.num_attention_heads=8 --set model.model_config.num_hidden_layers=4"
at_least="--set tokens.val_check_interval=10 --set data.valid=$tmp/text.txt --set tokens.limit_val_batches=2"
full="--set recompute=full" selective="--set recompute=selective"
engine="--set parallelism.pp_engine"
# shellcheck disable=SC2086  # lists of words without spaces
for family in llama gpt2; do
    for dtype in float32 bfloat16; do
        extra="$all $at_least --set model.dtype=$dtype"
        [ $family = gpt2 ] || extra="$extra --set model.model_config.num_key_value_heads=8"
        plain "$family $dtype" $extra
        #       dp tp pp zero micro
        on_mesh 1 2 1 0 16 $extra
        on_mesh 1 4 1 0 1 $extra $full
        on_mesh 1 8 1 0 4 $extra --set loss_block_tokens=5
        for zero in 0 1 2 3; do
            on_mesh 2 2 1 $zero 4 $extra $selective
            on_mesh 4 4 1 $zero 2 $extra $full
        done
        on_mesh 8 2 1 3 1 $extra --set optimizer.prefetch=2
        on_mesh 2 8 1 2 8 $extra --set optimizer.bucket_bytes=4096
        on_mesh 1 1 4 0 2 $extra $engine=gpipe
        on_mesh 1 2 2 0 4 $extra $engine=interleaved
        on_mesh 1 4 4 0 2 $extra $engine=zb-h1 $full
        on_mesh 1 8 2 0 2 $extra $engine=zb-v
        on_mesh 2 2 2 1 2 $extra $engine=zb-h1
        on_mesh 2 2 4 2 1 $extra $engine=1f1b $selective
        on_mesh 2 4 2 3 2 $extra $engine=interleaved $full
    done
done
exit "$failed"
