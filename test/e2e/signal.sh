#!/bin/sh
# What a scheduler does: a warning signal, and later the same command again (case B48). The step is completed and saved.
. test/e2e/lib/train.sh
set -- --set tokens.train_steps=400 --set checkpoints.checkpoint_interval=0

ends 0 train unbroken "$@"
for signal in TERM USR1 HUP INT; do
    case $signal in INT) want=130 ;; *) want=75 ;; esac
    start $signal "$@"
    await_step $signal 7
    kill -$signal $pid
    wait $pid
    got=$?
    [ $got -eq $want ]
    report $? "SIG$signal ends with $want (got $got)"
    cp "$tmp/$signal.said" "$tmp/said"
    says "stopped by signal"
    step=$(numbers $signal | sed -n '$s/{"step": \([0-9]*\),.*/\1/p')
    [ "$(newest $signal)" = "$(printf step-%08d "$step")" ] && [ "$step" -lt 400 ]
    report $? "the last step done ($step) is saved"
    ends 0 train $signal "$@" --resume
    says "step $step"
    same unbroken $signal "after SIG$signal"
done

# Who reads the log may go away.
train pipe --set logging.iteration_step_info_interval=1 2>&1 | head -n 1 >/dev/null
for _ in $(seq 500); do [ -e "$tmp/pipe/memory.json" ] && break || sleep 0.01; done
[ "$(newest pipe)" = step-00000020 ]
report $? "a run outlives the reader of its log"
[ -z "$(find "$tmp" -name '*.part' -o -name core)" ]
report $? "no leftovers"
exit "$failed"
