"""Small GPT-2, Llama and Qwen2 in plain PyTorch with the parameter names and layouts of Hugging Face transformers, and a
safetensors writer. Independent of the C code on purpose: what both agree on is hardly a shared mistake.

They run in the dtype of their parameters (float32 or float64)."""
import json
import math

import torch
from torch import nn
import torch.nn.functional as F


def allowed_keys(T, document_start):
    """[B or 1, 1, T, T] bool: query i may look at key j. document_start [B, T] or None."""
    i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    causal = (j <= i)[None, None]
    if document_start is None:
        return causal
    return causal & (j[None, None] >= document_start[:, None, :, None])


def attend(q, k, v, allowed):
    """q [B,H,T,D], k and v [B,Hkv,T,D] -> [B,T,H*D]"""
    B, H, T, D = q.shape
    k = k.repeat_interleave(H // k.shape[1], dim=1)
    v = v.repeat_interleave(H // v.shape[1], dim=1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(D)).masked_fill(~allowed, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * D)


def heads(x, count):
    B, T, width = x.shape
    return x.view(B, T, count, width // count).transpose(1, 2)


class Conv1D(nn.Module):
    """GPT-2's linear layer: the weight is [in, out]."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n_head = c["n_head"]
        self.c_attn = Conv1D(c["n_embd"], 3 * c["n_embd"])
        self.c_proj = Conv1D(c["n_embd"], c["n_embd"])

    def forward(self, x, allowed):
        q, k, v = (heads(y, self.n_head) for y in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(attend(q, k, v, allowed))


class GPT2MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        inner = c.get("n_inner") or 4 * c["n_embd"]
        self.c_fc = Conv1D(c["n_embd"], inner)
        self.c_proj = Conv1D(inner, c["n_embd"])

    def forward(self, x):
        h = self.c_fc(x)
        return self.c_proj(0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h.pow(3)))))


class GPT2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])
        self.attn = GPT2Attention(c)
        self.ln_2 = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])
        self.mlp = GPT2MLP(c)

    def forward(self, x, allowed):
        x = x + self.attn(self.ln_1(x), allowed)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """State names: wte.weight, h.0.attn.c_attn.weight, ...; the head is wte."""

    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c["vocab_size"], c["n_embd"])
        self.wpe = nn.Embedding(c["n_positions"], c["n_embd"])
        self.h = nn.ModuleList(GPT2Block(c) for _ in range(c["n_layer"]))
        self.ln_f = nn.LayerNorm(c["n_embd"], eps=c["layer_norm_epsilon"])

    def forward(self, ids, document_start=None):
        T = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(T))
        allowed = allowed_keys(T, document_start)
        for block in self.h:
            x = block(x, allowed)
        return self.ln_f(x) @ self.wte.weight.t()


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def inverse_frequencies(c, dtype):
    """[head_dim/2]; the llama3 rule as transformers' _compute_llama3_parameters states it."""
    D = head_dim(c)
    inv = 1.0 / (c["rope_theta"] ** (torch.arange(0, D, 2).to(dtype) / D))
    s = c.get("rope_scaling")
    if s is None:
        return inv
    assert s["rope_type"] == "llama3"
    factor, low, high = s["factor"], s["low_freq_factor"], s["high_freq_factor"]
    old = s["original_max_position_embeddings"]
    wavelength = 2 * math.pi / inv
    scaled = torch.where(wavelength > old / low, inv / factor, inv)
    smooth = (old / wavelength - low) / (high - low)
    medium = ~(wavelength < old / high) & ~(wavelength > old / low)
    return torch.where(medium, (1 - smooth) * scaled / factor + smooth * scaled, scaled)


def rotary(x, inv):
    """x [B,heads,T,D]; pairs (i, i + D/2) as transformers' rotate_half."""
    angle = torch.arange(x.shape[2]).to(x.dtype)[:, None] * inv[None, :]
    cos, sin = (torch.cat((f, f), dim=-1) for f in (angle.cos(), angle.sin()))
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        C, D, bias = c["hidden_size"], head_dim(c), c["model_type"] == "qwen2"
        self.n_head, self.n_kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj = nn.Linear(C, self.n_head * D, bias=bias)
        self.k_proj = nn.Linear(C, self.n_kv * D, bias=bias)
        self.v_proj = nn.Linear(C, self.n_kv * D, bias=bias)
        self.o_proj = nn.Linear(self.n_head * D, C, bias=False)

    def forward(self, x, allowed, inv):
        q = rotary(heads(self.q_proj(x), self.n_head), inv)
        k = rotary(heads(self.k_proj(x), self.n_kv), inv)
        return self.o_proj(attend(q, k, heads(self.v_proj(x), self.n_kv), allowed))


class LlamaMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = LlamaAttention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = LlamaMLP(c)

    def forward(self, x, allowed, inv):
        x = x + self.self_attn(self.input_layernorm(x), allowed, inv)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaBody(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(LlamaLayer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])


class Llama(nn.Module):
    """State names: model.embed_tokens.weight, model.layers.0.self_attn.q_proj.weight, ..., lm_head.weight (not if tied)."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.model = LlamaBody(c)
        if not c["tie_word_embeddings"]:
            self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    def forward(self, ids, document_start=None):
        x = self.model.embed_tokens(ids)
        inv = inverse_frequencies(self.c, x.dtype)
        allowed = allowed_keys(ids.shape[1], document_start)
        for layer in self.model.layers:
            x = layer(x, allowed, inv)
        head = self.model.embed_tokens if self.c["tie_word_embeddings"] else self.lm_head
        return self.model.norm(x) @ head.weight.t()


def is_norm_gain(name):
    return "norm" in name or ".ln_" in name or name.startswith("ln_f")


def make_model(config, seed, matrix_std=0.15):
    """float32 model with seeded weights. Wide on purpose: gains around 1, biases away from 0, sharp softmaxes, so that
    no term of a gradient is too small to be seen."""
    model = GPT2(config) if config["model_type"] == "gpt2" else Llama(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("bias"):
                p.copy_(0.1 * noise)
            elif p.dim() == 1:
                assert is_norm_gain(name), name
                p.copy_(1.0 + 0.1 * noise)
            else:
                p.copy_(matrix_std * noise)
    return model


DTYPE_NAMES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16",
               torch.int32: "I32", torch.bool: "BOOL"}


def tensor_bytes(t):
    t = t.detach().contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()


def save_safetensors(path, tensors, metadata):
    """Little-endian u64 header length, JSON header padded with spaces to 8, data. All metadata values are strings."""
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        raw = tensor_bytes(t)
        header[name] = {"dtype": DTYPE_NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
