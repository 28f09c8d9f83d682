#!/usr/bin/python3
"""What the formats and orders of gradient sums cost and save between two data-parallel ranks of one thread.

    bench/wire.py [--quick] [--rounds N] [--steps N] [--zero STAGE] [CONFIG.yaml ...]

All variants run in turns on this machine, as in dp.py: same model, same samples. Prints a table (medians over all rounds,
first step of each process left out) and writes bench/results/wire-DATE.json.

    step, sums   ms of a step; of it joining and rounding sums (RUN/times.json, time.sums; the rank with most of it)
    comm ms      inside collectives, likewise (time.comm)
    grad MiB     sent by rank 0 a step for gradients (RUN/communication.json; exact, equal to the prediction)
    sums MiB     gradients, pending and contributed sums of rank 0 (RUN/memory.json; exact)
    speed        time of the contract in fp32 over this, in the same round; median
"""
import os
import statistics

from compare import (QUICK, RANKS, Program, in_turns, load, measure_machine, median, parse, parser, prepare, read_wanhe, run,
                     wanhe_command, write_results)
from dp import BATCH, batch_settings

CONFIGS = ["bench/configs/small-v4096.yaml"]
VARIANTS = {
    "contract": {},
    "contract, wire bf16": {"grain.wire": "bfloat16"},
    "fast": {"comm.reduce": "fast"},
    "fast, wire bf16": {"comm.reduce": "fast", "grain.wire": "bfloat16"},
}
BASE = next(iter(VARIANTS))


def variant(settings, zero):
    def commands(config, steps, folder):
        words = {"parallelism.dp": RANKS, "optimizer.zero_stage": zero, **batch_settings(config, RANKS), **settings}
        if "comm.reduce" in settings:
            words["grain.data"] = "auto"
        return [wanhe_command(config, f"{folder}/run", steps + 1, words)]

    def read(folder, outputs):
        result = read_wanhe(f"{folder}/run", RANKS)
        result["memory"] = load(folder, "run", "memory.json")["rows"]
        return [result]
    return Program(commands, read, 1, RANKS)


def row_of(config, name, jobs, steps):
    """One line of the table from the runs of all rounds."""
    last = jobs[-1]
    sent = sum(r["sent_bytes"] for r in last["communication"][0] if r["row"].startswith("dp.grad"))
    memory = sum(r["measured_bytes"] for r in last["memory"] if r["row"].startswith("memory.grads"))

    def most(time):
        return median(max(rows.get(time, 0.0) for rows in job["time_rows_ms"]) for job in jobs)
    return {"config": os.path.basename(config)[:-5], "variant": name,
            "step_ms": statistics.median(t for job in jobs for t in job["step_ms"]),
            "sums_ms": most("time.sums"), "comm_ms": most("time.comm"),
            "grad_mib": sent / (steps + 1) / 2**20, "sums_mib": memory / 2**20, "runs": jobs}


def measure(config, args):
    prepare(config)
    peers = {name: variant(settings, args.zero) for name, settings in VARIANTS.items()}
    jobs = in_turns(peers, args.rounds, lambda program: run(program, config, args.steps)[0][0])
    rows = [row_of(config, name, jobs[name], args.steps) for name in peers]
    for row in rows:  # round by round: what slows the machine lasts longer than one
        row["speed"] = median(statistics.median(a["step_ms"]) / statistics.median(b["step_ms"])
                              for a, b in zip(jobs[BASE], row["runs"]))
        print(f"{row['config']:14s} {row['variant']:20s} {row['step_ms']:9.1f} {row['sums_ms']:7.1f} {row['comm_ms']:8.1f} "
              f"{row['grad_mib']:9.2f} {row['sums_mib']:9.1f} {row['speed']:6.3f}", flush=True)
    return rows


def main():
    options = parser(__doc__, steps=3)
    options.add_argument("configs", nargs="*", metavar="CONFIG.yaml")
    options.add_argument("--zero", type=int, default=1, help="optimizer.zero_stage")
    args = parse(options)
    machine = measure_machine(1, runs=1 if args.quick else 3)
    print(f"{RANKS} ranks of 1 thread, {BATCH} sequences each, ZeRO {args.zero}; load {os.getloadavg()[0]:.1f}")
    print("config         variant                ms/step sums ms  comm ms  grad MiB  sums MiB  speed")
    rows = [row for config in args.configs or (QUICK if args.quick else CONFIGS) for row in measure(config, args)]
    write_results("wire", {"load": os.getloadavg(), **machine, "zero": args.zero, "rows": rows}, args.quick)


if __name__ == "__main__":
    main()
