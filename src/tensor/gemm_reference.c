/* The contract as code, and a set of kernels in plain C that goes through the same blocking as the fast ones. */
#include <math.h>

#include "base/status.h"
#include "base/tree.h"
#include "tensor/gemm_finish.h"

static float in_at(const struct wh_gemm_in *x, size_t i, size_t j) {
    return wh_gemm_load(x->data, x->dtype, x->transposed ? j * x->ld + i : i * x->ld + j);
}

/* Chains over the grains of element (i, j), joined as base/tree.h says. */
static float element(const struct wh_gemm *g, size_t i, size_t j) {
    const struct wh_gemm_part whole = {0, (uint32_t)g->k, true};
    const struct wh_gemm_part *parts = g->parts ? g->parts : &whole;
    size_t count = g->parts ? g->part_count : 1;
    uint32_t grains = 0, grain = 0;
    for (size_t p = 0; p < count; p++) grains += parts[p].ends_grain;

    float stack[WH_TREE_DEPTH_MAX];
    unsigned height = 0;
    float chain = g->accumulate ? ((const float *)g->c.data)[i * g->c.ld + j] : 0.0f;
    for (size_t p = 0; p < count; p++) {
        for (size_t k = parts[p].begin; k < (size_t)parts[p].begin + parts[p].length; k++)
            chain = fmaf(in_at(&g->a, i, k), in_at(&g->b, k, j), chain);
        if (!parts[p].ends_grain) continue;
        for (unsigned m = wh_tree_merges(grain++, grains); m > 0; m--) chain = stack[--height] + chain;
        stack[height++] = chain;
        chain = 0.0f;
    }
    return stack[0];
}

void wh_gemm_reference(const struct wh_gemm *g) {
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            float v = element(g, i, j);
            if (g->bias) v = wh_gemm_load(g->bias, g->bias_dtype, j) + v;
            if (g->pre.data) wh_gemm_store(g->pre.data, g->pre.dtype, i * g->pre.ld + j, v);
            if (g->activation == WH_GEMM_GELU_TANH) wh_vec_select("reference")->gelu(&v, &v, 1);
            if (g->residual.data) v = in_at(&g->residual, i, j) + v;
            wh_gemm_store(g->c.data, g->c.dtype, i * g->c.ld + j, v);
        }
}

enum { MR = 4, NR = 8 };

static void run_element(const struct wh_gemm_tile *t, size_t i, size_t j) {
    const float *a = t->a, *b = t->b;
    float acc = t->start ? t->start[i * t->start_ld + j] : 0.0f;
    for (size_t n = 0; n < t->chain_count; n++, acc = 0.0f) {
        const struct wh_gemm_chain *c = &t->chains[n];
        for (size_t k = 0; k < c->k; k++, a += MR, b += t->b_ld) acc = fmaf(a[i], b[j], acc);
        for (unsigned h = c->height; h-- > wh_gemm_chain_out(c);)
            acc = (h < c->old ? t->arena : t->stack)[(h * MR + i) * NR + j] + acc;
        if (n + 1 == t->chain_count)
            t->out[i * t->out_ld + j] = acc;
        else
            (c->outlives ? t->arena : t->stack)[(wh_gemm_chain_out(c) * MR + i) * NR + j] = acc;
    }
}

static void tile(const struct wh_gemm_tile *t) {
    for (size_t i = 0; i < MR; i++)
        for (size_t j = 0; j < t->cols; j++) run_element(t, i, j);
}

static void pack(const struct wh_gemm_source *x, const struct wh_gemm_pack *p) {
    float *panel = p->out;
    for (size_t r0 = 0; r0 < p->rows; r0 += p->width, panel += p->panel_stride)
        for (size_t k = 0; k < p->count; k++)
            for (size_t r = 0; r < p->width; r++) {
                size_t row = p->r + r0 + r, column = p->k + k;
                size_t i = x->along ? column * x->ld + row : row * x->ld + column;
                panel[k * p->width + r] = r0 + r < p->rows ? wh_gemm_load(x->data, x->dtype, i) : 0.0f;
            }
}

/* Small blocks: tests reach every border with small products. */
const struct wh_gemm_kernel wh_gemm_kernel_reference = {
    .name = "reference",
    .mr = MR,
    .nr = NR,
    .kc = 32,
    .mc = 16,
    .nc = 48,
    .mc_most = 24,
    .in_place_rows = 8,
    .crowded_kc = 16,
    .tile = tile,
    .pack = pack,
    .finish = gemm_finish,
};
