#include "ckpt/hf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name {
    const char *format;            /* %d is the layer */
    bool transposed, joined, bare; /* joined: with the parameters joined to it; bare: never has the prefix */
};

struct family {
    const char *prefix;
    struct name names[WH_P_COUNT]; /* format NULL: none, or part of a joined one */
};

/* Source: transformers modeling_gpt2.py (Conv1D stores [in, out]). */
static const struct family gpt2 = {
    "transformer.",
    {
        [WH_P_EMBED_TOKEN] = {"wte.weight"},
        [WH_P_EMBED_POSITION] = {"wpe.weight"},
        [WH_P_ATTN_NORM_GAIN] = {"h.%d.ln_1.weight"},
        [WH_P_ATTN_NORM_BIAS] = {"h.%d.ln_1.bias"},
        [WH_P_ATTN_Q] = {"h.%d.attn.c_attn.weight", .transposed = true, .joined = true},
        [WH_P_ATTN_Q_BIAS] = {"h.%d.attn.c_attn.bias", .joined = true},
        [WH_P_ATTN_O] = {"h.%d.attn.c_proj.weight", .transposed = true},
        [WH_P_ATTN_O_BIAS] = {"h.%d.attn.c_proj.bias"},
        [WH_P_MLP_NORM_GAIN] = {"h.%d.ln_2.weight"},
        [WH_P_MLP_NORM_BIAS] = {"h.%d.ln_2.bias"},
        [WH_P_MLP_UP] = {"h.%d.mlp.c_fc.weight", .transposed = true},
        [WH_P_MLP_UP_BIAS] = {"h.%d.mlp.c_fc.bias"},
        [WH_P_MLP_DOWN] = {"h.%d.mlp.c_proj.weight", .transposed = true},
        [WH_P_MLP_DOWN_BIAS] = {"h.%d.mlp.c_proj.bias"},
        [WH_P_FINAL_NORM_GAIN] = {"ln_f.weight"},
        [WH_P_FINAL_NORM_BIAS] = {"ln_f.bias"},
        [WH_P_HEAD] = {"lm_head.weight", .bare = true},
    },
};

/* Source: transformers modeling_llama.py, modeling_qwen2.py (Linear stores [out, in]). */
static const struct family llama = {
    "model.",
    {
        [WH_P_EMBED_TOKEN] = {"embed_tokens.weight"},
        [WH_P_ATTN_NORM_GAIN] = {"layers.%d.input_layernorm.weight"},
        [WH_P_ATTN_Q] = {"layers.%d.self_attn.q_proj.weight"},
        [WH_P_ATTN_K] = {"layers.%d.self_attn.k_proj.weight"},
        [WH_P_ATTN_V] = {"layers.%d.self_attn.v_proj.weight"},
        [WH_P_ATTN_Q_BIAS] = {"layers.%d.self_attn.q_proj.bias"},
        [WH_P_ATTN_K_BIAS] = {"layers.%d.self_attn.k_proj.bias"},
        [WH_P_ATTN_V_BIAS] = {"layers.%d.self_attn.v_proj.bias"},
        [WH_P_ATTN_O] = {"layers.%d.self_attn.o_proj.weight"},
        [WH_P_MLP_NORM_GAIN] = {"layers.%d.post_attention_layernorm.weight"},
        [WH_P_MLP_GATE] = {"layers.%d.mlp.gate_proj.weight"},
        [WH_P_MLP_UP] = {"layers.%d.mlp.up_proj.weight"},
        [WH_P_MLP_DOWN] = {"layers.%d.mlp.down_proj.weight"},
        [WH_P_FINAL_NORM_GAIN] = {"norm.weight"},
        [WH_P_HEAD] = {"lm_head.weight", .bare = true},
    },
};

static void describe(const struct family *f, const struct wh_param *q, struct wh_hf_tensor *t) {
    const struct name *n = &f->names[q->id];
    size_t prefix = n->bare ? 0 : strlen(f->prefix);
    *t = (struct wh_hf_tensor){
        .offset = q->offset, .rows = q->rows, .cols = q->cols, .elems = q->elems, .transposed = n->transposed};
    memcpy(t->name, f->prefix, prefix);
    t->short_name = t->name + prefix;
    snprintf(t->name + prefix, sizeof t->name - prefix, n->format, q->layer);
}

enum wh_status wh_hf_tensors(const struct wh_model *m, const struct wh_params *p, struct wh_hf_tensor **list,
                             size_t *count) {
    const struct family *f = m->family == WH_GPT2 ? &gpt2 : &llama;
    struct wh_hf_tensor *tensors = calloc(p->count, sizeof *tensors);
    size_t n = 0;
    bool open = false; /* the last tensor takes the parameters joined to it */
    if (!tensors) return WH_FAIL(WH_NOMEM, "no memory for a list of %zu tensors", p->count);
    for (size_t i = 0; i < p->count; i++) {
        const struct wh_param *q = &p->list[i];
        if (open && q->joined) {
            tensors[n - 1].rows += q->rows;
            tensors[n - 1].elems += q->elems;
            continue;
        }
        if (!f->names[q->id].format) {
            free(tensors);
            return WH_FAIL(WH_UNSUPPORTED, "a %s file has no place for %s", wh_family_name(m->family), q->name);
        }
        open = f->names[q->id].joined;
        describe(f, q, &tensors[n++]);
    }
    *list = tensors;
    *count = n;
    return WH_OK;
}

bool wh_hf_is_harmless(const char *name) {
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}
