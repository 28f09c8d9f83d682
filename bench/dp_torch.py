#!/usr/bin/python3
"""The PyTorch peer of `bench/dp.py`: DistributedDataParallel over Gloo, one thread a rank, the ranks forked here.

    bench/dp_torch.py CONFIG.yaml --ranks N --batch B [--zero] [--tuned] [--steps N] [--blas-core NAME]

Model, environment and --blas-core are those of torch_step.py. B sequences a rank and step. --zero: the optimizer states
shared out (ZeroRedundancyOptimizer), which is all that this version can share out on a CPU. --tuned: what serves it here
and isn't its default: each rank on a core of its own (as wanhe's), and gradients that live in the buckets between steps
(gradient_as_bucket_view). One warm-up step is not counted. Prints one JSON object with the times of rank 0."""
import argparse
import ctypes
import json
import os
import sys
import tempfile
import time
import traceback

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--zero", action="store_true")
parser.add_argument("--tuned", action="store_true")
ours, others = parser.parse_known_args()
sys.argv[1:] = others + ["--threads", "1"]
import torch_step  # reads the rest of the command line and sets the environment before it loads PyTorch

import torch
import torch.distributed as dist
import yaml
from torch.distributed.optim import ZeroRedundancyOptimizer


def one_blas_thread():
    """OpenBLAS has threads of its own, as many as processors, whatever PyTorch is told."""
    for line in open("/proc/self/maps"):
        if "openblas" in line.split()[-1]:
            ctypes.CDLL(line.split()[-1]).openblas_set_num_threads(1)
            return


def train(rank, meeting):
    """Milliseconds of each step of this rank."""
    with open(torch_step.args.config) as file:
        config = yaml.safe_load(file)
    model, T = config["model"]["model_config"], config["tokens"]["sequence_length"]
    torch.set_num_threads(1)
    one_blas_thread()
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=ours.ranks)
    torch.manual_seed(1)
    net = torch.nn.parallel.DistributedDataParallel(torch_step.GPT2(model, T), gradient_as_bucket_view=ours.tuned)
    settings = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    if ours.zero:
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, **settings)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), **settings)
    draw, times = torch.Generator().manual_seed(rank), []
    for _ in range(torch_step.args.steps + 1):
        batch = torch.randint(0, model["vocab_size"], (ours.batch, T + 1), generator=draw)
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = net(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - begin))
    dist.destroy_process_group()
    return times


def work(rank, meeting):
    cores = sorted(os.sched_getaffinity(0))
    if ours.tuned and ours.ranks <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    times = train(rank, meeting)
    if rank == 0:
        print(json.dumps({"program": "torch " + torch.__version__, "step_ms": [round(t, 2) for t in times[1:]],
                          "blas_core": torch_step.blas_core()}), flush=True)


def main():
    children = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ours.ranks):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    work(rank, os.path.join(folder, "meeting"))
                    code = 0
                except Exception:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(pid)
        failed = [pid for pid in children if os.waitpid(pid, 0)[1]]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
