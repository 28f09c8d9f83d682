#!/bin/sh
# Do the tests of src/comm find faults? Puts one fault at a time into a copy of the sources and demands that a test fails.
# A line: the test that should find it | file | sed expression. If that test passes, the others are tried. "races" is
# unit/comm/test_threads under the thread sanitizer.
set -u
mutants() {
    cat <<'END'
collectives  | action.c      | s/r.count - p.first < a->chunk_elems ? r.count - p.first : a->chunk_elems/a->chunk_elems/
collectives  | action.c      | s/copy_to(out\[a->call->root\]/copy_to(out[0]/
collectives  | action.c      | s/memcpy(out, in\[root\]/memcpy(out, in[0]/
collectives  | action.c      | s/payload.bytes : in_of(a, m);/payload.bytes : in_of(a, m \/ 2 * 2);/
async        | action.c      | s/return comm->started + 1 - comm->oldest < WH_WINDOW/return comm->started + 1 - comm->oldest <= WH_WINDOW/
async        | action.c      | s/atomic_store_explicit(&w->next, 0, memory_order_relaxed);//
async        | action.c      | s/\*all = a->arrived == a->comm->size;/*all = a->arrived >= a->comm->size - 1;/
collectives  | action.c      | s/bytes - head);/bytes - head - 1);/
collectives  | action.c      | s/memcpy(payload + at, in, head);/memcpy(payload + at, in, head \& 31);/
failures     | action.c      | s/if (s->fingerprint != a->fingerprint) return .*//
wake         | action.c      | s/ || wh_cause_is_set(&comm->job->control->cause)//
wake         | action.c      | s/^    wh_comm_wake(comm);//
wake         | action.c      | s/^            wh_comm_wake(a->comm);//
wake         | cause.c       | s/^    wh_comm_wake(comm);//
async        | job.c         | s/&job->groups\[id \* job->ranks + members\[m\]\]/\&job->groups[id * job->ranks + m]/
failures     | job.c         | s/^        add_last_operation(job, rank, &t);//
wake         | job.c         | s/^    wh_comm_wake_job(job);//
messages     | message.c     | s/- taken == WH_COMM_MESSAGES) break/- taken == WH_COMM_MESSAGES + 1) break/
messages     | message.c     | s/least(least(left, room_in_pipe(p->comm, r)),/least(left,/
messages     | message.c     | s/if (!all || is_void(comm)) break;/if (is_void(comm)) break;/
messages     | message.c     | s/if (post->fingerprint != p->call_hash || .*{/if (0) {/
wake         | message.c     | s/if (news) wake(comm, from);//
wake         | message.c     | s/if (news) wake(comm, to);//
async        | plan.c        | s/!p->comm->staged && wh_comm_has_room/wh_comm_has_room/
async        | plan.c        | s/(inputs \* (all - own) + others \* own)/(inputs * all + others * own)/
failures     | plan.c        | s/, hash_text(c->row))/, 0)/
failures     | plan.c        | s/ || c->op == WH_BROADCAST ? c->root : 0/ ? c->root : 0/
sums         | reduce.c      | s/if (merges\[w - 1\] >= wh_tree_merges(w - 1, w)) most = w;/most = w;/
collectives  | staged.c      | s/if (p->call.op == WH_ALL_TO_ALL) stage += .*//
comm_noalloc | staged.c      | s/^    wh_action_cut(a);/&\n    char *volatile taken = __builtin_malloc(1);\n    __builtin_free(taken);/
failures     | wait.c        | s/(ended && w->saw_end)/false/
wake         | wait.c        | s/enum wh_status status = move_and_look(w, ready);/enum wh_status status = WH_OK;/
collectives  | reduce_loop.h | s/return (x\[0\] + x\[1\]) + x\[2\];/return x[0] + (x[1] + x[2]);/
async        | control.h     | s/WH_SLOTS = 2 \* WH_WINDOW/WH_SLOTS = WH_WINDOW/
races        | action.c      | s/    atomic_store(&s->sequence, a->sequence);/    atomic_store_explicit(\&s->sequence, a->sequence, memory_order_relaxed);/
races        | action.c      | s/^        write_payload(a, s->payload.bytes);//;s/^    atomic_store(&s->sequence, a->sequence);/&\n    if (a->path == WH_PATH_INLINE) write_payload(a, s->payload.bytes);/
races        | action.c      | s/memory_order_acq_rel/memory_order_relaxed/
races        | message.c     | s/atomic_load_explicit(&r->posted, memory_order_acquire)/atomic_load_explicit(\&r->posted, memory_order_relaxed)/
races        | message.c     | s/atomic_load_explicit(&r->drained, memory_order_acquire)/atomic_load_explicit(\&r->drained, memory_order_relaxed)/
END
}
tests="async wake comm_noalloc messages sums failures collectives exec threads"
make="${MAKE:-make} -s CC=gcc"
# Objects to start from: only what a fault touches is built again.
$make CONFIG=tsan build/tsan/test/unit/comm/test_threads || exit 1
for t in $tests; do $make CONFIG=release "build/release/test/unit/comm/test_$t" || exit 1; done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/build"
cp -a Makefile src ref test tools bench "$folder"
cp -a build/release build/tsan build/packages-checked "$folder/build"
cd "$folder" || exit 1

run() { # TEST SECONDS
    config=release name=$1
    [ "$1" != races ] || config=tsan name=threads
    program=build/$config/test/unit/comm/test_$name
    $make CONFIG=$config "$program" 2>build.log || { cat build.log; exit 1; }
    TSAN_OPTIONS=halt_on_error=1 timeout -k 1 "$2" setarch "$(uname -m)" -R "$program" >test.log 2>&1
}

mutants >list
# A fault that makes ranks wait for each other is found by the clock: several times what the test takes without faults.
for t in $(cut -d ' ' -f 1 list | sort -u); do
    start=$(date +%s)
    run "$t" 300 || { cat test.log; echo "$t fails without any fault"; exit 1; }
    echo $((10 + 3 * ($(date +%s) - start))) >"limit.$t"
done
survived=0
while IFS='|' read -r first file expression; do
    first=${first%% *} file=$(echo "$file" | tr -d ' ') expression=${expression# } start=$(date +%s) found=
    cp -p "src/comm/$file" original
    sed -i "$expression" "src/comm/$file"
    cmp -s "src/comm/$file" original && echo "$file has no such line any more: $expression" && exit 1
    run "$first" "$(cat "limit.$first")" || found=$first
    for t in $tests; do
        [ -n "$found" ] || [ "$t" = "$first" ] || run "$t" 300 || found=$t
    done
    printf '%-12s %3d s  %-13s %s\n' "${found:-SURVIVED}" $(($(date +%s) - start)) "$file" "$expression"
    [ -n "$found" ] || survived=$((survived + 1))
    cp original "src/comm/$file"
done <list
echo "$(wc -l <list) faults, $survived not found"
[ "$survived" -eq 0 ]
