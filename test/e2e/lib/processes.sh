# Included by ranks.sh and pipeline_ends.sh, behind train.sh: runs in the background whose ranks are signalled. $count is how
# many ranks they have.
# NAME OPTION...: in the background; $launcher is its pid, $ranks those of its ranks in order
launch() {
    start "$@"
    launcher=$pid ranks=
    for _ in $(seq 1000); do
        ranks=$(tr ' ' '\n' 2>/dev/null <"/proc/$launcher/task/$launcher/children" | sort -n | sed '/^$/d')
        [ "$(echo "$ranks" | wc -w)" -eq $count ] && break || sleep 0.01
    done
}
rank() { echo "$ranks" | sed -n "$(($1 + 1))p"; } # RANK: its pid
ended() {                                        # NAME CODE WHAT: 30 s at most; nothing is left of it
    (sleep 30 && kill -9 $launcher) 2>/dev/null &
    watch=$!
    wait $launcher
    got=$?
    kill $watch 2>/dev/null
    wait $watch 2>/dev/null
    cp "$tmp/$1.said" "$tmp/said"
    [ $got -eq "$2" ]
    report $? "$3: ends with $2 (got $got)"
    [ $got -eq "$2" ] || tail -n 5 "$tmp/said"
    for _ in $(seq 500); do # reaped by the launcher; if that was killed, by init in its own time
        left=
        for p in $ranks; do [ ! -e "/proc/$p" ] || left="$left $p"; done
        [ -n "$left" ] && [ $got -eq 137 ] && sleep 0.01 || break
    done
    [ -z "$left" ]
    report $? "$3: no process is left"
    [ -z "$(find "$tmp" -name '*.part')" ]
    report $? "$3: nothing is half written"
}
one_message() { # WHAT
    [ "$(grep -c '^wanhe train: ' "$tmp/said")" -eq 1 ]
    report $? "$1: one message"
}
