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
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from compare import (RANKS, in_turns, load, measure_machine, parse, parser, prepare, rank_folders, read_steps, wanhe_command,
                     write_results)

SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]
SKIPPED = 2  # steps at the beginning of a process


def command(config, steps, m, out, settings, core=None):
    settings = {"tokens.batch_accumulation_per_replica": m, "tokens.global_batch_size": "null", **settings}
    return wanhe_command(config, out, steps + SKIPPED, settings, core, quiet=False)


def activations(out):
    """MiB of each rank. What the ledger predicted must be what was taken."""
    result = []
    for rank, folder in enumerate(rank_folders(out, RANKS)):
        rows = {row["row"]: row for row in load(folder, "memory.json")["rows"]}
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
        return {"step_ms": [t for i in range(copies) for t in read_steps(f"{folder}/{i}", SKIPPED)]}


def run_pipeline(config, args, m, schedule):
    with tempfile.TemporaryDirectory() as folder:
        settings = {"parallelism.pp": RANKS, "parallelism.pp_engine": schedule, "logging.trace": f"{folder}/trace.json",
                    "logging.trace_steps": f"{SKIPPED + 1}-{SKIPPED + args.steps}"}
        said = finish(start(command(config, args.steps, m, f"{folder}/run", settings)))
        idle, predicted = re.search(r"idles ([\d.]+) % of the time, predicted ([\d.]+) %", said).groups()
        return {"step_ms": read_steps(f"{folder}/run", SKIPPED), "idle": float(idle), "predicted_idle": float(predicted),
                "activations_mib": activations(f"{folder}/run")}


def allowed(m, schedule):
    words = ["./wanhe", "explain", "schedule", "--p", str(RANKS), "--m", str(m), "--schedule", schedule, "--json"]
    return 1 / (1 - json.loads(subprocess.check_output(words))["outputs"]["idle_share"])


def measure(config, args, m):
    programs = {"one rank": lambda: run_alone(config, args, m, 1), "two of one": lambda: run_alone(config, args, m, RANKS),
                **{s: (lambda s=s: run_pipeline(config, args, m, s)) for s in SCHEDULES}}
    rounds = in_turns(programs, args.rounds, lambda program: program())
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
    options = parser(__doc__, steps=5)
    options.add_argument("config", nargs="?", metavar="CONFIG.yaml", default="bench/configs/pipeline.yaml")
    options.add_argument("--micro-batches", default="8,32", metavar="N,N")
    args = parse(options)
    machine = measure_machine(1, runs=1 if args.quick else 3)
    prepare(args.config)
    print(f"{RANKS} ranks of 1 thread; peaks: {json.dumps(machine['peaks'][-1])}")
    print("schedule       m   ms/step  x half  x both  allowed   over idle % predicted  MiB")
    rows = []
    for m in map(int, args.micro_batches.split(",")):
        rows += measure(args.config, args, m)
        print_rows(rows[-len(SCHEDULES) - 2:])
    write_results("pipeline", {**machine, "rows": rows}, args.quick)


if __name__ == "__main__":
    main()
