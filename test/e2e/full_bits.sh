#!/bin/sh
# The product of bits.sh's settings: families, number formats, dropout with documents, grains; each run with every number
# of threads, micro-batch and recompute, alternating blocks of the loss, and every kind of kernels. A few minutes.
. test/e2e/lib/bits.sh

every_way() { # LABEL [OPTION...]
    plain "$@"
    shift
    way=0
    for threads in 1 2 3; do
        for micro in 1 2 4 8; do
            for recompute in none selective full; do
                way=$((way + 1))
                case $((way % 4)) in 0) block=0 ;; 1) block=5 ;; 2) block=32 ;; 3) block=100 ;; esac
                again "threads $threads, micro-batch $micro, recompute $recompute, loss by $block" --set threads=$threads \
                    --set tokens.micro_batch_size=$micro --set recompute=$recompute --set loss_block_tokens=$block "$@"
            done
        done
    done
    for kernels in reference avx2 avx512; do
        [ $kernels = reference ] || has $kernels || continue
        again "$kernels kernels" --set kernels=$kernels --set threads=2 --set tokens.micro_batch_size=2 "$@"
    done
}
for family in llama gpt2; do
    for dtype in float32 bfloat16; do
        for extras in "" "$dropout $documents"; do
            for grain in "" "--set grain.tensor=1 --set grain.data=2 --set grain.sequence=4"; do
                # shellcheck disable=SC2086  # lists of words without spaces in them
                every_way "$family $dtype $extras $grain" --set model.dtype=$dtype $extras $grain
            done
        done
    done
done
exit "$failed"
