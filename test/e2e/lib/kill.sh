# Included by kill.sh and full_kill.sh, which say how many rounds: a run that saves every 2 steps is killed (-9) at random
# moments, saving included, and started again by the same command (case B42, B88).
rounds=$1 steps=$((40 * $1))
. test/e2e/lib/train.sh
set -- --set checkpoints.checkpoint_interval=2 --set checkpoints.keep_last=3 --set tokens.train_steps=$steps

random() { od -An -N2 -tu2 /dev/urandom | awk -v most="$1" '{ print $1 / 65536 * most }'; } # 0 to MOST
ends 0 train unbroken "$@"
round=0 killed=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    before=$(newest killed 2>/dev/null)
    start killed "$@" --resume-if-present
    done=$(numbers killed 2>/dev/null | wc -l)
    await_step killed $((done + 1 + $(random 9 | cut -d . -f 1)))
    sleep "$(random 0.03)"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $? -ne 137 ] || killed=$((killed + 1)) # else it had ended before
    # From the second round on there is something to go on from, unless the kill came before it was said.
    if [ -n "$before" ] && grep -q "parameters" "$tmp/killed.said"; then
        grep -qE "going on from .*, step [1-9]|all $steps steps" "$tmp/killed.said"
        report $? "round $round goes on from a checkpoint"
    fi
done
[ $((2 * killed)) -gt "$rounds" ]
report $? "killed $killed times in $rounds rounds"
ends 0 train killed "$@" --resume-if-present
same unbroken killed "after $rounds kills"
diff -rq "$tmp/unbroken/checkpoints" "$tmp/killed/checkpoints" >"$tmp/differ" 2>&1
report $? "the same checkpoints are there, and no leftovers"
head -n 5 "$tmp/differ"
[ "$(ls "$tmp/unbroken")" = "$(ls "$tmp/killed")" ]
report $? "the same files in the run folder"
exit "$failed"
