#!/bin/sh
# How the program speaks: exit codes, streams, messages. Uses ./wanhe (or $WANHE); run from the root.
wanhe=${WANHE:-./wanhe} failed=0 tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset NO_COLOR CLICOLOR_FORCE

report() { # TEST-RESULT WHAT
    if [ "$1" -eq 0 ]; then echo "ok $2"; else echo "FAILED $2"; failed=1; fi
}
ends() { # CODE COMMAND...: exit code; the streams stay in $tmp/out and $tmp/err
    want=$1
    shift
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ "$got" -eq "$want" ]
    report $? "exit code $want: $*"
    [ "$got" -eq "$want" ] || { echo "  got $got"; cat "$tmp/err"; }
}
says() { grep -qF -- "$2" "$tmp/$1"; report $? "$1: $2"; } # STREAM TEXT
silent() { [ ! -s "$tmp/$1" ]; report $? "nothing on $1"; }

ends 0 "$wanhe" version
says out "wanhe $(cat VERSION)"
silent err
ends 0 "$wanhe" --version
ends 0 "$wanhe" version --json
says out '{"schema":"wanhe.version/1","version":"'"$(cat VERSION)"'"'
ends 0 "$wanhe" help
says out "usage: wanhe COMMAND [options]"
ends 0 "$wanhe" help config
says out "usage: wanhe config [options] ACTION [RUN.yaml]"
ends 0 "$wanhe" config --help
ends 2 "$wanhe"
silent out
ends 2 "$wanhe" confg
says err "unknown command 'confg'; did you mean 'config'?"
ends 2 "$wanhe" config
says err "ACTION is missing"
ends 2 "$wanhe" config keys --markdwon
says err "unknown option --markdwon; did you mean --markdown?"
ends 2 "$wanhe" config kys
says err "unknown action 'kys'; did you mean 'keys'?"
ends 2 "$wanhe" version --color sometimes
silent out

for example in examples/*.yaml; do
    ends 0 "$wanhe" config show "$example"
    silent err
done
ends 0 "$wanhe" config show examples/tiny-llama.yaml --effective --set tokens.train_steps=7
says out "train_steps: 7"
says out "# --set"
says out "# examples/tiny-llama.yaml:3"
cp "$tmp/out" "$tmp/effective.yaml"
ends 0 "$wanhe" config show "$tmp/effective.yaml" --effective
sed 's/ *#.*//' "$tmp/effective.yaml" >"$tmp/a"
sed 's/ *#.*//' "$tmp/out" | cmp -s - "$tmp/a"
report $? "the effective configuration reads back"
ends 1 "$wanhe" config show "$tmp/none.yaml"
says err "$tmp/none.yaml: No such file or directory"
ends 3 "$wanhe" config show examples/tiny-llama.yaml --set parallelism.cp=2 --set tokens.trian_steps=1
says err "parallelism.cp 2 is not built yet; nearest legal: 1"
says err "did you mean 'tokens.train_steps'?"
silent out
ends 3 "$wanhe" config show examples/tiny-llama.yaml --set threads=-1 --json --quiet
says out '{"schema":"wanhe.error/1","command":"config","code":"CONFIG","exit_code":3'
ends 3 "$wanhe" train examples/tiny-llama.yaml --out "$tmp/run" --set model.dtype=float16 # cases B12, B32
says err "model.dtype: 'float16' is none of float32|bfloat16"
[ ! -e "$tmp/run" ]
report $? "nothing is written"
ends 0 "$wanhe" config show examples/tiny-llama.yaml --json
says out '"tokens.train_steps":{"value":"20","source":"examples/tiny-llama.yaml:'

ends 0 "$wanhe" config keys --markdown
cmp -s "$tmp/out" docs/config.md
report $? "docs/config.md is what 'wanhe config keys --markdown' prints"

escape=$(printf '\033')
ends 2 "$wanhe" confg
grep -q "$escape" "$tmp/err" && report 1 "no colour into a file" || report 0 "no colour into a file"
ends 3 "$wanhe" config show examples/tiny-llama.yaml --set threads=-1 --color always
says err "$escape[31m"
CLICOLOR_FORCE=1 ends 3 "$wanhe" config show examples/tiny-llama.yaml --set threads=-1
says err "$escape[31m"
NO_COLOR=1 CLICOLOR_FORCE=1 ends 3 "$wanhe" config show examples/tiny-llama.yaml --set threads=-1
grep -q "$escape" "$tmp/err" && report 1 "NO_COLOR wins" || report 0 "NO_COLOR wins"

if [ -e /dev/full ]; then
    "$wanhe" config keys >/dev/full 2>"$tmp/err"
    [ $? -eq 1 ]
    report $? "a full disk is noticed"
    says err "cannot write to standard output"
fi
exit "$failed"
