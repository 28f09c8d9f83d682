#!/usr/bin/python3
"""Writes test/golden/hf/NAME/: tiny models in the folder layout of Hugging Face, with the logits that PyTorch computes.

    /usr/bin/python3 ref/make_hf_fixture.py test/golden/hf

Each folder: config.json, model.safetensors (or shards with an index), and logits.safetensors with ids [B,T], float64
logits [B,T,V] of the weights as stored, and struct ref_config in its metadata. The folders differ in the ways that
published models do; README.md lists them."""
import json
import os
import shutil
import sys

import torch

from make_vectors import LLAMA3, wanhe_config
from torch_models import inverse_frequencies, make_model, save_safetensors

B, T, SHARDS = 2, 12, 3

GPT2 = dict(activation_function="gelu_new", architectures=["GPT2LMHeadModel"], attn_pdrop=0.1, bos_token_id=66,
            embd_pdrop=0.1, eos_token_id=66, initializer_range=0.02, layer_norm_epsilon=1e-5, model_type="gpt2",
            n_ctx=20, n_embd=32, n_head=4, n_layer=2, n_positions=20, resid_pdrop=0.1, vocab_size=67)
LLAMA = dict(architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu", hidden_size=32,
             initializer_range=0.02, intermediate_size=48, max_position_embeddings=64, model_type="llama",
             num_attention_heads=4, num_hidden_layers=2, rms_norm_eps=1e-6, torch_dtype="float32", vocab_size=67)
QWEN2 = dict(architectures=["Qwen2ForCausalLM"], attention_dropout=0.0, bos_token_id=65, eos_token_id=66,
             hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=48,
             max_position_embeddings=64, max_window_layers=2, model_type="qwen2", num_attention_heads=4,
             num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=64,
             tie_word_embeddings=True, torch_dtype="bfloat16", use_sliding_window=False, vocab_size=67)

# What the keys that are left out mean: the defaults of transformers' configuration classes.
DEFAULTS = dict(rope_theta=10000.0, tie_word_embeddings=False, num_key_value_heads=4, n_inner=128)

# name: (config.json, dtype of the weights, prefix of all names)
FIXTURES = {
    "gpt2": (GPT2, torch.float32, ""),
    "gpt2-prefix-f16": ({**GPT2, "n_inner": 48, "torch_dtype": "float16"}, torch.float16, "transformer."),
    "llama": ({**LLAMA, "num_key_value_heads": 2, "head_dim": None, "rope_scaling": None, "pretraining_tp": 1,
               "attention_bias": False, "mlp_bias": False, "rope_theta": 10000.0, "tie_word_embeddings": False},
              torch.float32, ""),
    "llama3-tied": ({**LLAMA, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16,
                     "rope_theta": 500000.0, "rope_scaling": LLAMA3, "tie_word_embeddings": True}, torch.float32, ""),
    "llama-sharded": (LLAMA, torch.float32, ""),
    "qwen2-bf16": (QWEN2, torch.bfloat16, ""),
}


def buffers(config, name):
    """Tensors that are no weights but lie in many published files: GPT-2's causal mask, Llama's inverse frequencies."""
    for layer in range(2):
        if name == "gpt2":
            mask = torch.tril(torch.ones(config["n_positions"], config["n_positions"]))
            yield f"h.{layer}.attn.bias", mask[None, None]
        if name == "llama-sharded":
            yield f"model.layers.{layer}.self_attn.rotary_emb.inv_freq", inverse_frequencies(config, torch.float32)


def write_weights(folder, tensors):
    save_safetensors(f"{folder}/model.safetensors", tensors, {"format": "pt"})


def write_shards(folder, tensors):
    """Cut by count in alphabetical order, so that layers straddle files, with an index of what lies where."""
    names, weight_map = sorted(tensors), {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        part = names[len(names) * shard // SHARDS:len(names) * (shard + 1) // SHARDS]
        save_safetensors(f"{folder}/{file}", {n: tensors[n] for n in part}, {"format": "pt"})
        weight_map.update({n: file for n in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    write_json(f"{folder}/model.safetensors.index.json", dict(metadata=dict(total_size=total), weight_map=weight_map))


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2, sort_keys=True)
        f.write("\n")


def write(root, name, seed):
    config, dtype, prefix = FIXTURES[name]
    folder = f"{root}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    full = {**DEFAULTS, **config}
    model = make_model(full, seed).to(dtype)
    tensors = {prefix + n: p.detach().clone() for n, p in model.named_parameters()}
    tensors.update(buffers(full, name))
    (write_shards if name == "llama-sharded" else write_weights)(folder, tensors)
    write_json(f"{folder}/config.json", config)

    ids = torch.randint(0, full["vocab_size"], (B, T), generator=torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        logits = model.double()(ids)
    save_safetensors(f"{folder}/logits.safetensors", dict(ids=ids.int(), logits=logits),
                     {"config": json.dumps(wanhe_config(full))})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for index, fixture in enumerate(FIXTURES):
        write(sys.argv[1], fixture, 2000 + 10 * index)
