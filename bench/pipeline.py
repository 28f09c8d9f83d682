#!/usr/bin/python3
"""Pipelines of two ranks of one thread: every schedule beside one rank, and beside what its bubble allows.

    bench/pipeline.py [--quick] [--rounds N] [--steps N] [--micro-batches 8,32] [CONFIG.yaml]

All programs run in turns; times are medians over all rounds, the first two steps of each process left out. Prints a table and
writes bench/results/pipeline-DATE.json with the machine's description and every single time.

    x half    step time over half of that of one rank alone: 1 if the work were shared out without a bubble
    x both    the same over half of that of one rank while another runs beside it: what two cores give that never talk
    allowed   1 / (1 - idle share) by `wanhe explain schedule`, a backward taken for two forwards
    over      x both / allowed: what is lost to everything but the bubble
    idle      share of the ranks' time in which no instruction of the program computes, from the timeline
    predicted the same from the programs, with the mean times of the step (src/run/trace.h)
    MiB       memory.activations of rank 0 and 1, measured; the ledger's prediction is compared
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from step import measure_machine, prepare

RANKS = 2
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]
SKIPPED = 2  # steps at the beginning of a process


def command(config, steps, m, out, settings, core=None):
    settings = {"tokens.train_steps": steps + SKIPPED, "threads": 1, "tokens.batch_accumulation_per_replica": m,
                "tokens.global_batch_size": "null", **settings}
    pin = [] if core is None else ["taskset", "-c", str(core)]
    return pin + ["./wanhe", "train", config, "--out", out] + [
        word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def read_steps(out):
    with open(os.path.join(out, "metrics.jsonl")) as file:
        return [line["step_ms"] for line in map(json.loads, file) if "step_ms" in line][SKIPPED:]


def activations(out):
    """MiB of each rank. What the ledger predicted must be what was taken."""
    result = []
    for rank in range(RANKS):
        folder = out if rank == 0 else os.path.join(out, "ranks", str(rank))
        with open(os.path.join(folder, "memory.json")) as file:
            rows = {row["row"]: row for row in json.load(file)["rows"]}
        for row in rows.values():
            if row["predicted_bytes"] != row["measured_bytes"]:
                sys.exit(f"rank {rank}: {row}")
        result.append(rows["memory.activations"]["measured_bytes"] / 2**20)
    return result


def start(words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(child):
    said = child.communicate()[0]
    if child.returncode:
        sys.exit(f"{' '.join(child.args)}: exit code {child.returncode}\n{said[-2000:]}")
    return said


def run_alone(config, args, m, copies):
    """Step times of each of `copies` single ranks at the same time."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        children = [start(command(config, args.steps, m, f"{folder}/{i}", {}, cores[i])) for i in range(copies)]
        for child in children:
            finish(child)
        return {"step_ms": [t for i in range(copies) for t in read_steps(f"{folder}/{i}")]}


def run_pipeline(config, args, m, schedule):
    with tempfile.TemporaryDirectory() as folder:
        settings = {"parallelism.pp": RANKS, "parallelism.pp_engine": schedule, "logging.trace": f"{folder}/trace.json",
                    "logging.trace_steps": f"{SKIPPED + 1}-{SKIPPED + args.steps}"}
        said = finish(start(command(config, args.steps, m, f"{folder}/run", settings)))
        idle, predicted = re.search(r"idles ([\d.]+) % of the time, predicted ([\d.]+) %", said).groups()
        return {"step_ms": read_steps(f"{folder}/run"), "idle": float(idle), "predicted_idle": float(predicted),
                "activations_mib": activations(f"{folder}/run")}


def allowed(m, schedule):
    words = ["./wanhe", "explain", "schedule", "--p", str(RANKS), "--m", str(m), "--schedule", schedule, "--json"]
    return 1 / (1 - json.loads(subprocess.check_output(words))["outputs"]["idle_share"])


def measure(config, args, m):
    programs = {"one rank": lambda: run_alone(config, args, m, 1), "two of one": lambda: run_alone(config, args, m, RANKS),
                **{s: (lambda s=s: run_pipeline(config, args, m, s)) for s in SCHEDULES}}
    rounds = {name: [] for name in programs}
    for _ in range(args.rounds):  # in turns, so that a change of the machine's speed hits all alike
        for name, program in programs.items():
            rounds[name].append(program())
    step = {name: statistics.median(t for r in rounds[name] for t in r["step_ms"]) for name in programs}
    rows = []
    for name in programs:
        row = {"program": name, "micro_batches": m, "step_ms": step[name], "rounds": rounds[name]}
        if name in SCHEDULES:
            row["x_half"] = step[name] / (step["one rank"] / RANKS)
            row["x_both"] = step[name] / (step["two of one"] / RANKS)
            row["allowed"] = allowed(m, name)
            row["over"] = row["x_both"] / row["allowed"]
            for key in ("idle", "predicted_idle"):
                row[key] = statistics.median(r[key] for r in rounds[name])
            row["activations_mib"] = rounds[name][0]["activations_mib"]
        rows.append(row)
    return rows


def print_rows(rows):
    for r in rows:
        line = f"{r['program']:12s} {r['micro_batches']:3d} {r['step_ms']:9.1f}"
        if "over" in r:
            line += (f" {r['x_half']:7.3f} {r['x_both']:7.3f} {r['allowed']:8.3f} {r['over']:6.3f} {r['idle']:6.1f} "
                     f"{r['predicted_idle']:9.1f}  " + " ".join(f"{mib:.1f}" for mib in r["activations_mib"]))
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", metavar="CONFIG.yaml", default="bench/configs/pipeline.yaml")
    parser.add_argument("--quick", action="store_true", help="to try this script")
    parser.add_argument("--rounds", type=int, help="3; --quick: 1")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each process")
    parser.add_argument("--micro-batches", default="8,32", metavar="N,N")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    if len(os.sched_getaffinity(0)) < RANKS:
        sys.exit(f"{RANKS} processors are needed, one for each rank")
    machine = measure_machine(1, runs=1 if args.quick else 3)
    prepare(args.config)
    print(f"{RANKS} ranks of 1 thread; peaks: {json.dumps(machine['peaks'][-1])}")
    print("schedule       m   ms/step  x half  x both  allowed   over idle % predicted  MiB")
    rows = []
    for m in map(int, args.micro_batches.split(",")):
        rows += measure(args.config, args, m)
        print_rows(rows[-len(SCHEDULES) - 2:])
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d-%H%M")
    path = "build/bench/pipeline-quick.json" if args.quick else f"bench/results/pipeline-{date}.json"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump({"date": date, **machine, "rows": rows}, file, indent=1)
    print("written:", path)


if __name__ == "__main__":
    main()
