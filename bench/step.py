#!/usr/bin/python3
"""One training step, wanhe beside PyTorch: both in turns on this machine, the same models, batches and random tokens.

    bench/step.py [--threads N] [--rounds N] [--steps N] [--only NAME] [CONFIG.yaml ...]

Prints a table (medians over all rounds, first step of each process left out) and writes bench/results/step-DATE.json
with the machine's description and every single time. PyTorch runs as installed; where OpenBLAS doesn't know the
processor and falls back to old kernels, a second row names the right ones to it (OPENBLAS_CORETYPE), and the ratio is
to the faster of the two.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

from compare import in_turns, load, measure_machine, prepare, read_steps, right_blas_core, wanhe_command, write_results


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


def run_ours(config, args):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        _, rss = run(wanhe_command(config, out, args.steps + 1, {"threads": args.threads}))
        rows = {row["row"]: row["ms"] for row in load(out, "times.json")["rows"]}
        return {"step_ms": read_steps(out), "peak_rss_mib": rss, "time_rows_ms": rows}


def run_torch(config, args, core=None):
    command = ["bench/torch_step.py", config, "--threads", str(args.threads), "--steps", str(args.steps)]
    text, rss = run(command + (["--blas-core", core] if core else []))
    result = json.loads(text)
    return {"step_ms": result["step_ms"], "peak_rss_mib": rss, "flops_per_token": result["flops_per_token"],
            "blas_core": result["blas_core"]}


def measure(config, args, machine, peers):
    tokens, peak = prepare(config), next(p for p in machine["peaks"] if p["threads"] == args.threads)["best_gflops"]
    rounds = in_turns(peers, args.rounds, lambda call: call(config, args))
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
    write_results("step", {**machine, "rows": rows})


if __name__ == "__main__":
    main()
