#!/usr/bin/python3
"""Tensor ranks of one thread beside one rank of two, and what the numbers contract costs.

    bench/tensor.py [--quick] [--rounds N] [--steps N] [--part ranks|contract]... [--only NAME]... [CONFIG.yaml ...]

All programs of a part run in turns on this machine: the same model, the same global batch, random tokens. Prints tables
(medians over all rounds, first step of each process left out) and writes bench/results/tensor-DATE.json with the
machine's description and every single time. Two ranks have a core each; four share two. --only: those whose name begins so.

Part "ranks":

    ratio     tokens/s over those of one rank with two threads, in the same round; median
    MiB       sent by rank 0 a step (RUN/communication.json; exact, equal to the prediction)
    memory    MiB of all processes together, divided by the ranks (dp_memory.py; in a run of its own)
    moves     ms a step of collectives in which no rank waits for the other to come: of each call the shorter of the ranks'
              times (a run of its own, with --trace)
    the rest  ms a step where they went (RUN/times.json), mean of the ranks; least, most: of the ranks in collectives

Part "contract": the same columns, and

    S, G      the grain: slices of sums over channels, groups of samples (docs/numbers.md section 3)
    price     % that the contract's step takes longer than this one, in the same round; median, and lowest and highest round

The variants: "contract" with its own choice of grain; "fast" (comm.reduce: fast; G is the number of replicas, gradient sums
join in any order, slices stay); "least" with the contract's order but the least grain that the layout can have, S = tp and
G = dp. Models of 8 heads can be cut in 8 slices, which the others can't: there "S 8" is the base and only S differs.
"""
import json
import os
import statistics
import subprocess
import tempfile

from compare import (QUICK, RANKS, Program, in_turns, load, measure_machine, median, parse, parser, prepare, read_config,
                     read_wanhe, run, wanhe_command, write_results)

CONFIGS = ["bench/configs/small-v4096.yaml", "bench/configs/gpt2-b4-t256.yaml"]
INVALID = 3  # exit code of a configuration that is refused
SEQUENCE = "tp 2, sequence"
COLLECTIVES = ("tp.", "loss.", "norm.")  # in a timeline of tensor ranks

# Columns of the table: the rows of times.json that begin so.
TIMES = {"gemm": "time.gemm", "attent": "time.attention", "norm": "time.norm", "activ": "time.activation",
         "bias": "time.bias", "sums": "time.sums", "loss": "time.loss", "embed": "time.embed",
         "gnorm": "time.grad_norm", "optim": "time.optimizer", "comm": "time.comm", "rest": "time.rest"}


# ---- programs

def job(settings, traced=False):
    """One run of wanhe with as many ranks as the settings say."""
    ranks = settings.get("parallelism.dp", 1) * settings.get("parallelism.tp", 1)

    def commands(config, steps, folder):
        trace = {"logging.trace": f"{folder}/trace.json", "logging.trace_steps": f"2-{steps + 1}"} if traced else {}
        return [wanhe_command(config, f"{folder}/run", steps + 1, {**settings, **trace})]

    def read(folder, outputs):
        result = read_wanhe(f"{folder}/run", ranks)
        result["grain"] = read_config(f"{folder}/run/config.yaml")["grain"]
        if traced:
            result["moves_ms"] = moves_ms(load(folder, "trace.json")["traceEvents"], ranks) / len(result["step_ms"])
        return [result]
    return Program(commands, read, 1, ranks)


