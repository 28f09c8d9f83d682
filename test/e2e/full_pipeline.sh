#!/bin/sh
# Every schedule on 1, 2, 3, 4 and 8 pipeline ranks with 1, 2, 5 and 8 micro-batches, alone and beside two replicas, both
# families, tied and not: losses, norms and checkpoints of one rank, to the bit, and books. ZeRO stage, recompute and uneven
# stages take turns. A job of 70 layers in 12 stages (B79). Some minutes.
. test/e2e/lib/ranks.sh

# STAGES TURN: 16 layers, one in each stage but number TURN mod STAGES
uneven() {
    awk -v s="$1" -v t="$2" 'BEGIN { for (i = 0; i < s; i++) printf "%s%d", i ? "," : "", i == t % s ? 17 - s : 1 }'
}
turn=0
for family in llama gpt2; do
    for tied in true false; do
        some="--set tokens.global_batch_size=80 --set grain.data=80 --set tokens.sequence_length=16 --set model.model_config.num_hidden_layers=16 --set model.model_config.tie_word_embeddings=$tied"
        [ $tied = false ] || some="$some --set model.dtype=bfloat16 $dropout"
        plain "$family, tied $tied" $some
        for pp in 1 2 3 4 8; do
            for engine in gpipe 1f1b interleaved zb-h1 zb-v; do
                [ $pp -gt 1 ] || [ $engine = 1f1b ] || continue # one rank has no schedule
                for m in 1 2 5 8; do
                    turn=$((turn + 1))
                    dp=$((turn % 2 + 1))
                    [ $pp -lt 8 ] || dp=1
                    case $((turn % 3)) in 0) recompute=none ;; 1) recompute=selective ;; *) recompute=full ;; esac
                    case $engine in interleaved | zb-v) stages=$((2 * pp)) ;; *) stages=$pp ;; esac
                    [ $((turn % 5)) -ne 0 ] && layers= || layers="--set parallelism.pp_layers=[$(uneven $stages $turn)]"
                    [ $dp -eq 1 ] && zero=0 || zero=$((turn / 2 % 4))
                    [ $((pp * dp)) -gt 1 ] || continue
                    in_pipeline $pp $engine $((80 / dp / m)) $dp $zero $some --set recompute=$recompute $layers
                done
            done
        done
    done
done

# B79: 70 layers, embedding and head counted as a layer each: 5 or 6 in each of 12 stages; tied
family=gpt2
some="--set model.model_config.n_layer=70 --set model.model_config.n_embd=8 --set model.model_config.n_head=2"
plain "70 layers" $some
in_pipeline 12 1f1b 1 1 0 $some --set parallelism.pp_layers=[5,6,6,6,6,6,6,6,6,6,6,5]
says "stages: layers 0-4 | 5-10 | 11-16 | 17-22 | 23-28 | 29-34 | 35-40 | 41-46 | 47-52 | 53-58 | 59-64 | 65-69; 1f1b, 8 micro-batches"
exit "$failed"
