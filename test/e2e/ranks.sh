#!/bin/sh
# Training with several ranks: what ends it, and going on after that (case B70, B72, B73). The numbers are those of one rank.
. test/e2e/lib/train.sh
. test/e2e/lib/processes.sh
two="--set parallelism.dp=2" three="--set parallelism.dp=3 --set grain.data=6"
set -- --set tokens.global_batch_size=24 --set tokens.micro_batch_size=2 --set tokens.train_steps=60 \
    --set checkpoints.checkpoint_interval=10 --set checkpoints.keep_last=2

goes_on() { # NAME PLAIN OPTION...: to the end that PLAIN had
    name=$1 plain=$2
    shift 2
    ends 0 train "$name" "$@" --resume
    says "going on from"
    same "$plain" "$name" "$name"
}
shm_before=$(ls /dev/shm | grep -vc '^tmp\.')

# shellcheck disable=SC2086  # $two, $three: lists of words without spaces
{
    # as one rank, and in whose words
    ends 0 train one "$@"
    ends 0 train six "$@" --set grain.data=6
    ends 0 train two $two "$@"
    says "2 ranks of 1 thread"
    same one two "two ranks"
    ends 0 train three $three "$@" --set threads=2
    says "3 ranks of 2 threads"
    same six three "three ranks of two threads"
    [ "$( (ls "$tmp/one"; echo communication.json; echo ranks) | sort)" = "$(ls "$tmp/two" | sort)" ] &&
        [ "$(ls "$tmp/two/ranks")" = "$(printf '0.log\n1\n1.log')" ]
    report $? "the same files in the run folder, and ranks/"
    [ "$(wc -l <"$tmp/two/metrics.jsonl")" -eq 60 ] && [ ! -s "$tmp/two/ranks/2.log" ]
    report $? "one rank writes the metrics"
    ends 0 train two $two "$@" --resume-if-present
    says "all 60 steps are done"
    ends 0 train zero "$@" --set optimizer.zero_stage=2 --set tokens.train_steps=5
    says "optimizer.zero_stage 2 has nothing to share out: there is one rank"
    ends 0 train json $two "$@" --set tokens.train_steps=5 --json
    says '"ranks":2,"threads":1,'

    # refused before any rank starts
    ends 3 train two $two "$@"
    says "two already holds checkpoints"
    ends 6 train nothing $two "$@" --resume
    says "nothing holds no checkpoint to resume from"
    ends 3 train nothing "$@" --set parallelism.dp=16
    says "tokens.global_batch_size 24 is not a multiple of"
    ends 3 train nothing "$@" --set tokens.micro_batch_size=1 --set parallelism.dp=12
    says "parallelism.dp 12 does not divide grain.data 8; nearest legal: 8, or with parallelism.dp 12 a grain.data of 12"
    ends 4 train nothing $two "$@" --set model.model_config.hidden_size=32768 --set model.model_config.num_hidden_layers=64
    says "GiB in 2 ranks"
    ends 1 train nothing $two "$@" --set data.train="$tmp/none.txt"
    says "none.txt"
    ends 3 env PMI_SIZE=2 PMI_RANK=0 "$wanhe" train examples/tiny-llama.yaml $two --out "$tmp/nothing"
    ends 2 train nothing $two --patience 0
    [ ! -e "$tmp/nothing" ]
    report $? "nothing was made"

    # what all ranks find is told once, as of one
    ends 1 train infinite $two "$@" --set optimizer.learning_rate_scheduler.learning_rate=1e6 \
        --set optimizer.learning_rate_scheduler.lr_warmup_steps=0 --set optimizer.clip_grad=off
    says "are not finite"
    one_message "not finite"

    # stopped in order, by a signal to the launcher or to a rank
    count=2
    for case in "TERM 75 launcher" "INT 130 launcher" "USR1 75 1" "HUP 75 0"; do
        signal=${case%% *} to=${case##* } want=${case#* }
        want=${want% *}
        name=$signal-$to
        launch $name $two "$@"
        await_step $name 7
        [ $to = launcher ] && kill -$signal $launcher || kill -$signal "$(rank $to)"
        ended $name $want "SIG$signal to $to"
        says "stopped by signal"
        step=$(numbers $name | sed -n '$s/{"step": \([0-9]*\),.*/\1/p')
        [ "$(newest $name)" = "$(printf step-%08d "$step")" ] && [ "$step" -lt 60 ]
        report $? "the last step done ($step) is saved"
        goes_on $name one $two "$@"
    done

    # Ctrl-C twice: a step, or what follows it, that takes long
    tools/tiny_text.sh 4000000 >"$tmp/long.txt"
    launch twice $two "$@" --set tokens.val_check_interval=1 --set data.valid="$tmp/long.txt"
    await_step twice 1
    sleep 0.1
    kill -INT $launcher
    sleep 0.1
    kill -INT $launcher
    ended twice 130 "Ctrl-C twice"
    says "interrupted twice"
    one_message "Ctrl-C twice"

    # a rank dies (B72)
    count=3
    for victim in 0 2; do
        launch death-$victim $three "$@"
        await_step death-$victim 13
        kill -9 "$(rank $victim)"
        ended death-$victim 5 "rank $victim dies"
        says "rank $victim (step "
        says "was ended by SIGKILL"
        one_message "rank $victim dies"
        goes_on death-$victim six $three "$@"
    done

    # a rank is stopped
    count=2
    for victim in 0 1; do
        launch stall-$victim $two "$@" --patience 2
        await_step stall-$victim 13
        kill -STOP "$(rank $victim)"
        ended stall-$victim 5 "rank $victim stalls"
        says "rank $victim (step "
        says "gave no sign of life for 2 s: its process is stopped"
        one_message "rank $victim stalls"
        grep -q "rank $victim: joined, process $(rank $victim) (T), seen .* of group" "$tmp/stall-$victim/ranks/0.log"
        report $? "what the ranks were doing is in rank 0's log"
        goes_on stall-$victim one $two "$@"
    done

    # the launcher dies
    launch orphans $two "$@"
    await_step orphans 13
    kill -9 $launcher
    ended orphans 137 "the launcher dies"
    goes_on orphans one $two "$@"

    # two jobs at once, in other folders and in the same one (B73)
    launch first $two "$@"
    ends 0 train second $two "$@"
    ended first 0 "the first of two jobs"
    same one first "the first of two jobs"
    same one second "the second of two jobs"
    launch long $two "$@" --set tokens.train_steps=100000
    await_step long 2
    ends 3 train long $two "$@" --resume-if-present
    says "is in use by process $launcher"
    kill -TERM $launcher
    ended long 75 "a second run in its folder is refused, and the first"
}

[ "$(ls /dev/shm | grep -vc '^tmp\.')" -eq "$shm_before" ]
report $? "nothing left in /dev/shm"
exit "$failed"
