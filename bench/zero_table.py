#!/usr/bin/env python3
"""Measured memory and traffic of data-parallel ranks beside the formulas, as the tables of docs/zero.md.

    bench/zero_table.py            # a Llama of 2.9 million parameters, 4 ranks, ZeRO 0 to 3; some seconds

Bytes are those of memory.json and communication.json of every rank; they are the same on every machine. Uses ./wanhe, or
$WANHE. test/e2e/zero_table.sh holds the page to this output.
"""
import json
import os
import subprocess
import sys
import tempfile

RANKS = 4
STEPS = 3
L, C, V, BATCH, T = 8, 128, 4096, 8, 64
MODEL = [f"model.model_config.{name}={value}" for name, value in (
    ("hidden_size", C), ("intermediate_size", 384), ("num_hidden_layers", L), ("num_attention_heads", 4),
    ("num_key_value_heads", 2), ("vocab_size", V), ("tie_word_embeddings", "false"))]
BATCHES = [f"tokens.global_batch_size={BATCH}", f"tokens.micro_batch_size={BATCH // RANKS}",
           f"tokens.sequence_length={T}", f"tokens.train_steps={STEPS}", f"parallelism.dp={RANKS}", "threads=1",
           "optimizer.learning_rate_scheduler.lr_warmup_steps=1"]
BF16 = ["model.dtype=bfloat16", "optimizer.accumulate_grad_in_fp32=false"]


def train(folder, sets):
    """Returns for each rank its rows of memory and of communication, and the number of parameters."""
    wanhe = os.environ.get("WANHE", "./wanhe")
    command = [wanhe, "train", "examples/tiny-llama.yaml", "--out", folder, "--json"]
    for one in MODEL + BATCHES + sets:
        command += ["--set", one]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    ranks = []
    for rank in range(RANKS):
        at = folder if rank == 0 else f"{folder}/ranks/{rank}"
        memory = {row["row"]: row["measured_bytes"] for row in json.load(open(f"{at}/memory.json"))["rows"]}
        traffic = {row["row"]: row["sent_bytes"] / STEPS for row in json.load(open(f"{at}/communication.json"))["rows"]}
        ranks.append((memory, traffic))
    newest = open(f"{folder}/checkpoints/latest").read().strip()
    with open(f"{folder}/checkpoints/{newest}/weights.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return ranks, sum(numbers(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def numbers(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def bytes_of(value):
    return f"{value:,.0f}"


def memory_table(stages, params):
    formulas = ("16 P", "4 P + 12 P / N", "2 P + 14 P / N", "16 P / N")
    row("stage", "formula", "bytes", "states of ranks 0 .. 3", "largest / formula", "gathered", "sums")
    row(*["---"] + ["---:"] * 6)
    for stage, ranks in enumerate(stages):
        whole, shared = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
        formula = whole * params + shared * params / RANKS
        states = [sum(memory[f"memory.{name}"] for name in ("weights", "grads", "master", "adam.m", "adam.v"))
                  for memory, _ in ranks]
        row(str(stage), formulas[stage], bytes_of(formula), ", ".join(map(bytes_of, states)),
            f"{max(states) / formula:.4f}", bytes_of(ranks[0][0]["memory.gathered"]),
            bytes_of(ranks[0][0]["memory.grads.sums"]))


def traffic_table(stages, params, weight_bytes):
    part = (RANKS - 1) / RANKS * params
    row("stage", "formula", "bytes", "gradients", "weights", "embedded tokens", "rest", "sum", "sum / formula")
    row(*["---"] + ["---:"] * 8)
    for stage, ranks in enumerate(stages):
        gathers = (0, 1, 1, 2)[stage]
        formula = part * (4 * (2 if stage == 0 else 1) + gathers * weight_bytes)
        words = ("2 G", "G + W", "G + W", "G + 2 W")[stage]
        sent = {"grad": 0, "weight": 0, "embed": 0, "rest": 0}
        for _, traffic in ranks:
            for name, value in traffic.items():
                kind = name.split(".")[1]
                sent[kind if kind in sent else "rest"] += value / RANKS
        row(str(stage), words, bytes_of(formula), *(bytes_of(value) for value in sent.values()),
            bytes_of(sum(sent.values())), f"{sum(sent.values()) / formula:.3f}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = f"{folder}/text.txt"
        with open(text, "wb") as file:
            file.write(subprocess.run(["tools/tiny_text.sh", "65536"], capture_output=True, check=True).stdout)
        runs = {}
        for name, sets in (("bf16", BF16), ("fp32", [])):
            runs[name] = []
            for stage in range(4):
                ranks, params = train(f"{folder}/{name}{stage}",
                                      sets + [f"optimizer.zero_stage={stage}", f"data.train={text}"])
                runs[name].append(ranks)
    print(f"P = {params:,}, N = {RANKS}, {BATCH} x {T} tokens\n")
    print("memory, bf16 weights and gradients\n")
    memory_table(runs["bf16"], params)
    for name, weight_bytes in (("fp32", 4), ("bf16", 2)):
        print(f"\nbytes that a rank sends in a step, {name} weights\n")
        traffic_table(runs[name], params, weight_bytes)


if __name__ == "__main__":
    main()
