# Included by the scripts on data and tensor parallelism and pipelines: runs of several ranks against one, and their books.
. test/e2e/lib/bits.sh
python=${PYTHON:-/usr/bin/python3}

# Predicted = measured in memory.json and communication.json of every rank. Prints what differs.
cat >"$tmp/books.py" <<'END'
import json, sys
folder, ranks = sys.argv[1], int(sys.argv[2])
bad = 0
for rank in range(ranks):
    at = folder if rank == 0 else f"{folder}/ranks/{rank}"
    memory = json.load(open(f"{at}/memory.json"))["rows"]
    traffic = json.load(open(f"{at}/communication.json"))["rows"] if ranks > 1 else []
    if not memory or (ranks > 1 and not any(row["calls"] for row in traffic)):
        print(f"rank {rank}: empty books")
        bad = 1
    for row in memory:
        if row["predicted_bytes"] != row["measured_bytes"]:
            print(f"rank {rank}:", row)
            bad = 1
    for row in traffic:
        if row["predicted_calls"] != row["calls"] or row["predicted_sent_bytes"] != row["sent_bytes"]:
            print(f"rank {rank}:", row)
            bad = 1
sys.exit(bad)
END

scatter="--set parallelism.tp_mode=REDUCE_SCATTER"
# After `plain`: DP TP PP ZERO MICRO [OPTION...]: the same on ranks, compared to the bit; books of all ranks.
on_mesh() {
    dp=$1 tp=$2 pp=$3 zero=$4 micro=$5
    shift 5
    where="dp $dp, tp $tp, pp $pp, ZeRO $zero"
    again "$where, micro-batch $micro $*" --set parallelism.dp="$dp" --set parallelism.tp="$tp" --set parallelism.pp="$pp" \
        --set optimizer.zero_stage="$zero" --set tokens.micro_batch_size="$micro" --set checks.replicas=1 "$@"
    "$python" "$tmp/books.py" "$tmp/other" $((dp * tp * pp)) >"$tmp/differ" 2>&1
    report $? "$label, $where: the books of all ranks, predicted = measured"
    head -n 3 "$tmp/differ"
}
on_ranks() { # DP ZERO MICRO [OPTION...]
    dp=$1 zero=$2 micro=$3
    shift 3
    on_mesh "$dp" 1 1 "$zero" "$micro" "$@"
}
in_pipeline() { # PP ENGINE MICRO DP ZERO [OPTION...]; ENGINE "own": an option names the schedule
    pp=$1 engine=$2 micro=$3 dp=$4 zero=$5
    shift 5
    [ "$engine" = own ] || set -- --set parallelism.pp_engine="$engine" "$@"
    on_mesh "$dp" 1 "$pp" "$zero" "$micro" "$@"
}
