#!/bin/sh
# A run stopped and gone on with is the run that was never stopped: same losses, norms and checkpoint, to the bit.
. test/e2e/lib/train.sh
rate=optimizer.learning_rate_scheduler # the rate must be that of the whole run, not of the part (case B36)
interval="--set checkpoints.checkpoint_interval=10"

# 20 steps at once, and 10, then a new process for 10 more. 4096 bytes are 127 sequences: 15 steps of 8 per epoch (B37).
halves() { # WHAT [OPTION...]
    what=$1
    shift
    rm -rf "$tmp/whole" "$tmp/halves"
    # shellcheck disable=SC2086  # words without spaces
    set -- $interval --set tokens.train_steps=20 --set $rate.lr_decay_steps=16 "$@"
    ends 0 train whole "$@"
    says "7 sequences at the end of each epoch's order are left over" # B04, B38
    ends 0 train halves "$@" --set tokens.train_steps=10
    silent_about "going on from"
    ends 0 train halves "$@" --resume
    says "going on from $tmp/halves/checkpoints/step-00000010, step 10"
    says "tokens.train_steps is now 20; the run had 10"
    [ "$(grep -c "is now" "$tmp/said")" -eq 1 ]
    report $? "nothing else has changed"
    same whole halves "$what"
}
valid="--set data.valid=$tmp/valid.txt --set tokens.val_check_interval=10"
tools/tiny_text.sh 700 >"$tmp/valid.txt"
halves "float32, in the middle of an epoch"
cp -r "$tmp/whole" "$tmp/unbroken"
# shellcheck disable=SC2086
halves "float32, several epochs, validation" --set tokens.sequence_length=64 $valid
grep -q valid_loss_hex "$tmp/halves/metrics.jsonl"
report $? "validation losses are among the numbers"
halves "bfloat16" --set model.dtype=bfloat16 --set threads=2
family=gpt2
halves "gpt2, bfloat16, dropout" --set model.dtype=bfloat16 --set model.model_config.resid_pdrop=0.1 \
    --set model.model_config.embd_pdrop=0.1 --set model.model_config.attn_pdrop=0.1
family=llama

# Another layout goes on with the same numbers.
# shellcheck disable=SC2086
set -- $interval --set $rate.lr_decay_steps=16
ends 0 train layouts "$@" --set tokens.train_steps=10
ends 0 train layouts "$@" --resume --set threads=2 --set tokens.micro_batch_size=1 --set recompute=full
same unbroken layouts "gone on with another micro-batch, threads and recompute"

# Steps done after the newest checkpoint are done again; their lines in metrics.jsonl are replaced, not repeated.
ends 0 train ahead "$@" --set tokens.train_steps=14 --set checkpoints.save_final_state=false --resume-if-present
says "ahead holds no checkpoint: the run starts afresh" # the first call of a restart loop (B88)
[ "$(numbers ahead | wc -l)" -eq 14 ]
report $? "14 steps were done, 10 are saved"
printf '{"step": 15, "tok' >>"$tmp/ahead/metrics.jsonl" # what a crash may leave
ends 0 train ahead "$@" --resume-if-present
says "step-00000010, step 10"
silent_about "afresh"
same unbroken ahead "metrics of steps that were lost"

# A finished run has nothing to do (B88: the last call of a restart loop).
cp "$tmp/unbroken/metrics.jsonl" "$tmp/before"
ends 0 train unbroken "$@" --resume-if-present
says "all 20 steps are done"
cmp -s "$tmp/before" "$tmp/unbroken/metrics.jsonl"
report $? "a finished run stays as it is"

# From a checkpoint of another run, into an own folder; a wrong path is told, and nothing starts afresh (B45).
ends 0 train other "$@" --set checkpoints.resume_checkpoint_path="$tmp/layouts/checkpoints/step-00000010"
numbers unbroken | tail -n 10 >"$tmp/numbers.1"
numbers other | cmp -s - "$tmp/numbers.1"
report $? "steps 11 to 20 from another folder's checkpoint"
ends 6 train typo "$@" --set checkpoints.resume_checkpoint_path="$tmp/layouts/checkpoints/step-00000015"
says "layouts/checkpoints/step-00000015"
[ ! -e "$tmp/typo/metrics.jsonl" ]
report $? "nothing was trained"
exit "$failed"
