#!/bin/sh
# All products of ranks, ZeRO stage, micro-batch and bucket size in one process tree (test_layouts with WH_TEST_LONG=1, 20
# steps each), and training runs of up to 8 ranks with every stage through the command line. Some minutes.
. test/e2e/lib/ranks.sh

for family in llama gpt2; do
    for dtype in float32 bfloat16; do
        extra="--set tokens.global_batch_size=24 --set grain.data=24 --set model.dtype=$dtype --set tokens.train_steps=20"
        plain "$family $dtype" $extra
        for dp in 1 2 3 4 8; do
            for zero in 0 1 2 3; do
                on_ranks $dp $zero 1 $extra
                on_ranks $dp $zero $((24 / dp)) $extra --set recompute=full
            done
        done
    done
done
${MAKE:-make} -s build/release/test/unit/run/test_layouts
WH_TEST_LONG=1 build/release/test/unit/run/test_layouts >"$tmp/replica" 2>&1
report $? "test_layouts, all combinations"
grep -E "ERROR|FAILED" "$tmp/replica" | head -n 5
exit "$failed"
