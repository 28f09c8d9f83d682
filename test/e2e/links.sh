#!/bin/sh
# What `wanhe train` knows of the links between its ranks, and what its collectives choose by it: measured, kept by `wanhe
# tune`, or named; said in the log and in communication.json. `comm.reduce: fast` goes by a ring where figures say so. Numbers
# under the contract are those of one rank, books are right, whatever was chosen.
. test/e2e/lib/ranks.sh
cache=$tmp/cache/wanhe/links-2.json
small="--set tokens.global_batch_size=8 --set grain.data=8 --set tokens.micro_batch_size=2 --set tokens.train_steps=5"
fast="$small --set comm.reduce=fast --set grain.data=auto --set parallelism.dp=4"

books() { # NAME RANKS
    "$python" "$tmp/books.py" "$tmp/$1" "$2" >"$tmp/differ" 2>&1
    report $? "$1: the books of all ranks"
    head -n 3 "$tmp/differ"
}
# FROM TO: pipes fast, reading in place slow, the arena slower: a ring, whose partial sums go through pipes, is the best.
for_a_ring() {
    "$python" - "$1" "$2" <<'END'
import json, sys
links = json.load(open(sys.argv[1]))
figures = {"latency_s": 0, "message_s": 0, "piece_bytes": 0, "piped_most_bytes": 0, "piped_s_per_byte": 1e-12,
           "placed_s_per_byte": 1e-9, "copy_s_per_byte": 1e-12, "add_s_per_byte": 1e-12,
           "arena_all_reduce_s_per_byte": 1e-6, "arena_all_gather_s_per_byte": 1e-6}
for part in [links] + links["levels"]:
    part.update({name: value for name, value in figures.items() if name in part})
json.dump(links, open(sys.argv[2], "w"))
END
}

# shellcheck disable=SC2086  # $small, $fast: lists of words without spaces
{
    ends 0 train one $small
    silent_about "links between"

    # measured, unless something is kept that fits
    ends 0 train probed $small --set parallelism.dp=2
    says "links between 2 data-parallel ranks: measured in "
    says "there is no $cache of"
    same one probed "links measured"
    books probed 2
    ends 0 "$wanhe" tune --ranks 2 --quick --max-bytes 64K
    says "kept in $cache"
    ends 0 train kept $small --set parallelism.dp=2
    says "links between 2 data-parallel ranks: as kept in $cache"
    says "dp.grad.all_reduce"
    says ", contract order (predicted "
    same one kept "links kept"
    ends 0 train probe $small --set parallelism.dp=2 --set comm.links=probe
    says "(comm.links probe)"
    sed 's/"machine": "/&some other /' "$cache" >"$tmp/moved" && mv "$tmp/moved" "$cache"
    ends 0 train moved $small --set parallelism.dp=2
    says "measured on another machine (some other "
    echo '{' >"$cache"
    ends 0 train damaged $small --set parallelism.dp=2
    says "measured in "
    says "$cache:"
    ends 0 train off $small --set parallelism.dp=2 --set comm.links=off
    says "not used (comm.links off)"
    same one off "no links"
    books off 2

    # a file that is named
    ends 0 "$wanhe" tune --ranks 4 --quick --max-bytes 64K --out "$tmp/four.json"
    for_a_ring "$tmp/four.json" "$tmp/ring.json"
    ends 1 train nothing $small --set parallelism.dp=4 --set comm.links="$tmp/none.json"
    says "none.json"
    ends 3 train nothing $small --set parallelism.dp=2 --set comm.links="$tmp/ring.json"
    says "ring.json was measured with 4 ranks, not 2: \`wanhe tune --ranks 2\`"
    [ ! -e "$tmp/nothing" ]
    report $? "nothing was made"

    # the contract's order, by lists
    ends 0 train lists $small --set parallelism.dp=4 --set comm.links="$tmp/ring.json" --set checks.replicas=1
    says ": halving_doubling, contract order (predicted "
    silent_about "an order of its own"
    same one lists "lists in the contract's order"
    books lists 4

    # any order, by a ring
    for name in ring again; do
        ends 0 train $name $fast --set comm.links="$tmp/ring.json" --set checks.replicas=1
        says ": ring, an order of its own (predicted "
        books $name 4
    done
    same ring again "fast, by a ring, twice"
    grep -q ': ring, an order of its own' "$tmp/ring/log.txt" && "$python" - "$tmp/ring/communication.json" <<'END'
import json, sys
book = json.load(open(sys.argv[1]))
assert book["links"].endswith("ring.json"), book["links"]
assert any(c["row"] == "dp.grad.all_reduce" and c["way"] == "ring" and c["plans"] >= 1 and
           "ring, an order of its own (predicted" in c["text"] for c in book["choices"]), book["choices"]
END
    report $? "the ring is in the log and in communication.json"
    ends 0 train tree $fast --set comm.links=off
    says ": arena, contract order"
    numbers ring >"$tmp/ring.numbers"
    numbers tree | cmp -s - "$tmp/ring.numbers"
    [ $? -eq 1 ]
    report $? "the ring's numbers are not the tree's"
    "$python" - "$tmp/ring" "$tmp/tree" <<'END'
import json, sys
ring, tree = ([json.loads(line) for line in open(f"{folder}/metrics.jsonl")] for folder in sys.argv[1:])
assert ring[0]["loss_hex"] == tree[0]["loss_hex"]  # before the first update nothing was summed
assert all(abs(a["loss"] - b["loss"]) < 1e-3 for a, b in zip(ring, tree)), (ring, tree)
END
    report $? "but close"
}
exit "$failed"
