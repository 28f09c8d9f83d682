#!/bin/sh
# Ranks of this machine: death, signals, being one of several; nothing is left behind (case B69, B70, B72, B73).
. test/e2e/lib/train.sh

bench() { "$wanhe" bench collectives --no-pin "$@"; }
long() { # NAME OPTION...: a job that does not end by itself soon; $launcher is its pid, $ranks those of its ranks
    name=$1
    shift
    "$wanhe" bench collectives --no-pin --ranks 3 --max-bytes 64K --seconds 20 "$@" >"$tmp/$name.out" 2>"$tmp/said" </dev/null &
    launcher=$!
    ranks=
    for _ in $(seq 500); do
        ranks=$(tr ' ' '\n' <"/proc/$launcher/task/$launcher/children" | sort -n | sed '/^$/d')
        [ "$(echo "$ranks" | wc -w)" -eq 3 ] && break || sleep 0.01
    done
    sleep 0.2
}
rank() { echo "$ranks" | sed -n "$(($1 + 1))p"; } # RANK: its pid; ranks are started in order
gone() { # none of the ranks is left, 5 s at most
    for _ in $(seq 500); do
        left=
        for p in $ranks; do [ ! -e "/proc/$p" ] || left="$left $p"; done
        [ -z "$left" ] && return 0 || sleep 0.01
    done
    return 1
}
ended() { # CODE WHAT
    wait $launcher
    got=$?
    [ $got -eq "$1" ]
    report $? "$2: ends with $1 (got $got)"
    gone
    report $? "$2: no process is left"
}
shm_before=$(ls /dev/shm | grep -vc '^tmp\.')

# every operation, compared with its definition
for op in all_reduce reduce_scatter all_gather broadcast reduce all_to_all; do
    ends 0 bench --op $op --ranks 3 --max-bytes 4K --factor 32 --seconds 0.001
    says "# wrong elements: 0 OK"
done
ends 0 bench --ranks 4 --dtype bfloat16 --redop max --max-bytes 4K --factor 32 --seconds 0.001 --json
says '"schema":"wanhe.bench_collectives/1"'
says '"wrong":0}'
ends 2 bench --op sum
says "--op sum: legal: all_reduce, reduce_scatter"
ends 2 bench --min-bytes 4Q
ends 2 bench --algorithm rind
says "--algorithm rind: legal: auto, "
ends 0 bench --ranks 3 --algorithm direct --max-bytes 4K --factor 32 --seconds 0.001
says "# wrong elements: 0 OK"
ends 0 bench --ranks 3 --algorithm ring --max-bytes 4K --factor 32 --seconds 0.001 # adds in an order of its own
ends 1 bench --ranks 2 --max-bytes 1024G # more than there is: told beforehand, no SIGBUS
says "free"

# a rank dies (B72)
for victim in 0 2; do
    long death
    kill -9 "$(rank $victim)"
    ended 5 "rank $victim dies"
    says "rank $victim ("
    says "was ended by SIGKILL"
    [ "$(grep -c "a rank or link failed" "$tmp/said")" -eq 1 ]
    report $? "one message"
done

# signals
for signal in TERM INT; do
    case $signal in TERM) want=75 ;; INT) want=130 ;; esac
    long stop
    kill -$signal $launcher
    ended $want "SIG$signal"
    says "stopped by SIG$signal"
done
long orphans
kill -9 $launcher
wait $launcher 2>/dev/null
gone
report $? "the launcher dies: no process is left"

# started several times by somebody else (B69): nothing may run as if it were alone
for environment in "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2" "PMI_SIZE=4 PMI_RANK=1" "WORLD_SIZE=4 RANK=0" \
    "SLURM_NTASKS=4 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4" "OMPI_COMM_WORLD_SIZE=4" "PMI_SIZE=4"; do
    # shellcheck disable=SC2086  # several variables
    ends 3 env $environment "$wanhe" train examples/tiny-llama.yaml --out "$tmp/single"
    says " 4 tasks"
    [ ! -e "$tmp/single" ]
    report $? "nothing written"
done
ends 3 env PMI_SIZE=4 PMI_RANK=1 "$wanhe" bench collectives
ends 0 env SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_JOB_ID=7 "$wanhe" bench collectives --ranks 2 --max-bytes 4 --seconds 0.001

# two jobs at the same moment (B73)
bench --ranks 2 --max-bytes 64K --seconds 0.01 >"$tmp/one" 2>&1 &
one=$!
bench --ranks 2 --max-bytes 64K --seconds 0.01 >"$tmp/two" 2>&1
report $? "one of two jobs at the same moment"
wait $one
report $? "the other one"

# 1 MiB of /dev/shm (B70)
if unshare -m true 2>/dev/null; then
    ends 0 unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"' shm "$wanhe" bench collectives \
        --ranks 4 --min-bytes 4M --max-bytes 4M --seconds 0.01
    says "# wrong elements: 0 OK"
fi
[ "$(ls /dev/shm | grep -vc '^tmp\.')" -eq "$shm_before" ]
report $? "nothing left in /dev/shm"

# layouts that the build does not train are shown
ends 0 "$wanhe" layout examples/tiny-llama.yaml --set parallelism.dp=2 --set parallelism.pp=2 --ranks-per-machine 2
says "4 ranks = dp 2 * cp 1 * tp 1 * pp 2, 2 ranks per machine, 2 machines, ZeRO 0"
ends 0 "$wanhe" layout examples/tiny-llama.yaml --set parallelism.dp=2 --json
says '"groups":{"tp":[[0],[1]],"cp":[[0],[1]],"dp":[[0,1]]'
ends 3 "$wanhe" layout examples/tiny-llama.yaml --set parallelism.pp=1000
says "nearest legal"
ends 3 "$wanhe" train examples/tiny-llama.yaml --set parallelism.cp=2 --out "$tmp/cp"
says "parallelism.cp 2 is not built yet; nearest legal: 1"
exit "$failed"
