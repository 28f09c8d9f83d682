#!/bin/sh
# Checks the protocol of src/comm, test/model/comm.pml, in all interleavings, and that each way to break it is found.
set -eu
command -v spin >/dev/null || { echo "spin is not installed (tools/deps.sh test)"; exit 77; }
model=$PWD/test/model/comm.pml
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

check() { # OPTION...: prints spin's verdict; leaves it in the file verdict
    spin -a "$@" "$model" >spin.log || { cat spin.log; exit 1; }
    ${CC:-gcc} -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c
    ./pan -n -m100000 >verdict 2>&1 || true
    grep -q '^State-vector.*errors' verdict || { cat verdict; exit 1; }
}
holds() {
    check "$@"
    awk -v what="$*" '/states, stored/ { printf "holds in %d states: %s\n", $1, what }' verdict
    grep -q 'errors: 0$' verdict && ! grep -q 'max search depth too small\|out of memory' verdict || { cat verdict; exit 1; }
}
breaks() {
    check "$@"
    ! grep -q 'errors: 0$' verdict || { echo "not found: $*"; exit 1; }
    sed -n 's/^pan:1: \(.*\) (at depth.*/    \1/p' verdict | sed "s/^/found: $*/"
}

# Many operations, sleep and death; flags and counters are used again from the (2 * WINDOW + 1)th operation on.
holds -DRANKS=2 -DWINDOW=1 -DOPS=4
holds -DRANKS=2 -DWINDOW=2 -DOPS=5
holds -DRANKS=2 -DWINDOW=2 -DOPS=3 -DDEATH -DVICTIM=0
holds -DRANKS=2 -DWINDOW=2 -DOPS=3 -DDEATH -DVICTIM=1
holds -DRANKS=3 -DWINDOW=1 -DOPS=4 -DNO_SLEEP
holds -DRANKS=3 -DWINDOW=1 -DOPS=1 -DCHUNKS=1
holds -DRANKS=3 -DWINDOW=1 -DOPS=1 -DCHUNKS=1 -DDEATH -DVICTIM=1

for mutation in FEW_SLOTS ONE_TOO_MANY LATE_PAYLOAD LATE_FLAG NOT_ALL TORN_TAKE EARLY_COUNT FINISHED_WHEN_TAKEN \
    NO_WAKE_AT_START NO_WAKE_AT_LAST_CHUNK NO_BELL LATE_BELL LATE_REGISTRATION NO_SECOND_LOOK; do
    breaks -D$mutation -DRANKS=2 -DWINDOW=1 -DOPS=3
done
for mutation in NO_WAKE_AT_DEATH NO_LOOK_AT_CAUSE; do
    breaks -D$mutation -DRANKS=2 -DWINDOW=1 -DOPS=1 -DDEATH -DVICTIM=1
done
