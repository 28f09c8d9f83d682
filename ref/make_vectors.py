#!/usr/bin/python3
"""Writes test/golden/torch/NAME.safetensors: ten training steps of small models as PyTorch does them.

    /usr/bin/python3 ref/make_vectors.py test/golden/torch

What is in a file: README.md. Everything is seeded; the same PyTorch on the same kind of processor gives the same bytes,
others may differ in the last places of float32 results."""
import json
import sys

import torch
import torch.nn.functional as F

from torch_models import make_model, save_safetensors

B, T, STEPS = 4, 16, 10
TRAIN = dict(beta1=0.9, beta2=0.95, adam_eps=1e-8, weight_decay=0.1, clip=3.0, lr_peak=3e-3, lr_floor=3e-4,
             warmup_steps=3, decay_steps=9)


def gpt2(**changes):
    c = dict(model_type="gpt2", vocab_size=67, n_embd=32, n_inner=64, n_layer=2, n_head=4,
             n_positions=20, layer_norm_epsilon=1e-5)
    return {**c, **changes}


def llama(**changes):
    c = dict(model_type="llama", vocab_size=67, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=48, max_position_embeddings=32, rms_norm_eps=1e-5,
             rope_theta=10000.0, tie_word_embeddings=False)
    return {**c, **changes}


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=128)

# name: (configuration, whether sequences are packed documents that must not see each other)
MODELS = {
    "gpt2_tied": (gpt2(), False),
    "llama_gqa_untied": (llama(), False),
    "llama_gqa_tied_documents": (llama(tie_word_embeddings=True, vocab_size=71), True),
    "qwen2_bias": (llama(model_type="qwen2", rms_norm_eps=1e-6, num_key_value_heads=1, rope_theta=1000000.0), False),
    "llama3_scaling": (llama(rope_scaling=LLAMA3, rope_theta=500000.0, head_dim=16, num_attention_heads=3,
                             num_key_value_heads=1, intermediate_size=32), False),
}


def wanhe_config(c):
    """The fields of struct ref_config."""
    if c["model_type"] == "gpt2":
        C, H = c["n_embd"], c["n_head"]
        return dict(V=c["vocab_size"], C=C, L=c["n_layer"], H=H, Hkv=H, D=C // H, F=c["n_inner"],
                    max_position=c["n_positions"], layer_norm=1, learned_positions=1, gated=0, qkv_bias=1,
                    linear_bias=1, tied=1, norm_eps=c["layer_norm_epsilon"])
    C, H = c["hidden_size"], c["num_attention_heads"]
    out = dict(V=c["vocab_size"], C=C, L=c["num_hidden_layers"], H=H, Hkv=c["num_key_value_heads"],
               D=c.get("head_dim") or C // H, F=c["intermediate_size"], max_position=c["max_position_embeddings"],
               layer_norm=0, learned_positions=0, gated=1, qkv_bias=int(c["model_type"] == "qwen2"), linear_bias=0,
               tied=int(c["tie_word_embeddings"]), norm_eps=c["rms_norm_eps"], rope="plain", rope_theta=c["rope_theta"])
    s = c.get("rope_scaling")
    if s:
        out.update(rope="llama3", rope_factor=s["factor"], rope_low_freq=s["low_freq_factor"],
                   rope_high_freq=s["high_freq_factor"], rope_original_max=s["original_max_position_embeddings"])
    return out


LLAMA_LAYER = {"input_layernorm.weight": "attn.norm.gain", "self_attn.q_proj.weight": "attn.q.weight",
               "self_attn.k_proj.weight": "attn.k.weight", "self_attn.v_proj.weight": "attn.v.weight",
               "self_attn.q_proj.bias": "attn.q.bias", "self_attn.k_proj.bias": "attn.k.bias",
               "self_attn.v_proj.bias": "attn.v.bias", "self_attn.o_proj.weight": "attn.o.weight",
               "post_attention_layernorm.weight": "mlp.norm.gain", "mlp.gate_proj.weight": "mlp.gate.weight",
               "mlp.up_proj.weight": "mlp.up.weight", "mlp.down_proj.weight": "mlp.down.weight"}
GPT2_LAYER = {"ln_1.weight": "attn.norm.gain", "ln_1.bias": "attn.norm.bias", "attn.c_proj.weight": "attn.o.weight",
              "attn.c_proj.bias": "attn.o.bias", "ln_2.weight": "mlp.norm.gain", "ln_2.bias": "mlp.norm.bias",
              "mlp.c_fc.weight": "mlp.up.weight", "mlp.c_fc.bias": "mlp.up.bias",
              "mlp.c_proj.weight": "mlp.down.weight", "mlp.c_proj.bias": "mlp.down.bias"}
OUTSIDE = {"wte.weight": "embed.token.weight", "wpe.weight": "embed.position.weight", "ln_f.weight": "final.norm.gain",
           "ln_f.bias": "final.norm.bias", "model.embed_tokens.weight": "embed.token.weight",
           "model.norm.weight": "final.norm.gain", "lm_head.weight": "head.weight"}


