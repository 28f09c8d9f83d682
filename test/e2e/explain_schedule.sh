#!/bin/sh
# `wanhe explain schedule`: numbers, files and refusals. Uses ./wanhe (or $WANHE); run from the root.
set -u
wanhe=${WANHE:-./wanhe} failed=0 tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

report() { # TEST-RESULT WHAT
    if [ "$1" -eq 0 ]; then echo "ok $2"; else echo "FAILED $2"; failed=1; fi
}
ends() { # CODE ARGUMENT...: the streams stay in $tmp/out and $tmp/err
    want=$1
    shift
    "$wanhe" explain schedule "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ "$got" -eq "$want" ]
    report $? "exit code $want: $*"
}
says() { grep -qF -- "$2" "$tmp/$1"; report $? "$1: $2"; } # STREAM TEXT

ends 0 --p 4 --m 8 --schedule 1f1b
says out "rank 3  .  .  .  F0 B0--- F1 B1---"
says out "takes 33; idle 3/11 = 27.27 % of the ranks' time (37.50 % on top of the work)"
ends 0 --p 4 --m 8 --bwd 1
says out "takes 22; idle 3/11 = 27.27 %"
ends 0 --p 4 --m 57 --json
says out '{"schema":"wanhe.explain.schedule/1","name":"pipeline.schedule"'
says out '"makespan":180.0,"idle_share":0.050000000000000003,'
for p in 2 3 4 5 6 7 8; do # preset B17 of the lab: rises with p
    ends 0 --p $p --m 8 --schedule 1f1b
    sed -n 's/.* = \(.*\) % of the ranks.*/\1/p' "$tmp/out" >>"$tmp/shares"
done
[ "$(tr '\n' ' ' <"$tmp/shares")" = "11.11 20.00 27.27 33.33 38.46 42.86 46.67 " ]
report $? "idle shares for p = 2 .. 8"
ends 0 --p 4 --m 8 --schedule interleaved --v 2
says out "idle 3/19 = 15.79 %"

# A generated schedule is a file, a file is a schedule.
for name in gpipe 1f1b interleaved zb-h1 zb-v; do
    ends 0 --schedule $name --program
    cmp -s "$tmp/out" test/golden/schedules/$name.txt
    report $? "$name is the golden one"
    ends 0 --file test/golden/schedules/$name.txt --program
    cmp -s "$tmp/out" test/golden/schedules/$name.txt
    report $? "$name reads back"
done

printf 'wanhe schedule 1\nranks 2\nmicro-batches 3\nmessages derived\nrank 0\nF0 F1 B0 F2 B1\nrank 1\nF0 B0 F1 B1 F2 B2\n' \
    >"$tmp/own"
ends 3 --file "$tmp/own"
says err "$tmp/own: rank 0: micro-batch 2 has no backward, and its slot is never freed"
ends 3 --file "$tmp/own" --json
says out '"schema":"wanhe.error/1"'
ends 2 --file "$tmp/own" --p 3
ends 1 --file "$tmp/none"
ends 3 --depth 0
says err "waits in a circle, with 0 messages per queue"
ends 3 --schedule zb-v --v 3
ends 2 --schedule nope
says err "unknown schedule 'nope'; there are gpipe, 1f1b, interleaved, zb-h1, zb-v"
ends 0 --help
says out "usage: wanhe explain [options] schedule"

ends 0 --schedule zb-v --svg "$tmp/chart.svg"
head -c 4 "$tmp/chart.svg" | grep -q '<svg' && tail -n 1 "$tmp/chart.svg" | grep -qx '</svg>'
report $? "SVG is written"
exit $failed
