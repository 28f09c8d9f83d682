#!/usr/bin/python3
"""The PyTorch peer of `bench/step.py`: trains one of bench/configs/*.yaml on random tokens and measures a step.

    bench/torch_step.py CONFIG.yaml [--threads N] [--steps N] [--peak-gflops X] [--blas-core NAME]

fp32, one process, plain causal attention, tied head, AdamW; OMP_WAIT_POLICY=passive, which for two threads is much
faster than the default here. One warm-up step is not counted. Prints one JSON object:

    mfu_percent = (6 N' + 12 L C T) * tokens / time / peak    N' = parameters without the position table
"""
import argparse
import ctypes
import json
import os
import resource
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("config")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--peak-gflops", type=float, help="multiply-add peak of that many threads")
parser.add_argument("--blas-core", help="kernels that OpenBLAS shall use, for example SkylakeX; default: its own choice")
args = parser.parse_args()

# The environment is read when the libraries are loaded, so before the imports below. What a shell may have set for
# OpenBLAS is no part of the measurement.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.pop(name, None)
os.environ["OMP_WAIT_POLICY"] = "passive"
if args.blas_core:
    os.environ["OPENBLAS_CORETYPE"] = args.blas_core

import torch
import torch.nn as nn
import torch.nn.functional as F
import yaml


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        p = torch.softmax((q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5 + mask, -1)
        x = x + self.out((p @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, m, T):
        super().__init__()
        C = m["hidden_size"]
        self.tokens, self.positions = nn.Embedding(m["vocab_size"], C), nn.Embedding(m["max_position_embeddings"], C)
        self.blocks = nn.ModuleList(Block(C, m["num_attention_heads"]) for _ in range(m["num_hidden_layers"]))
        self.norm = nn.LayerNorm(C)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        self.register_buffer("mask", torch.triu(torch.full((T, T), float("-inf")), 1))

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h, self.mask)
        return F.cross_entropy((self.norm(h) @ self.tokens.weight.t()).view(y.numel(), -1), y.reshape(-1))


def blas_core():
    """Name of the processor that OpenBLAS chose its kernels for, or None."""
    for line in open("/proc/self/maps"):
        path = line.split()[-1]
        if "openblas" in path:
            library = ctypes.CDLL(path)
            library.openblas_get_corename.restype = ctypes.c_char_p
            return library.openblas_get_corename().decode()
    return None


def main():
    with open(args.config) as file:
        config = yaml.safe_load(file)
    model, tokens = config["model"]["model_config"], config["tokens"]
    if model["model_type"] != "gpt2":
        sys.exit(f"{args.config}: only gpt2 is written here, not {model['model_type']}")
    B, T, V = tokens["global_batch_size"], tokens["sequence_length"], model["vocab_size"]

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    net = GPT2(model, T)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    times = []
    for _ in range(args.steps + 1):
        batch = torch.randint(0, V, (B, T + 1))
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = net(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        loss = loss.item()
        times.append(time.perf_counter() - begin)

    step = statistics.median(times[1:])
    params = sum(p.numel() for p in net.parameters())
    flops = 6 * (params - net.positions.weight.numel()) + 12 * model["num_hidden_layers"] * model["hidden_size"] * T
    print(json.dumps({
        "program": "torch " + torch.__version__, "config": args.config, "threads": args.threads, "params": params,
        "step_ms": [round(1e3 * t, 2) for t in times[1:]], "step_ms_median": round(1e3 * step, 2),
        "tokens_per_s": round(B * T / step, 2), "flops_per_token": flops,
        "mfu_percent": round(100 * flops * B * T / step / (args.peak_gflops * 1e9), 2) if args.peak_gflops else None,
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "blas_core": blas_core(), "omp_wait_policy": os.environ["OMP_WAIT_POLICY"], "last_loss": round(loss, 4)}))


if __name__ == "__main__":
    main()