def moves_ms(events, ranks):
    """Of all collectives: the time of the rank that was in each for the shortest time, which came last."""
    calls = [[e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"].startswith(COLLECTIVES)]
             for rank in range(ranks)]
    for one in calls:
        one.sort(key=lambda e: e["ts"])
        assert [e["name"] for e in one] == [e["name"] for e in calls[0]]
    return sum(min(e["dur"] for e in same) for same in zip(*calls)) / 1000


def halves():
    """Two single ranks at the same time, each on a core of its own with half of the batch."""
    cores = sorted(os.sched_getaffinity(0))[:RANKS]

    def commands(config, steps, folder):
        batch = {"tokens.global_batch_size": read_config(config)["tokens"]["global_batch_size"] // RANKS}
        return [wanhe_command(config, f"{folder}/run{core}", steps + 1, batch, core) for core in cores]
    return Program(commands, lambda folder, outputs: [read_wanhe(f"{folder}/run{core}") for core in cores], RANKS, 1)


def tensor_programs(traced=False):
    cut = {"parallelism.tp": RANKS}
    return {"tp 2": job(cut, traced), SEQUENCE: job({**cut, "parallelism.tp_mode": "REDUCE_SCATTER"}, traced)}


def rank_programs():
    """The first one is the base."""
    return {"1 rank, 2 threads": job({"threads": RANKS}), **tensor_programs(), "2 alone, halves": halves()}


def contract_programs():
    """{name: (program, name of its base)}"""
    own = {"grain.data": "auto", "loss_block_tokens": 0}  # what the configuration chose for memory's sake
    found = {}
    for dp, tp in ((2, 1), (1, 2), (2, 2)):
        layout = " x ".join(f"{name} {n}" for name, n in (("dp", dp), ("tp", tp)) if n > 1)
        settings = {**own, "parallelism.dp": dp, "parallelism.tp": tp}
        for variant, more in (("contract", {}), ("fast", {"comm.reduce": "fast"}),
                              ("least", {"grain.tensor": tp, "grain.data": dp})):
            found[f"{layout}, {variant}"] = job({**settings, **more}), f"{layout}, contract"
    for S in (8, 4, 2):
        heads = {**own, "parallelism.tp": 2, "model.model_config.num_attention_heads": 8, "grain.tensor": S}
        found[f"tp 2, 8 heads, S {S}"] = job(heads), "tp 2, 8 heads, S 8"
    return found


def refusal(program, config):
    """Why `wanhe train` doesn't take the configuration; None if it does."""
    with tempfile.TemporaryDirectory() as folder:
        words = program.commands(config, 0, folder)[0]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode == INVALID else None


# ---- figures

def step_of(jobs):
    """ms in which the whole batch is trained once, in one round."""
    return max(statistics.median(job_["step_ms"]) for job_ in jobs)


def times_of(rounds):
    """{column: ms}: medians over rounds of the mean over ranks; and of the rank least and of the one most in collectives."""
    def column(begin):
        return median(statistics.mean(sum(ms for row, ms in rank.items() if row.startswith(begin))
                                      for job_ in jobs for rank in job_["time_rows_ms"]) for jobs in rounds)
    comm = [[rank["time.comm"] for job_ in jobs for rank in job_["time_rows_ms"]] for jobs in rounds]
    return {**{name: column(begin) for name, begin in TIMES.items()},
            "least": median(map(min, comm)), "most": median(map(max, comm))}


def sent_mib(job_, steps):
    """By rank 0 in a step."""
    return sum(row["sent_bytes"] for row in job_.get("communication", [[]])[0]) / (steps + 1) / 2**20


def row_of(config, name, program, rounds, base, args):
    ratios = sorted(step_of(b) / step_of(jobs) for b, jobs in zip(base, rounds))
    return {"config": os.path.basename(config)[:-5], "program": name, "jobs": program.jobs, "ranks": program.ranks,
            "step_ms": statistics.median(t for jobs in rounds for job_ in jobs for t in job_["step_ms"]),
            "base_over_this": statistics.median(ratios),
            "range": [ratios[0], ratios[-1]],
            "sent_mib": sent_mib(rounds[0][0], args.steps), "times_ms": times_of(rounds),
            "grain": rounds[0][0].get("grain"), "rounds": rounds}


def measure(config, programs, base, args):
    """Rows of the programs; base[name]: whose time over its own is the ratio."""
    rounds = in_turns(programs, args.rounds, lambda program: run(program, config, args.steps)[0])
    return [row_of(config, name, program, rounds[name], rounds[base[name]], args) for name, program in programs.items()]


# ---- parts

def chosen(programs, args):
    return {name: p for name, p in programs.items() if name.startswith(tuple(args.only or [""]))}


def print_times(row):
    print(f"  {row['sent_mib']:6.1f}", *(f"{ms:6.1f}" for ms in row["times_ms"].values()), flush=True)


def times_header():
    return "     MiB " + " ".join(f"{name:>6s}" for name in (*TIMES, "least", "most"))


def measure_ranks(config, args):
    programs = rank_programs()
    base = next(iter(programs))
    programs = {base: programs[base], **chosen(programs, args)}
    tokens = prepare(config)
    why = refusal(programs[SEQUENCE], config) if SEQUENCE in programs else None
    if why:
        print(f"{SEQUENCE}: left out, for `wanhe train` refuses it: {why}")
        del programs[SEQUENCE]
    moves = {name: run(p, config, args.steps)[0][0]["moves_ms"] for name, p in tensor_programs(traced=True).items()
             if name in programs}
    memory = {name: run(p, config, 1, sampled=True)[1] / (p.jobs * p.ranks) for name, p in programs.items()}
    rows = measure(config, programs, dict.fromkeys(programs, base), args)
    print("config         program             ms/step  tokens/s  ratio memory  moves" + times_header())
    for row in rows:
        name = row["program"]
        row.update(tokens_per_s=1000 * tokens / row["step_ms"], memory_mib=memory[name], moves_ms=moves.get(name, 0.0))
        print(f"{row['config']:14s} {row['program']:18s} {row['step_ms']:8.1f} {row['tokens_per_s']:9.1f} "
              f"{row['base_over_this']:6.3f} {row['memory_mib']:6.0f} {row['moves_ms']:6.1f}", end="")
        print_times(row)
    return rows


def measure_contract(config, args):
    programs = contract_programs()
    base = {name: b for name, (_, b) in programs.items()}
    wanted = {n for name in chosen(programs, args) for n in (name, base[name])}
    prepare(config)
    rows = measure(config, {name: p for name, (p, _) in programs.items() if name in wanted}, base, args)
    print("config         program                  S  G  ms/step   price  (range)      " + times_header())
    for row in rows:
        row["price_percent"], row["base"] = 100 * (row["base_over_this"] - 1), base[row["program"]]
        spread = " ".join(f"{100 * (q - 1):+5.1f}" for q in row["range"])
        print(f"{row['config']:14s} {row['program']:22s} {row['grain']['tensor']:3d} {row['grain']['data']:2d} "
              f"{row['step_ms']:8.1f} {row['price_percent']:+6.1f}% {'(' + spread + ')':14s}", end="")
        print_times(row)
    return rows


PARTS = {"ranks": measure_ranks, "contract": measure_contract}


def main():
    options = parser(__doc__, steps=4)
    options.add_argument("configs", nargs="*", metavar="CONFIG.yaml")
    options.add_argument("--part", choices=PARTS, action="append")
    options.add_argument("--only", metavar="NAME", action="append", help="programs whose name begins with NAME")
    args = parse(options)
    machine = measure_machine(1, runs=1 if args.quick else 3)
    print(f"{RANKS} cores; peaks: {json.dumps(machine['peaks'][-1])}; load {os.getloadavg()[0]:.1f}")
    configs = args.configs or (QUICK if args.quick else CONFIGS)
    rows = {part: [row for config in configs for row in PARTS[part](config, args)] for part in args.part or PARTS}
    write_results("tensor", {"load": os.getloadavg(), **machine, "rows": rows}, args.quick)


if __name__ == "__main__":
    main()
