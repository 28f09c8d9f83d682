#!/bin/sh
# Threads, micro-batch, recompute, kernels and the blocks of the loss never change a bit of losses, norms and checkpoints
# (all files). A few settings here, their products in full_bits.sh.
. test/e2e/lib/bits.sh

every_way() { # LABEL [OPTION...]
    plain "$@"
    shift
    again "once more" --set tokens.micro_batch_size=4 "$@"
    again "micro-batch 1" --set tokens.micro_batch_size=1 "$@"
    again "3 threads, recompute full" --set threads=3 --set tokens.micro_batch_size=4 --set recompute=full "$@"
    again "micro-batch 2, recompute selective, loss by 7 tokens" --set tokens.micro_batch_size=2 \
        --set recompute=selective --set loss_block_tokens=7 "$@"
    again "micro-batch 8, 2 threads, loss by 64 tokens" --set tokens.micro_batch_size=8 --set threads=2 \
        --set loss_block_tokens=64 "$@"
}
every_kernel() { # [OPTION...]: after every_way
    for kernels in reference avx2 avx512; do
        [ $kernels = reference ] || has $kernels || continue
        again "$kernels kernels, micro-batch 8" --set kernels=$kernels --set tokens.micro_batch_size=8 "$@"
    done
}

family=llama
every_way "llama float32"
every_kernel
# shellcheck disable=SC2086  # lists of words without spaces in them
every_way "llama bfloat16, documents" --set model.dtype=bfloat16 $documents
family=gpt2
# shellcheck disable=SC2086
every_way "gpt2 float32, dropout, documents" $dropout $documents
every_way "gpt2 bfloat16" --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false
every_kernel --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false

# What must change the numbers does: else the comparisons above would show nothing.
differs() { # WHAT OPTION...
    what=$1
    shift
    rm -rf "$tmp/other"
    # shellcheck disable=SC2086
    ends 0 train other $short --set model.dtype=bfloat16 "$@"
    ! cmp -s "$tmp/plain/checkpoints/step-00000002/weights.safetensors" \
        "$tmp/other/checkpoints/step-00000002/weights.safetensors"
    report $? "$what changes the numbers"
}
differs "another grain" --set grain.data=1
differs "another wire" --set grain.wire=bfloat16
differs "another seed" --seed 7
differs "dropout" --set model.model_config.resid_pdrop=0.1
exit "$failed"
