#!/bin/sh
# Data parallelism and ZeRO 0 to 3: losses, norms, validation and checkpoints of one rank, to the bit, with numbers of ranks
# that are no powers of two; books predicted = measured; a run goes on with other ranks and stage (B39). Settings inside one
# run are test/unit/run/test_layouts.c's, all products full_zero.sh's.
. test/e2e/lib/ranks.sh

small="--set tokens.global_batch_size=12 --set grain.data=12 --set data.valid=$tmp/text.txt --set tokens.limit_val_batches=1"
plain "$family, 12 groups" $small
on_ranks 2 3 2 $small
on_ranks 3 1 4 $small
on_ranks 4 2 3 $small --set optimizer.bucket_bytes=4096
plain "$family, bf16 wire" $small --set grain.wire=bfloat16
on_ranks 3 2 4 $small --set grain.wire=bfloat16
family=gpt2
plain "gpt2 bf16, dropout" $small $dropout --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false
on_ranks 2 2 6 $small $dropout --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false
on_ranks 6 3 1 $small $dropout --set model.dtype=bfloat16 --set optimizer.accumulate_grad_in_fp32=false

# B39: saved by 4 ranks of stage 1, gone on with by 6 of stage 3, then 3 of stage 2, then one.
family=llama
small="$small --set optimizer.learning_rate_scheduler.lr_warmup_steps=1 --set optimizer.learning_rate_scheduler.lr_decay_steps=7"
on() { # STEPS DP ZERO [OPTION...]
    steps=$1 dp=$2 zero=$3
    shift 3
    ends 0 train moved $small --set tokens.train_steps="$steps" --set parallelism.dp="$dp" \
        --set optimizer.zero_stage="$zero" --set tokens.micro_batch_size=1 "$@"
}
ends 0 train stayed $small --set tokens.train_steps=8 --set tokens.micro_batch_size=4
on 2 4 1
on 4 6 3 --resume
on 6 3 2 --resume
on 8 1 0 --resume
numbers stayed | grep -v valid >"$tmp/stayed.numbers"
numbers moved | grep -v valid | cmp - "$tmp/stayed.numbers"
report $? "losses and norms of a run that moved from 4 to 6, 3 and 1 ranks"
diff -r "$tmp/stayed/checkpoints/$(newest stayed)" "$tmp/moved/checkpoints/$(newest moved)" >"$tmp/differ" 2>&1
report $? "its last checkpoint"

# comm.reduce fast: repeatable, books right, said everywhere, and kept apart from the contract.
fast="$small --set comm.reduce=fast --set grain.data=auto --set tokens.micro_batch_size=2"
ends 0 train fast $fast --set parallelism.dp=3 --set tokens.train_steps=2
says "comm.reduce fast: one gradient sum a replica"
ends 0 train again $fast --set parallelism.dp=3 --set tokens.train_steps=2
numbers fast >"$tmp/fast.numbers"
numbers again | cmp - "$tmp/fast.numbers"
report $? "comm.reduce fast: losses and norms twice"
diff -r "$tmp/fast/checkpoints" "$tmp/again/checkpoints" >"$tmp/differ" 2>&1
report $? "comm.reduce fast: checkpoints twice"
"$python" "$tmp/books.py" "$tmp/fast" 3
report $? "comm.reduce fast: the books of all ranks"
grep -q '"data": 3, .*"reduce": "fast"' "$tmp/fast/checkpoints/$(newest fast)/config.json" &&
    grep -q 'reduce: fast' "$tmp/fast/config.yaml" && grep -q 'comm.reduce fast' "$tmp/fast/log.txt"
report $? "comm.reduce fast: checkpoint, configuration and log say so"
ends 3 train fast $small --set tokens.micro_batch_size=2 --set parallelism.dp=3 --set tokens.train_steps=3 --resume
says "was made with comm.reduce fast, the configuration says contract"
ends 0 train fast $fast --set parallelism.dp=2 --set tokens.train_steps=3 --resume
says "grain.data is now 2; the run had 3"
exit "$failed"
