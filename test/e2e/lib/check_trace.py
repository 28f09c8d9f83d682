"""A timeline of `wanhe train --trace` is what docs/formats/trace.md says. Prints what is wrong; exit 1 if anything is.

usage: check_trace.py FILE STEPS PP DP PROGRAM     PROGRAM: the schedule with messages, as `explain schedule --program` prints"""
import json
import sys

path, steps, pp, dp, program_path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
faults = []


def fault(*words):
    faults.append(" ".join(str(w) for w in words))


def programs():
    """Labels of each pipeline rank's instructions, in order."""
    labels, rank = {}, None
    for line in open(program_path):
        words = line.split("#")[0].split()
        if words[:1] == ["rank"]:
            rank = int(words[1])
            labels[rank] = []
        elif rank is not None:
            labels[rank] += words
    return labels


def nests(blocks):
    """Blocks of one track contain each other or don't touch."""
    open_ends = []
    for begin, end, name in sorted(blocks, key=lambda b: (b[0], -b[1])):
        while open_ends and open_ends[-1][0] <= begin:
            open_ends.pop()
        if open_ends and end > open_ends[-1][0]:
            fault(name, "at", begin, "reaches out of", open_ends[-1][1])
        open_ends.append((end, name))


def nanoseconds(text):
    whole, point, rest = text.partition(".")
    return int(whole) * 1000 + int(rest or 0)


# Times as they are written: a double doesn't hold every nanosecond.
trace = json.load(open(path), parse_float=nanoseconds)
events = trace["traceEvents"]
world = pp * dp
tracks, names = {}, {}
for e in events:
    if e["ph"] == "M":
        names[(e["pid"], e["tid"], e["name"])] = e["args"]
    elif e["ph"] == "X":
        tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"], e["name"], e))
for key, blocks in tracks.items():
    nests([b[:3] for b in blocks])
threads = ["compute", "tensor communication", "pipeline communication", "data communication", "disk", "optimizer", "idle"]
for rank in range(world):
    name = f"rank {rank} (dp {rank % dp}, pp {rank // dp}, tp 0)"  # ranks: dp within pp
    for pid, process, its in ((rank, name, threads), (world + rank, name + ", predicted", threads[:1])):
        want = {("process_name", 0): process, ("process_sort_index", 0): 2 * rank + (pid >= world)}
        for tid, thread in enumerate(its):
            want[("thread_name", tid)], want[("thread_sort_index", tid)] = thread, tid
        got = {(kind, tid): list(args.values())[0] for (p, tid, kind), args in names.items() if p == pid}
        if got != want:
            fault("process", pid, "is named", got, "not", want)

labels = programs()
for rank in range(world):
    want = labels[rank // dp]
    for source, own in ((rank, want), (world + rank, [w for w in want if w[0] in "FBIW"])):
        blocks = [b for t in (0, 2) for b in tracks.get((source, t), []) if "instruction" in b[3]["args"]]
        found_steps = sorted({b[3]["args"]["step"] for b in blocks})
        if len(found_steps) != steps:
            fault("process", source, "has steps", found_steps)
        for step in found_steps:
            got = [b for b in blocks if b[3]["args"]["step"] == step]
            got.sort(key=lambda b: (b[0], b[1], b[3]["args"]["instruction"]))
            if [b[2] for b in got] != own:
                fault("process", source, "step", step, "runs", [b[2] for b in got], "not", own)
            if any(a[1] > b[0] for a, b in zip(got, got[1:])):
                fault("process", source, "step", step, "does two instructions at once")
    step_blocks = [b for b in tracks[(rank, 0)] if b[2] == "step"]
    busy = sum(b[1] - b[0] for t in (0, 5, 6) for b in tracks.get((rank, t), []) if b[2] not in ("step", "checkpoint"))
    whole = sum(b[1] - b[0] for b in step_blocks)
    if len(step_blocks) != steps or not 0.999 * whole <= busy <= 1.001 * whole:
        fault("rank", rank, len(step_blocks), "steps take", whole, "and their blocks", busy)

flows = {}
for e in events:
    if e["ph"] in "sf":
        flows.setdefault(e["id"], []).append(e)
for number, ends in flows.items():
    by = {e["ph"]: e for e in ends}
    if len(ends) != 2 or len(by) != 2 or by["s"]["pid"] == by["f"]["pid"] or by["s"]["ts"] > by["f"]["ts"]:
        fault("message", number, "is", ends)
messages = sum(w[0] in "SR" for want in labels.values() for w in want) * dp * steps
if 2 * len(flows) != messages:
    fault(len(flows), "messages, not", messages / 2)
kept = [e["args"]["kept"] for e in events if e["ph"] == "C"]
if not kept or min(kept) < 0:
    fault("micro-batches kept:", kept)

for line in faults[:10]:
    print(line)
sys.exit(bool(faults))
