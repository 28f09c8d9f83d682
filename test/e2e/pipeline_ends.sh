#!/bin/sh
# What ends a pipeline in the middle of a step (B72): the message names rank, step, instruction, micro-batch and, of a message,
# the other rank. A rank that is only late changes nothing.
. test/e2e/lib/train.sh
. test/e2e/lib/processes.sh
tools/tiny_text.sh 16384 >"$tmp/text.txt"
family=gpt2 count=2
set -- --set parallelism.pp=2 --set tokens.global_batch_size=64 --set tokens.micro_batch_size=1 \
    --set tokens.sequence_length=128 --set model.model_config.n_layer=4 --set checkpoints.checkpoint_interval=0 \
    --set checkpoints.save_final_state=false
instruction='computing: [FBIW][0-9]+ \((forward|backward).* of micro-batch [0-9]+\)|computing: [RS][AG][0-9]+[<>][01] \(micro-batch [0-9]+ (to|from) rank [01]\)'

# A signal may come between two steps, rarely: then again.
in_a_step() { # SIGNAL VICTIM [OPTION...]
    signal=$1 victim=$2
    shift 2
    for _ in 1 2 3 4; do
        rm -rf "$tmp/run"
        launch run "$@" --set tokens.train_steps=10000
        await_step run 3
        kill -"$signal" "$(rank "$victim")"
        wait $launcher
        code=$?
        grep -qE "rank $victim \(step [0-9]+, ($instruction)\)" "$tmp/run.said" && break
    done
    [ $code -eq 5 ]
    report $? "SIG$signal to rank $victim: exit code 5 (got $code)"
    cp "$tmp/run.said" "$tmp/said"
    grep -qE "rank $victim \(step [0-9]+, ($instruction)\)" "$tmp/said"
    report $? "SIG$signal to rank $victim: names what it was at"
    one_message "SIG$signal to rank $victim"
    grep -qE "^rank $((1 - victim)) \(step [0-9]+, ($instruction)\)" "$tmp/run/ranks/0.log"
    report $? "SIG$signal to rank $victim: what the other did is in the log"
}
in_a_step KILL 0 "$@"
says "was ended by SIGKILL"
in_a_step KILL 1 "$@" --set parallelism.pp_engine=zb-h1
says "was ended by SIGKILL"
in_a_step STOP 0 "$@" --patience 1
says "gave no sign of life for 1 s: its process is stopped"
in_a_step STOP 1 "$@" --patience 1 --set parallelism.pp_engine=gpipe # rank 0 is silent before
says "gave no sign of life for 1 s: its process is stopped"

# A rank that stands still for a while, in the middle of steps
ends 0 train calm "$@" --set tokens.train_steps=20 --set parallelism.pp=1
for victim in 0 1; do
    rm -rf "$tmp/late"
    launch late "$@" --set tokens.train_steps=20
    for step in 2 5; do
        await_step late $step
        kill -STOP "$(rank $victim)"
        sleep 0.3
        kill -CONT "$(rank $victim)"
    done
    ended late 0 "rank $victim is late"
    same_numbers calm late "rank $victim is late"
done
exit "$failed"
