#!/bin/sh
# docs/numbers.md section 12 holds what it quotes: the books of tensor ranks of a model that is too large to run here, as
# `wanhe layout --books` predicts them; of one that runs they are those of the run. Also what else `wanhe layout` says of slices.
. test/e2e/lib/train.sh
python=${PYTHON:-/usr/bin/python3}

cat >"$tmp/rows.py" <<'END'
import json, sys

def books(name):
    return json.load(open(f"{sys.argv[1]}/{name}.json"))["books"]

def row(*cells):
    print("| " + " | ".join(cells) + " |")

def memory(words, rows, names):
    values = [sum(books(name)["memory"][one] for one in rows) for name in names]
    row(words, *(f"{value:,}" for value in values))

layouts = ["one", "all_reduce", "reduce_scatter"]
for name in ("activations", "backward", "tensor"):
    memory(f"`memory.{name}`", [f"memory.{name}"], layouts)
memory("`recompute: full`: `memory.activations` and `recompute`", ["memory.activations", "memory.recompute"],
       [name + "_full" for name in layouts])
for name in layouts[1:]:
    moved = [one for one in books(name)["step"] if one["row"].startswith("tp.")]
    for one in moved:
        row(f"`{one['row']}`", f"{one['calls']:,}", f"{one['sent_bytes']:,}")
    row("sum", f"{sum(one['calls'] for one in moved):,}", f"{sum(one['sent_bytes'] for one in moved):,}")
END
layout() { # NAME OPTION...
    name=$1
    shift
    for keep in none full; do
        "$wanhe" layout examples/llama-7b.yaml --json --books 0 --set recompute=$keep "$@" >"$tmp/said" || exit 1
        [ $keep = none ] && mv "$tmp/said" "$tmp/$name.json" || mv "$tmp/said" "$tmp/${name}_full.json"
    done
}
layout one --set parallelism.tp=1
layout all_reduce --set parallelism.tp_mode=ALL_REDUCE
layout reduce_scatter
"$python" "$tmp/rows.py" "$tmp" >"$tmp/rows"
[ -s "$tmp/rows" ]
report $? "rows of the tables"
while IFS= read -r line; do
    grep -qxF -- "$line" docs/numbers.md
    report $? "docs/numbers.md has: $line"
done <"$tmp/rows"

# Of ranks that run: memory.json, and communication.json over the steps.
cat >"$tmp/books.py" <<'END'
import json, sys
run, rank, shown = sys.argv[1], int(sys.argv[2]), json.load(open(sys.argv[3]))["books"]
at = run if rank == 0 else f"{run}/ranks/{rank}"
memory = {row["row"]: row["measured_bytes"] for row in json.load(open(f"{at}/memory.json"))["rows"]}
moved = json.load(open(f"{at}/communication.json"))
step = {row["row"]: (row["calls"], row["sent_bytes"]) for row in moved["rows"] if row["calls"]}
want = {row["row"]: (row["calls"] * moved["steps"], row["sent_bytes"] * moved["steps"]) for row in shown["step"]}
sys.exit(shown["rank"] != rank or memory != shown["memory"] or step != want)
END
set -- --set parallelism.dp=2 --set parallelism.tp=2 --set parallelism.pp=2 --set parallelism.tp_mode=REDUCE_SCATTER \
    --set optimizer.zero_stage=1 --set tokens.train_steps=5 --set tokens.sequence_length=32 --set threads=1
ends 0 train small "$@"
for rank in 0 3 6; do
    ends 0 "$wanhe" layout examples/tiny-llama.yaml "$@" --books $rank --json
    cp "$tmp/said" "$tmp/small.json"
    "$python" "$tmp/books.py" "$tmp/small" $rank "$tmp/small.json"
    report $? "books of rank $rank: those of the run"
done
# With the work space of step lists that replicas' gradients may choose.
set -- --set parallelism.dp=2 --set tokens.train_steps=5 --set tokens.sequence_length=32 --set threads=1
ends 0 train replicas "$@"
ends 0 "$wanhe" layout examples/tiny-llama.yaml "$@" --books 1 --json
cp "$tmp/said" "$tmp/replicas.json"
"$python" "$tmp/books.py" "$tmp/replicas" 1 "$tmp/replicas.json"
report $? "books of a replica: those of the run"

# slices
ends 0 "$wanhe" layout examples/tiny-gpt2.yaml --set parallelism.tp=4 --set model.model_config.vocab_size=257 \
    --set tokens.sequence_length=30 --set parallelism.tp_mode=REDUCE_SCATTER
says " 2       2-2       2-2         64-95        130-194         15-21"
ends 0 "$wanhe" layout examples/tiny-gpt2.yaml --set parallelism.tp=4 --set tokens.sequence_length=30 --json \
    --set parallelism.tp_mode=REDUCE_SCATTER
says '{"tp":3,"first_head":3,"heads":1,"first_kv_head":3,"kv_heads":1,"first_channel":96,"channels":32,"first_token":192,"tokens":64,"first_position":22,"positions":8}'
silent_about '"books"'
ends 0 "$wanhe" layout examples/tiny-gpt2.yaml --set parallelism.tp=4 --set tokens.sequence_length=30
says " 3       3-3       3-3        96-127        192-255          0-29"
ends 2 "$wanhe" layout examples/tiny-gpt2.yaml --set parallelism.dp=2 --books 2
says "--books 2: there are 2 ranks"
ends 3 "$wanhe" layout examples/tiny-gpt2.yaml --set parallelism.cp=2 --set grain.sequence=2 --books 0
says "parallelism.cp 2 is not built yet"
exit "$failed"
