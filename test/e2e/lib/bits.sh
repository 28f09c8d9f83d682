# Included by bits.sh and full_bits.sh: one way of running against another.
. test/e2e/lib/train.sh
# shellcheck disable=SC2086  # $short, $dropout, $documents: lists of words without spaces in them
short="--set tokens.train_steps=2 --set optimizer.learning_rate_scheduler.lr_warmup_steps=1"

# Can this processor run them?
has() { case $1 in avx2 | avx512) grep -qw "$(echo "$1" | sed 's/512/512f/')" /proc/cpuinfo ;; esac; }
plain() { # LABEL [OPTION...]: the run that the others are compared with
    label=$1
    shift
    rm -rf "$tmp/plain"
    ends 0 train plain $short --set tokens.micro_batch_size=4 "$@"
}
again() { # WHAT OPTION...: the same with other settings
    what=$1
    shift
    rm -rf "$tmp/other"
    train other $short "$@" >"$tmp/said" 2>&1 || { report 1 "$label, $what"; tail -n 3 "$tmp/said"; return; }
    same plain other "$label, $what"
}
dropout="--set model.model_config.embd_pdrop=0.1 --set model.model_config.attn_pdrop=0.1 --set model.model_config.resid_pdrop=0.1"
documents="--set data.document_mask=true --set data.end_of_text=10"

