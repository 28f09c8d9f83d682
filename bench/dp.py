#!/usr/bin/python3
"""Data parallelism, one thread a rank: wanhe with ZeRO 0 to 3 beside two independent runs of itself and PyTorch.

    bench/dp.py [--quick] [--rounds N] [--steps N] [--only NAME]... [--set KEY=VALUE]... [CONFIG.yaml ...]

All programs run in turns on this machine: the same models, B sequences a rank, random tokens. Prints a table (medians over
all rounds, first step of each process left out) and writes bench/results/dp-DATE.json with the machine's description and
every single time. --quick: a tiny model, to try this script. --set: for wanhe, as in `wanhe train`.

    scaling   tokens/s over that of as many single-rank runs at the same time, each on a core of its own: what the machine
              gives to that many ranks that never talk
    comm      inside collectives (RUN/times.json, time.comm): what computing doesn't hide, of the rank that has most
    memory    of all processes of the job together, divided by the ranks: see dp_memory.py. Taken in a run of its own, for
              looking disturbs
    speed     tokens/s over the fastest PyTorch
    memory/   memory over that of PyTorch, tuned, that shares out most like it: zero 0 beside DDP, 1 to 3 beside
              ZeroRedundancyOptimizer
"""
import json
import os
import statistics

from compare import (QUICK, RANKS, Program, in_turns, measure_machine, median, parse, parser, prepare, read_config, read_wanhe,
                     right_blas_core, run, wanhe_command, write_results)

BATCH = 4  # sequences of a rank and step
CONFIGS = ["bench/configs/small-v4096.yaml", "bench/configs/gpt2-b4-t256.yaml"]
INDEPENDENT = f"wanhe {RANKS} x 1"


def batch_settings(config, ranks):
    """A rank has the same samples and groups of samples (grain.data) in a job of any size."""
    groups = read_config(config).get("grain", {}).get("data")
    return {"tokens.global_batch_size": BATCH * ranks, **({"grain.data": groups * ranks} if groups else {})}


def alone(copies, extra):
    """Single-rank runs at the same time, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))

    def commands(config, steps, folder):
        settings = {**batch_settings(config, 1), **extra}
        return [wanhe_command(config, f"{folder}/run{i}", steps + 1, settings, cores[i]) for i in range(copies)]
    return Program(commands, lambda folder, outputs: [read_wanhe(f"{folder}/run{i}") for i in range(copies)], copies, 1)


def parallel(zero, extra, like):
    def commands(config, steps, folder):
        settings = {"parallelism.dp": RANKS, "optimizer.zero_stage": zero, **batch_settings(config, RANKS), **extra}
        return [wanhe_command(config, f"{folder}/run", steps + 1, settings)]
    return Program(commands, lambda folder, outputs: [read_wanhe(f"{folder}/run", RANKS)], 1, RANKS, like)


def torch(*options):
    def commands(config, steps, folder):
        return [["bench/dp_torch.py", config, "--ranks", str(RANKS), "--batch", str(BATCH), "--steps", str(steps),
                 *options]]
    return Program(commands, lambda folder, outputs: [json.loads(text) for text in outputs], 1, RANKS)


def programs(core, extra):
    """PyTorch as installed, and with what serves it best here (dp_torch.py --tuned, and step.py on OpenBLAS's kernels)."""
    best = ["--tuned"] + (["--blas-core", core] if core else [])
    found = {"wanhe 1": alone(1, extra), INDEPENDENT: alone(RANKS, extra)}
    for zero in range(4):
        found[f"wanhe zero {zero}"] = parallel(zero, extra, "torch zero, tuned" if zero else "torch ddp, tuned")
    return {**found, "torch ddp": torch(), "torch ddp, tuned": torch(*best), "torch zero, tuned": torch("--zero", *best)}


def tokens_per_s(program, jobs, tokens):
    """Of all jobs together; `tokens` of a rank and step."""
    return sum(1000 * program.ranks * tokens / statistics.median(job["step_ms"]) for job in jobs)


def comm_ms(jobs):
    """Of the rank that is in collectives longest."""
    times = [rows["time.comm"] for job in jobs for rows in job.get("time_rows_ms", []) if "time.comm" in rows]
    return max(times, default=None)


def measure(config, args, peers):
    tokens = BATCH * read_config(config)["tokens"]["sequence_length"]
    prepare(config)
    memory = {name: run(p, config, 1, sampled=True)[1] for name, p in peers.items()}
    rounds = in_turns(peers, args.rounds, lambda program: run(program, config, args.steps)[0])
    rows = []
    for name, program in peers.items():
        times = [t for jobs in rounds[name] for job in jobs for t in job["step_ms"]]
        rows.append({"config": os.path.basename(config)[:-5], "program": name, "jobs": program.jobs,
                     "ranks": program.ranks, "tokens_per_rank": tokens, "step_ms": statistics.median(times),
                     "tokens_per_s": median(tokens_per_s(program, jobs, tokens) for jobs in rounds[name]),
                     "comm_ms": median(comm_ms(jobs) for jobs in rounds[name]) if program.ranks > 1 else None,
                     "memory_mib": memory[name] / (program.jobs * program.ranks), "rounds": rounds[name]})
    add_ratios(rows, peers)
    return rows


def add_ratios(rows, peers):
    speed, memory = ({row["program"]: row[key] for row in rows} for key in ("tokens_per_s", "memory_mib"))
    fastest = max((s for name, s in speed.items() if name.startswith("torch")), default=None)
    for row in rows:
        name = row["program"]
        both, like = name.startswith("wanhe") and row["ranks"] > 1, memory.get(peers[name].like)
        row["scaling"] = row["tokens_per_s"] / speed[INDEPENDENT] if both and INDEPENDENT in speed else None
        row["speed_to_torch"] = row["tokens_per_s"] / fastest if both and fastest else None
        row["memory_to_torch"] = row["memory_mib"] / like if like else None


def print_rows(rows):
    def cell(value, width, digits):
        return f"{value:{width}.{digits}f}" if value is not None else " " * width
    for r in rows:
        print(f"{r['config']:14s} {r['program']:20s} {r['step_ms']:9.1f} {r['tokens_per_s']:9.1f} "
              f"{cell(r['scaling'], 7, 3)} {cell(r['comm_ms'], 8, 1)} {r['memory_mib']:11.0f} "
              f"{cell(r['speed_to_torch'], 6, 2)} {cell(r['memory_to_torch'], 7, 2)}", flush=True)


def main():
    options = parser(__doc__, steps=3)
    options.add_argument("configs", nargs="*", metavar="CONFIG.yaml")
    options.add_argument("--only", metavar="NAME", action="append", help="programs whose name begins with NAME")
    options.add_argument("--set", metavar="KEY=VALUE", action="append", default=[])
    args = parse(options)
    machine = measure_machine(1, runs=1 if args.quick else 3)
    extra = dict(setting.split("=", 1) for setting in args.set)
    peers = {name: p for name, p in programs(right_blas_core(machine), extra).items()
             if name.startswith(tuple(args.only or [""]))}

    print(f"{RANKS} ranks of 1 thread, {BATCH} sequences each; peaks: {json.dumps(machine['peaks'][-1])}")
    print("config         program                ms/step  tokens/s scaling  comm ms memory MiB/rank speed memory/")
    rows = []
    for config in args.configs or (QUICK if args.quick else CONFIGS):
        rows += measure(config, args, peers)
        print_rows(rows[-len(peers):])
    write_results("dp", {**machine, "wanhe_settings": extra, "rows": rows}, args.quick)


if __name__ == "__main__":
    main()
