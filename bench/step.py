#!/usr/bin/python3
"""One training step, wanhe beside PyTorch: both in turns on this machine, the same models, batches and random tokens.

    bench/step.py [--threads N] [--rounds N] [--steps N] [--only NAME] [CONFIG.yaml ...]

Prints a table (medians over all rounds, first step of each process left out) and writes bench/results/step-DATE.json
with the machine's description and every single time. PyTorch runs as installed; where OpenBLAS doesn't know the
processor and falls back to old kernels, a second row names the right ones to it (OPENBLAS_CORETYPE), and the ratio is
to the faster of the two.
"""
import argparse
import datetime
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

import yaml


def ours_command(config, steps, threads, out):
    """How wanhe is asked for `steps` measured steps (and one before); writes OUT/metrics.jsonl."""
    return ["./wanhe", "train", config, "--quiet", "--out", out,
            "--set", f"tokens.train_steps={steps + 1}", "--set", f"threads={threads}"]


def run(command, extra_env=None):
    """(stdout, peak resident MiB) of a child that must succeed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(extra_env or {})})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if child.returncode:
            sys.exit(f"{' '.join(command)}: exit code {child.returncode}\n{err.read().decode()[-2000:]}")
        return out.read().decode(), usage.ru_maxrss / 1024


def measure_machine(threads, runs=3):
    """The description, and of each measured limit the best of a few runs."""
    results = [json.loads(run(["build/release/bench/machine/bench_machine", str(threads)])[0]) for _ in range(runs)]
    peaks = [{key: max(p[key] for p in same) for key in same[0]} for same in zip(*(r["peaks"] for r in results))]
    return {"machine": results[0]["machine"], "peaks": peaks}


def run_ours(config, args):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        _, rss = run(ours_command(config, args.steps, args.threads, out))
        with open(os.path.join(out, "metrics.jsonl")) as file:
            times = [line["step_ms"] for line in map(json.loads, file) if "step_ms" in line]
        with open(os.path.join(out, "times.json")) as file:
            rows = {row["row"]: row["ms"] for row in json.load(file)["rows"]}
    return {"step_ms": times[1:], "peak_rss_mib": rss, "time_rows_ms": rows}


def run_torch(config, args, core=None):
    command = ["bench/torch_step.py", config, "--threads", str(args.threads), "--steps", str(args.steps)]
    text, rss = run(command + (["--blas-core", core] if core else []))
    result = json.loads(text)
    return {"step_ms": result["step_ms"], "peak_rss_mib": rss, "flops_per_token": result["flops_per_token"],
            "blas_core": result["blas_core"]}


def right_blas_core(machine):
    """OpenBLAS's name for this processor's instruction set."""
    kernels = machine["machine"]["kernels"]
    return "SkylakeX" if "avx512" in kernels else "Haswell" if "avx2" in kernels else None


def prepare(config):
    """The random tokens that the configuration names; returns tokens per step."""
    with open(config) as file:
        c = yaml.safe_load(file)
    path = c["data"]["train"][0]
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["bench/random_tokens.py", str(c["model"]["model_config"]["vocab_size"]), "200000", path], check=True)
    return c["tokens"]["global_batch_size"] * c["tokens"]["sequence_length"]


def measure(config, args, machine, peers):
    tokens, peak = prepare(config), next(p for p in machine["peaks"] if p["threads"] == args.threads)["best_gflops"]
    rounds = {name: [] for name in peers}
    for _ in range(args.rounds):  # in turns, so that a change of the machine's speed hits all alike
        for name, call in peers.items():
            rounds[name].append(call(config, args))
    flops = next((r[0]["flops_per_token"] for r in rounds.values() if "flops_per_token" in r[0]), None)
    rows = []
    for name, results in rounds.items():
        step = statistics.median(t for r in results for t in r["step_ms"])
        rate = 1000 * tokens / step
        rows.append({"config": os.path.basename(config)[:-5], "program": name, "threads": args.threads,
                     "step_ms": step, "tokens_per_s": rate, "peak_rss_mib": max(r["peak_rss_mib"] for r in results),
                     "mfu_percent": 100 * flops * rate / (peak * 1e9) if flops else None,
                     "step_per_floor": step_per_floor(results), "blas_core": results[0].get("blas_core"),
                     "rounds": results})
    return rows


def step_per_floor(results):
    """Time of the step over that of its matrix products alone (the floor: their operations at the GEMM's own speed)."""
    rows = [r["time_rows_ms"] for r in results if "time_rows_ms" in r]
    if not rows:
        return None
    return statistics.median(sum(r.values()) / sum(ms for name, ms in r.items() if name.startswith("time.gemm")) for r in rows)


def print_rows(rows):
    best_peer = max((r["tokens_per_s"] for r in rows if r["program"] != "wanhe"), default=None)
    for r in rows:
        ratio = f"{r['tokens_per_s'] / best_peer:6.2f}" if r["program"] == "wanhe" and best_peer else "      "
        mfu = f"{r['mfu_percent']:6.1f}" if r["mfu_percent"] is not None else "      "
        floor = f"{r['step_per_floor']:6.2f}" if r["step_per_floor"] else "      "
        name = r["program"].split()[0] + (f" ({r['blas_core']})" if r["blas_core"] else "")
        print(f"{r['config']:14s} {name:20s} {r['step_ms']:10.1f} {r['tokens_per_s']:9.1f} {mfu} "
              f"{r['peak_rss_mib']:9.0f} {ratio} {floor}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", metavar="CONFIG.yaml")
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each process")
    parser.add_argument("--only", choices=["wanhe", "torch"])
    args = parser.parse_args()
    configs = args.configs or sorted(glob.glob("bench/configs/*.yaml"))

    machine = measure_machine(args.threads)
    peers = {"wanhe": run_ours, "torch": run_torch}
    core = right_blas_core(machine)
    if core:
        peers["torch " + core] = lambda config, args: run_torch(config, args, core)
    peers = {name: call for name, call in peers.items() if not args.only or name.startswith(args.only)}

    print(f"{args.threads} threads; peaks: {json.dumps(machine['peaks'][-1])}")
    print("config         program                 ms/step  tokens/s   MFU%   RSS MiB  ratio step/floor")
    rows = []
    for config in configs:
        rows += measure(config, args, machine, peers)
        print_rows(rows[-len(peers):])
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d-%H%M")
    path = f"bench/results/step-{date}.json"
    os.makedirs("bench/results", exist_ok=True)
    with open(path, "w") as file:
        json.dump({"date": date, **machine, "rows": rows}, file, indent=1)
    print("written:", path)


if __name__ == "__main__":
    main()
