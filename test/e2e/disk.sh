#!/bin/sh
# A full disk (case B46): said with path, bytes needed and bytes free; the old checkpoint stays and can be gone on from.
# Runs in an own mount namespace where that is allowed, so that no mount is left behind.
if [ -z "${WANHE_OWN_MOUNTS:-}" ] && unshare -rm true 2>/dev/null; then
    WANHE_OWN_MOUNTS=1 exec unshare -rm "$0"
fi
. test/e2e/lib/train.sh
set -- --set tokens.train_steps=20 --set checkpoints.checkpoint_interval=10 \
    --set optimizer.learning_rate_scheduler.lr_decay_steps=16
ends 0 train unbroken "$@"

# A limit on the size of files, below that of the weights: a write that fails in the middle.
ends 0 train full "$@" --set tokens.train_steps=10
limited() { (ulimit -f 100 && train "$@"); } # blocks of 512 bytes
ends 1 limited full "$@" --resume
says "checkpoints/step-00000020"
says "bytes are needed"
[ "$(cd "$tmp/full/checkpoints" && cat latest && echo *)" = "step-00000010
latest step-00000010" ]
report $? "the old checkpoint is the newest, without leftovers"
ends 0 train full "$@" --resume
says "step-00000010, step 10"
same unbroken full "gone on with after the limit"

# Room for one checkpoint (400 kB), not for two: told before the first step.
mkdir "$tmp/disk"
if [ -n "${WANHE_OWN_MOUNTS:-}" ] && mount -t tmpfs -o size=700k none "$tmp/disk" 2>"$tmp/said"; then
    ends 0 train disk/run "$@" --set tokens.train_steps=10
    ends 1 train disk/run "$@" --resume
    says "disk/run"
    says "bytes are needed and"
    [ "$(numbers disk/run | wc -l)" -eq 10 ] && [ "$(newest disk/run)" = step-00000010 ]
    report $? "no step was done, the old checkpoint is the newest"
    mount -o remount,size=2m "$tmp/disk"
    ends 0 train disk/run "$@" --resume
    same unbroken disk/run "gone on with after room was made"
    umount "$tmp/disk"
else
    echo "no file system can be mounted here: its part is left out"
fi
exit "$failed"
