#!/usr/bin/python3
"""Collectives, wanhe beside Open MPI, MPICH and Gloo: in turns on this machine, the same sizes, data and method.

    bench/collectives/run.sh [--ranks 2,4] [--rounds N] [--seconds S] [--min-bytes N] [--max-bytes N] [--factor N]

Each round runs every peer once. Prints per operation, ranks and size the median over rounds of each peer's median, the
ratio of the fastest peer's time to ours and of ours to the machine's limit, and writes
bench/results/collectives-DATE.json with the machine's description and every single figure. "in place" where a peer has
it; Gloo has no all-gather in place and no reduce-scatter."""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys

OPS = ("all_reduce", "reduce_scatter", "all_gather")
PEERS = ("openmpi", "mpich", "gloo")
BUILD = "build/peers"
LIMIT_BYTES = 65536  # below, the cost of talking hides what the memory could do


def lines(command, env=None):
    """Objects that a child prints, one a line; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run_ours(ranks, args):
    rows = []
    for op in OPS:
        o = lines(["./wanhe", "bench", "collectives", "--json", "--quiet", "--op", op, "--ranks", str(ranks), "--seconds",
                   str(args.seconds), "--min-bytes", str(args.min_bytes), "--max-bytes", str(args.max_bytes),
                   "--factor", str(args.factor)])[0]
        for row in o["rows"]:
            for form in ("out_of_place", "in_place"):
                t = row[form]
                if t and t["wrong"]:
                    sys.exit(f"wanhe {op} of {row['bytes']} bytes: {t['wrong']} elements are wrong")
                if t:
                    rows.append({"peer": "wanhe", "ranks": ranks, "op": op, "in_place": form == "in_place",
                                 "bytes": row["bytes"], "us": t["us"], "us_min": t["us_min"],
                                 "limit_us": t["limit_us"]})
    return rows


def run_peer(peer, ranks, args):
    sizes = [str(args.min_bytes), str(args.max_bytes), str(args.factor), str(args.seconds)]
    if peer == "gloo":
        return lines(["bench/collectives/peer_gloo.py", str(ranks), *sizes])
    program = [f"{BUILD}/peer_{peer}", peer, *sizes]
    if peer == "mpich":
        bind = ["-bind-to", "core"] if ranks <= os.cpu_count() else []  # as ours and Open MPI do by themselves
        return lines(["mpirun.mpich", *bind, "-n", str(ranks), *program])
    return lines(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *program])


def build():
    os.makedirs(BUILD, exist_ok=True)
    for peer in ("openmpi", "mpich"):
        subprocess.run([f"mpicc.{peer}", "-O2", "-o", f"{BUILD}/peer_{peer}", "bench/collectives/peer_mpi.c"],
                       check=True)


def versions():
    def first_line(*command):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")[0].strip()
    mpich = [line for line in subprocess.run(["mpichversion"], capture_output=True, text=True, check=False)
             .stdout.split("\n") if "Version" in line]
    torch = first_line("/usr/bin/python3", "-c", "import torch; print(torch.__version__)")
    return {"openmpi": first_line("mpirun.openmpi", "--version"), "mpich": " ".join(mpich[:1]).split()[-1:],
            "gloo": f"PyTorch {torch}"}


def summarize(rows):
    """(ranks, op, bytes) -> peer -> median us of its better form: in place where that is faster."""
    samples, table = {}, {}
    for r in rows:
        samples.setdefault((r["ranks"], r["op"], r["bytes"], r["peer"], r["in_place"]), []).append(r)
    for (ranks, op, bytes_, peer, in_place), rs in samples.items():
        entry = table.setdefault((ranks, op, bytes_), {})
        us = statistics.median(r["us"] for r in rs)
        if peer not in entry or us < entry[peer]["us"]:
            entry[peer] = {"us": us, "in_place": in_place}
            if peer == "wanhe":
                limits = [r["limit_us"] for r in rs if r["limit_us"]]  # none with more ranks than processors
                entry[peer]["limit_us"] = min(limits) if limits else None
    return table


def show(table):
    ratios = {}
    head = None
    for (ranks, op, bytes_), entry in sorted(table.items(), key=lambda kv: (OPS.index(kv[0][1]), kv[0][0], kv[0][2])):
        if "wanhe" not in entry:
            continue
        if head != (ranks, op):
            head = (ranks, op)
            print(f"\n{op}, {ranks} ranks: us per call (medians; better of in place and out of place)")
            print(f"{'bytes':>12} {'wanhe':>11}" + "".join(f" {p:>11}" for p in PEERS) +
                  f" {'fastest/wanhe':>14} {'wanhe/limit':>12}")
        ours, limit = entry["wanhe"]["us"], entry["wanhe"]["limit_us"]
        peers = {p: entry[p]["us"] for p in PEERS if p in entry}
        ratio = min(peers.values()) / ours
        ratios[head + (bytes_,)] = ratio
        print(f"{bytes_:>12} {ours:>11.2f}" + "".join(f" {peers[p]:>11.2f}" if p in peers else f" {'-':>11}"
                                                      for p in PEERS) +
              f" {ratio:>14.2f}" + (f" {ours / limit:>12.2f}" if limit and bytes_ >= LIMIT_BYTES else ""))
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--min-bytes", type=int, default=4)
    parser.add_argument("--max-bytes", type=int, default=256 << 20)
    parser.add_argument("--factor", type=int, default=4)
    args = parser.parse_args()
    build()
    machine = json.loads(subprocess.run(["build/release/bench/machine/bench_machine"], capture_output=True, text=True,
                                        check=True).stdout)
    rows, loads = [], []
    for round_ in range(args.rounds):
        for ranks in map(int, args.ranks.split(",")):
            for peer in ("wanhe",) + PEERS:
                loads.append(os.getloadavg()[0])
                new = run_ours(ranks, args) if peer == "wanhe" else run_peer(peer, ranks, args)
                rows += [{**r, "round": round_} for r in new]
                print(f"round {round_ + 1} of {args.rounds}, {ranks} ranks, {peer}: {len(new)} figures",
                      file=sys.stderr, flush=True)
    table = summarize(rows)
    show(table)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d-%H%M")
    os.makedirs("bench/results", exist_ok=True)
    path = f"bench/results/collectives-{date}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema": "wanhe.bench_collectives_peers/1", "date": date, "machine": machine, "peers": versions(),
                   "arguments": vars(args), "load_average": {"lowest": min(loads), "highest": max(loads)},
                   "summary": [{"ranks": k[0], "op": k[1], "bytes": k[2], **v} for k, v in sorted(table.items())],
                   "rows": rows}, file)
        file.write("\n")
    print(f"\n{path}")


main()
