"""What the comparisons beside this file share: command line, machine, programs that run in turns, the file of results."""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import namedtuple

import yaml

import dp_memory

RANKS = 2
QUICK = ["bench/configs/dp/quick.yaml"]

# What runs: commands(config, steps, folder) are started at the same time, read(folder, their outputs) gives of each the
# times of its steps. `like`: the program that its memory is compared with.
Program = namedtuple("Program", "commands read jobs ranks like", defaults=(None,))


# ---- command line, results

def parser(doc, steps):
    """With what all have: --quick, --rounds, --steps."""
    result = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--quick", action="store_true", help="to try this script")
    result.add_argument("--rounds", type=int, help="3; --quick: 1")
    result.add_argument("--steps", type=int, default=steps, help="measured steps of each process")
    return result


def parse(options):
    args = options.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    if len(os.sched_getaffinity(0)) < RANKS:
        sys.exit(f"{RANKS} processors are needed, one for each rank")
    return args


def write_results(name, content, quick=False):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d-%H%M")
    path = f"build/bench/{name}-quick.json" if quick else f"bench/results/{name}-{date}.json"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump({"date": date, **content}, file, indent=1)
    print("written:", path)


# ---- machine, data

def measure_machine(threads, runs=3):
    """The description, and of each measured limit the best of a few runs."""
    command = ["build/release/bench/machine/bench_machine", str(threads)]
    results = [json.loads(subprocess.check_output(command)) for _ in range(runs)]
    peaks = [{key: max(p[key] for p in same) for key in same[0]} for same in zip(*(r["peaks"] for r in results))]
    return {"machine": results[0]["machine"], "peaks": peaks}


def right_blas_core(machine):
    """OpenBLAS's name for this processor's instruction set."""
    kernels = machine["machine"]["kernels"]
    return "SkylakeX" if "avx512" in kernels else "Haswell" if "avx2" in kernels else None


def read_config(path):
    with open(path) as file:
        return yaml.safe_load(file)


def prepare(config):
    """The random tokens that the configuration names; returns tokens per step."""
    c = read_config(config)
    path = c["data"]["train"][0]
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["bench/random_tokens.py", str(c["model"]["model_config"]["vocab_size"]), "200000", path], check=True)
    return c["tokens"]["global_batch_size"] * c["tokens"]["sequence_length"]


# ---- wanhe

def wanhe_command(config, out, steps, settings, core=None, quiet=True):
    """`wanhe train` of one thread a rank unless the settings say otherwise, on one core if that is given."""
    settings = {"tokens.train_steps": steps, "threads": 1, **settings}
    pin = [] if core is None else ["taskset", "-c", str(core)]
    return pin + ["./wanhe", "train", config, *(["--quiet"] if quiet else []), "--out", out] + [
        word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def load(*path):
    with open(os.path.join(*path)) as file:
        return json.load(file)


def read_steps(out, skipped=1):
    """Milliseconds of rank 0's steps but the first ones."""
    with open(os.path.join(out, "metrics.jsonl")) as file:
        return [line["step_ms"] for line in map(json.loads, file) if "step_ms" in line][skipped:]


def rank_folders(out, ranks):
    return [out] + [os.path.join(out, "ranks", str(rank)) for rank in range(1, ranks)]


def read_wanhe(out, ranks=1):
    """Times of rank 0's steps and, of every rank, where they went."""
    folders = rank_folders(out, ranks)
    times = [{row["row"]: row["ms"] for row in load(folder, "times.json")["rows"]} for folder in folders]
    result = {"step_ms": read_steps(out), "time_rows_ms": times}
    if ranks > 1:
        result["communication"] = [load(folder, "communication.json")["rows"] for folder in folders]
    return result


# ---- runs

def run(program, config, steps, sampled=False):
    """(what each job read, peak MiB of all together or None)"""
    with tempfile.TemporaryDirectory() as folder:
        commands = program.commands(config, steps, folder)
        files = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in commands]
        children = [subprocess.Popen(c, stdout=out, stderr=err) for c, (out, err) in zip(commands, files)]
        peak = dp_memory.peak_mib(children) if sampled else None
        codes, texts = [child.wait() for child in children], []
        for command, code, (out, err) in zip(commands, codes, files):
            out.seek(0), err.seek(0)
            if code:
                sys.exit(f"{' '.join(command)}: exit code {code}\n{err.read()[-2000:]}")
            texts.append(out.read())
        return program.read(folder, texts), peak


def in_turns(programs, rounds, call):
    """{name: what call(program) gave in each round}; in turns, so that a change of the machine's speed hits all alike."""
    results = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            results[name].append(call(program))
    return results


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None
