#!/bin/sh
# Run folders: one run each, kept checkpoints, few file descriptors (cases B47, B65, B73).
. test/e2e/lib/train.sh

# B73: different folders don't disturb each other; in the same folder the second run is refused.
set -- --set tokens.train_steps=60
ends 0 train alone "$@"
start first "$@"
one=$pid
start second "$@"
two=$pid
wait $one && wait $two
report $? "two runs at the same time"
same alone first "the first of two"
same alone second "the second of two"
start long --set tokens.train_steps=100000
await_step long 2
ends 3 train long "$@"
says "is in use by process $pid"
ends 3 train long "$@" --resume-if-present
kill -TERM $pid
wait $pid
[ $? -eq 75 ]
report $? "the first is not disturbed"
ends 0 "$wanhe" eval "$tmp/long" "$tmp/text.txt" # reading needs no lock

# B47: with keep_last 1 there is never less than one complete checkpoint after the first.
set -- --set checkpoints.checkpoint_interval=5 --set checkpoints.keep_last=1 --set tokens.train_steps=100
start keep "$@"
await_step keep 6
missing=0 looks=0
while kill -0 $pid 2>/dev/null && [ $looks -lt 2000 ]; do
    complete=0
    for folder in "$tmp"/keep/checkpoints/step-????????; do [ -s "$folder/manifest.json" ] && complete=1; done
    # A folder may have been removed between listing and looking: look again before it counts.
    [ $complete -eq 1 ] || [ -s "$tmp/keep/checkpoints/$(newest keep)/manifest.json" ] || missing=$((missing + 1))
    looks=$((looks + 1))
    sleep 0.01
done
wait $pid
[ $? -eq 0 ] && [ $missing -eq 0 ] && [ $looks -gt 3 ]
report $? "keep_last 1: never without a checkpoint ($looks looks, $missing without)"
[ "$(ls "$tmp/keep/checkpoints")" = "latest
step-00000100" ]
report $? "keep_last 1 keeps one"
ends 0 train three --set checkpoints.checkpoint_interval=5 --set checkpoints.keep_last=3
[ "$(cd "$tmp/three/checkpoints" && echo step-*)" = "step-00000010 step-00000015 step-00000020" ]
report $? "keep_last 3 keeps the newest three"
ends 0 train none --set checkpoints.checkpoint_interval=0 --set checkpoints.save_final_state=false
[ ! -e "$tmp/none/checkpoints" ]
report $? "no checkpoints unless they are asked for"

# B65: 200 shards and 64 descriptors.
mkdir "$tmp/shards"
head -c 4000 "$tmp/text.txt" >"$tmp/cut.txt"
split -b 20 -a 3 -d --additional-suffix=.txt "$tmp/cut.txt" "$tmp/shards/s"
list=$(ls "$tmp"/shards/* | tr '\n' ',')
set -- --set data.train="[${list%,}]" --set tokens.train_steps=4 --set checkpoints.checkpoint_interval=2 \
    --set optimizer.learning_rate_scheduler.lr_warmup_steps=1
few_files() { (ulimit -n 64 && train "$@"); }
ends 0 few_files shards.run "$@"
ends 0 train joined "$@" --set data.train="$tmp/cut.txt"
same joined shards.run "200 shards are read as the text they were cut from"
exit "$failed"
