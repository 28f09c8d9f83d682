# What the tests of training share; they include it with `. test/e2e/lib/train.sh`, run from the root. Uses ./wanhe (or
# $WANHE). Gives $tmp (removed at exit), $failed (the exit code), and the functions below.
wanhe=${WANHE:-./wanhe} failed=0
tmp=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # in memory if possible: saves wait for the disk otherwise
trap 'rm -rf "$tmp"' EXIT
unset NO_COLOR CLICOLOR_FORCE
export XDG_CACHE_HOME="$tmp/cache" # what `wanhe tune` has kept on this machine is not the tests' business
export OMP_WAIT_POLICY=passive # many small runs on few processors: spinning threads would take them from each other

report() { # TEST-RESULT WHAT
    if [ "$1" -eq 0 ]; then echo "ok $2"; else echo "FAILED $2"; failed=1; fi
}
ends() { # CODE COMMAND...: exit code; what it said stays in $tmp/said
    want=$1
    shift
    "$@" >"$tmp/said" 2>&1 </dev/null
    got=$?
    [ "$got" -eq "$want" ]
    report $? "exit code $want: $(echo "$*" | cut -c 1-200)"
    [ "$got" -eq "$want" ] || { echo "  got $got"; tail -n 5 "$tmp/said"; }
}
says() { grep -qF -- "$1" "$tmp/said"; report $? "says: $1"; }
silent_about() { if grep -qF -- "$1" "$tmp/said"; then report 1 "silent about: $1"; else report 0 "silent about: $1"; fi; }

# A run of examples/tiny-$family.yaml on $tmp/text.txt with short sequences, in $tmp/NAME.
family=llama
tools/tiny_text.sh 4096 >"$tmp/text.txt"
train() { # NAME [OPTION...]
    name=$1
    shift
    ${in_place-} "$wanhe" train "examples/tiny-$family.yaml" --out "$tmp/$name" --set data.train="$tmp/text.txt" \
        --set tokens.sequence_length=32 --set threads=1 --set logging.iteration_step_info_interval=1000 "$@"
}
# The same in the background; $pid is the program's own, what it says goes to $tmp/NAME.said.
start() { # NAME [OPTION...]
    in_place=exec
    train "$@" >"$tmp/$1.said" 2>&1 </dev/null &
    pid=$! in_place=
}

# What metrics.jsonl says but for times: losses and norms to the bit, each step once and in order.
numbers() { sed 's/, "step_ms".*//' "$tmp/$1/metrics.jsonl"; } # NAME
newest() { cat "$tmp/$1/checkpoints/latest"; }                 # NAME
same_numbers() {                                               # NAME NAME WHAT
    numbers "$1" >"$tmp/numbers.1"
    numbers "$2" >"$tmp/numbers.2"
    [ -s "$tmp/numbers.1" ] && cmp "$tmp/numbers.1" "$tmp/numbers.2" >"$tmp/differ" 2>&1
    report $? "$3: losses and norms"
}
same_newest() { # NAME NAME WHAT: every file of the last checkpoint
    diff -r "$tmp/$1/checkpoints/$(newest "$1")" "$tmp/$2/checkpoints/$(newest "$2")" >"$tmp/differ" 2>&1
    report $? "$3: checkpoint"
    [ ! -s "$tmp/differ" ] || head -n 3 "$tmp/differ"
}
same() { same_numbers "$@"; same_newest "$@"; } # NAME NAME WHAT

# Waits (20 s at most) until the run NAME, started with pid $pid, has done STEPS steps; fails if it ends before.
await_step() { # NAME STEPS
    for _ in $(seq 2000); do
        [ -f "$tmp/$1/metrics.jsonl" ] && [ "$(wc -l <"$tmp/$1/metrics.jsonl")" -ge "$2" ] && return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.01
    done
    return 1
}
