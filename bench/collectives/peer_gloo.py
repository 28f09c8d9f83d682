#!/usr/bin/python3
"""All-reduce and all-gather of PyTorch's Gloo, measured as peer_mpi.c does. One JSON object per line.

    peer_gloo.py RANKS MIN_BYTES MAX_BYTES FACTOR BUDGET_SECONDS

Gloo's all-reduce is in place only; its all-gather is out of place only; PyTorch 1.13 has no reduce-scatter for it."""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

BATCH_SECONDS = 100e-6
BATCHES_MIN, BATCHES_MAX = 3, 1000


def slowest(seconds):
    t = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(t, dist.ReduceOp.MAX)
    return t.item()


def agreed(more):
    t = torch.tensor([int(more)])
    dist.broadcast(t, 0)
    return bool(t.item())


def batch(call, calls):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return slowest(time.perf_counter() - began) / calls


def check(op, call, x, outs, rank, ranks):
    """Inputs are small integers, exact in any order of summation."""
    def values(r):
        return ((torch.arange(x.numel()) * 7 + r * 3) % 17).float()
    x.copy_(values(rank))
    call()
    good = (torch.equal(x, sum(values(r) for r in range(ranks))) if op == "all_reduce"
            else all(torch.equal(outs[r], values(r)) for r in range(ranks)))
    if not good:
        raise SystemExit(f"{op} of {x.numel()} elements is wrong on rank {rank}")
    x.zero_()


def measure(op, bytes_, budget, rank, ranks):
    elems = bytes_ // 4
    x = torch.zeros(elems if op == "all_reduce" else elems // ranks)
    outs = [torch.zeros_like(x) for _ in range(ranks)] if op == "all_gather" else None
    call = (lambda: dist.all_reduce(x)) if op == "all_reduce" else (lambda: dist.all_gather(outs, x))
    check(op, call, x, outs, rank, ranks)
    calls = max(1, int(BATCH_SECONDS / batch(call, 2)))
    times, began, more = [], time.perf_counter(), True
    while more:
        times.append(batch(call, calls))
        more = agreed(len(times) < BATCHES_MAX and (len(times) < BATCHES_MIN or time.perf_counter() - began < budget))
    times.sort()
    if rank == 0:
        print(json.dumps({"peer": "gloo", "ranks": ranks, "op": op, "in_place": op == "all_reduce", "bytes": bytes_,
                          "us": round(times[len(times) // 2] * 1e6, 3), "us_min": round(times[0] * 1e6, 3),
                          "batches": len(times), "calls": calls}), flush=True)


def work(rank, ranks, least, most, factor, budget):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for op in ("all_reduce", "all_gather"):
        size = least
        while size <= most:
            if op == "all_reduce" or size // 4 % ranks == 0:
                measure(op, size, budget, rank, ranks)
            size *= factor
    dist.destroy_process_group()


def main():
    ranks, least, most, factor = map(int, sys.argv[1:5])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            work(rank, ranks, least, most, factor, float(sys.argv[5]))
            sys.stdout.flush()
            os._exit(0)
        children.append(pid)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    sys.exit(1 if failed else 0)


main()