def wanhe_names(name, t):
    """Yields (our name, tensor): Conv1D weights transposed, c_attn cut into q, k, v."""
    if name in OUTSIDE:
        yield OUTSIDE[name], t
        return
    parts = name.split(".")
    layer, inner = (parts[1], ".".join(parts[2:])) if parts[0] == "h" else (parts[2], ".".join(parts[3:]))
    if inner.startswith("attn.c_attn"):
        kind = inner.rsplit(".", 1)[1]
        for which, piece in zip("qkv", t.chunk(3, dim=-1)):
            yield f"layer.{layer}.attn.{which}.{kind}", piece.t() if kind == "weight" else piece
    elif parts[0] == "h":
        yield f"layer.{layer}.{GPT2_LAYER[inner]}", t.t() if t.dim() == 2 else t
    else:
        yield f"layer.{layer}.{LLAMA_LAYER[inner]}", t


def wanhe_tensors(prefix, named):
    return {prefix + ours: piece for name, t in named for ours, piece in wanhe_names(name, t)}


def make_batches(V, documents, seed):
    """ids, labels [STEPS,B,T]; -1 = ignored: a different share in each step, in step 3 one sequence whole, and in step 4
    all tokens but one. document_start [STEPS,B,T] if asked for."""
    g = torch.Generator().manual_seed(seed)
    text = torch.randint(0, V, (STEPS, B, T + 1), generator=g)
    text[:, :, 1::2] = (3 * text[:, :, :-1:2] + 1) % V  # something to learn
    ids, labels = text[:, :, :-1].clone(), text[:, :, 1:].clone()
    for step in range(STEPS):
        labels[step][torch.rand(B, T, generator=g) < 0.08 * step] = -1
    labels[2, 1] = -1
    labels[3] = -1
    labels[3, 2, 5] = 7
    starts = None
    if documents:
        begins = torch.rand(STEPS, B, T, generator=g) < 0.2
        starts = (begins * torch.arange(T)).cummax(dim=-1).values
    return ids, labels, starts


def learning_rate(t):
    c = TRAIN
    if t <= c["warmup_steps"]:
        return c["lr_peak"] * t / c["warmup_steps"]
    if t >= c["decay_steps"]:
        return c["lr_floor"]
    progress = torch.tensor((t - c["warmup_steps"]) / (c["decay_steps"] - c["warmup_steps"]), dtype=torch.float64)
    return c["lr_floor"] + 0.5 * (c["lr_peak"] - c["lr_floor"]) * (1 + torch.cos(torch.pi * progress).item())


def train(model, batches, round_weights):
    """Ten steps. round_weights: store weights as float32 after each update though the arithmetic is float64, which is
    what ref/ does; then the two can be compared far below float32's rounding."""
    decayed = [p for p in model.parameters() if p.dim() == 2]
    other = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=TRAIN["weight_decay"]),
                                   dict(params=other, weight_decay=0.0)], lr=1.0,
                                  betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["adam_eps"])
    out = dict(loss=[], norm=[])
    for step, (ids, labels, starts) in enumerate(batches):
        logits = model(ids, starts)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach()
            out["grads"] = [(name, p.grad.clone()) for name, p in model.named_parameters()]
        out["loss"].append(loss.item())
        out["norm"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip"]).item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1)
        optimizer.step()
        if round_weights:
            with torch.no_grad():
                for p in model.parameters():
                    p.copy_(p.float().double())
    out["weights"] = [(name, p.detach()) for name, p in model.named_parameters()]
    return out


def write(folder, name, seed):
    config, documents = MODELS[name]
    ids, labels, starts = make_batches(config["vocab_size"], documents, seed + 1)
    batches = [(ids[s], labels[s], None if starts is None else starts[s]) for s in range(STEPS)]
    single, double = make_model(config, seed), make_model(config, seed).double()
    tensors = wanhe_tensors("weight.", [(n, p.detach().clone()) for n, p in single.named_parameters()])
    in_double, in_single = train(double, batches, True), train(single, batches, False)

    tensors["ids"], tensors["labels"] = ids.int(), labels.int()
    if starts is not None:
        tensors["document_start"] = starts.int()
    for key in "loss", "norm":
        tensors[key + ".f64"] = torch.tensor(in_double[key], dtype=torch.float64)
        tensors[key + ".f32"] = torch.tensor(in_single[key], dtype=torch.float64)
    tensors["logits"] = in_double["logits"]
    tensors.update(wanhe_tensors("grad.", [(n, g.float()) for n, g in in_double["grads"]]))
    tensors.update(wanhe_tensors("final.", [(n, w.float()) for n, w in in_double["weights"]]))
    settings = {**wanhe_config(config), **TRAIN, "init_std": 0.02}
    save_safetensors(f"{folder}/{name}.safetensors", tensors, {"config": json.dumps(settings), "seed": str(seed)})
    print(name, "norms", " ".join(f"{n:.3g}" for n in in_double["norm"]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for index, model_name in enumerate(MODELS):
        write(sys.argv[1], model_name, 1000 + 10 * index)
