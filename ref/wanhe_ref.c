/* A transformer and its training step in one file; see wanhe_ref.h for what it is for and README.md for a tour.
 *
 * Shapes stand beside every pointer. Dimension letters:
 *   B sequences   T positions   N = B*T tokens   C hidden   H heads   Hkv key-value heads   D head size
 *   F feed-forward width   V vocabulary   L layers
 *
 * One rule for every X_backward: gradients of inputs and of parameters are *added* to what is there, because an input
 * may be used more than once. The caller clears them first. "dx" is the derivative of the loss by x, shaped as x.
 *
 * Sections: 1 helpers  2 parameters  3 activations  4 linear  5 norms  6 rotary  7 attention  8 feed-forward
 *           9 embedding and loss  10 the model  11 optimizer  */
#include "wanhe_ref.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

/* ------------------------------------------------- 1. helpers ------------------------------------------------- */

static void *zeroed(size_t count, size_t bytes) {
    void *p = calloc(count ? count : 1, bytes);
    assert(p);
    return p;
}

/* (Re)allocates *p as `count` doubles, all 0. */
static void renew(double **p, size_t count) {
    free(*p);
    *p = zeroed(count, sizeof **p);
}

static void clear(double *p, size_t count) { memset(p, 0, count * sizeof *p); }

static double dot(const double *a, const double *b, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* SplitMix64 (Steele, Lea, Flood 2014), then Box-Muller for a normal number. */
static double uniform(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53; /* in (0, 1] */
}

static double normal(uint64_t *state) {
    double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(2.0 * PI * uniform(state));
}

/* ------------------------------------------------ 2. parameters ------------------------------------------------ */

/* Parameters of a layer (NULL: this model has no such tensor) and its activations of the last forward. */
struct layer {
    struct ref_tensor *norm1_gain, *norm1_bias; /* [C] */
    struct ref_tensor *wq, *bq;                 /* [H*D, C]    [H*D] */
    struct ref_tensor *wk, *bk;                 /* [Hkv*D, C]  [Hkv*D] */
    struct ref_tensor *wv, *bv;                 /* [Hkv*D, C]  [Hkv*D] */
    struct ref_tensor *wo, *bo;                 /* [C, H*D]    [C] */
    struct ref_tensor *norm2_gain, *norm2_bias; /* [C] */
    struct ref_tensor *w_gate;                  /* [F, C] */
    struct ref_tensor *w_up, *b_up;             /* [F, C]      [F] */
    struct ref_tensor *w_down, *b_down;         /* [C, F]      [C] */

    double *x;       /* [N, C]        what comes in: the residual stream */
    double *normed;  /* [N, C]        norm1(x) */
    double *q;       /* [N, H, D]     rotated */
    double *k, *v;   /* [N, Hkv, D]   k rotated */
    double *p;       /* [B, H, T, T]  attention probabilities, 0 where masked */
    double *o;       /* [N, H, D]     p v */
    double *y;       /* [N, C]        x + wo o: the residual stream between attention and feed-forward */
    double *normed2; /* [N, C]        norm2(y) */
    double *gate;    /* [N, F]        gated models only */
    double *up;      /* [N, F] */
    double *act;     /* [N, F]        silu(gate) * up, or gelu(up) */
};

struct ref {
    struct ref_config config;
    uint64_t random; /* state of the generator for initial weights */

    struct ref_tensor *tensors; /* [count], in the order of the parameter table */
    int count;
    struct ref_tensor *embed_token;             /* [V, C] */
    struct ref_tensor *embed_position;          /* [max_position, C] or NULL */
    struct layer *layers;                       /* [L] */
    struct ref_tensor *final_gain, *final_bias; /* [C] */
    struct ref_tensor *head;                    /* [V, C]; the same tensor as embed_token if tied */

    int B, T;          /* sizes of the arrays below and of those in the layers */
    double *cos, *sin; /* [T, D/2] rotary table */
    double *x;         /* [N, C]   residual stream behind the last layer */
    double *normed;    /* [N, C]   final norm of it */
    double *logits;    /* [N, V] */

    /* gradients of activations; those inside a layer are used by one layer after the other */
    double *dlogits;            /* [N, V] */
    double *dx;                 /* [N, C]  of the residual stream */
    double *dnormed;            /* [N, C] */
    double *dq, *dk, *dv, *d_o; /* as q, k, v, o */
    double *dgate, *dup, *dact; /* [N, F] */
};

static struct ref_tensor *add(struct ref *r, int layer, const char *name, int rows, int cols) {
    struct ref_tensor *t = &r->tensors[r->count++];
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "layer.%d.%s", layer, name);
    t->rows = rows, t->cols = cols, t->elems = (long)rows * cols;
    t->w = zeroed((size_t)t->elems, sizeof *t->w);
    t->g = zeroed((size_t)t->elems, sizeof *t->g);
    t->m = zeroed((size_t)t->elems, sizeof *t->m);
    t->v = zeroed((size_t)t->elems, sizeof *t->v);
    return t;
}

static struct ref_tensor *add_matrix(struct ref *r, int layer, const char *name, int rows, int cols, double std) {
    struct ref_tensor *t = add(r, layer, name, rows, cols);
    t->decay = 1;
    for (long i = 0; i < t->elems; i++) t->w[i] = (float)(std * normal(&r->random));
    return t;
}

static struct ref_tensor *add_vector(struct ref *r, int layer, const char *name, int rows, double value) {
    struct ref_tensor *t = add(r, layer, name, rows, 1);
    for (long i = 0; i < t->elems; i++) t->w[i] = (float)value;
    return t;
}

static void add_layer(struct ref *r, int n) {
    const struct ref_config *c = &r->config;
    struct layer *l = &r->layers[n];
    int q_rows = c->H * c->D, kv_rows = c->Hkv * c->D;
    double std = c->init_std, residual_std = c->init_std / sqrt(2.0 * c->L);

    l->norm1_gain = add_vector(r, n, "attn.norm.gain", c->C, 1.0);
    if (c->layer_norm) l->norm1_bias = add_vector(r, n, "attn.norm.bias", c->C, 0.0);
    l->wq = add_matrix(r, n, "attn.q.weight", q_rows, c->C, std);
    l->wk = add_matrix(r, n, "attn.k.weight", kv_rows, c->C, std);
    l->wv = add_matrix(r, n, "attn.v.weight", kv_rows, c->C, std);
    if (c->qkv_bias) {
        l->bq = add_vector(r, n, "attn.q.bias", q_rows, 0.0);
        l->bk = add_vector(r, n, "attn.k.bias", kv_rows, 0.0);
        l->bv = add_vector(r, n, "attn.v.bias", kv_rows, 0.0);
    }
    l->wo = add_matrix(r, n, "attn.o.weight", c->C, q_rows, residual_std);
    if (c->linear_bias) l->bo = add_vector(r, n, "attn.o.bias", c->C, 0.0);

    l->norm2_gain = add_vector(r, n, "mlp.norm.gain", c->C, 1.0);
    if (c->layer_norm) l->norm2_bias = add_vector(r, n, "mlp.norm.bias", c->C, 0.0);
    if (c->gated) l->w_gate = add_matrix(r, n, "mlp.gate.weight", c->F, c->C, std);
    l->w_up = add_matrix(r, n, "mlp.up.weight", c->F, c->C, std);
    if (c->linear_bias) l->b_up = add_vector(r, n, "mlp.up.bias", c->F, 0.0);
    l->w_down = add_matrix(r, n, "mlp.down.weight", c->C, c->F, residual_std);
    if (c->linear_bias) l->b_down = add_vector(r, n, "mlp.down.bias", c->C, 0.0);
}

struct ref *ref_new(const struct ref_config *config, uint64_t seed) {
    const struct ref_config *c = config;
    assert(c->V > 0 && c->C > 0 && c->L > 0 && c->H > 0 && c->D > 0 && c->F > 0 && c->max_position > 0);
    assert(c->Hkv > 0 && c->H % c->Hkv == 0 && (c->learned_positions || c->D % 2 == 0));
    struct ref *r = zeroed(1, sizeof *r);
    r->config = *config;
    r->random = seed;
    r->tensors = zeroed(5 + 17 * (size_t)c->L, sizeof *r->tensors); /* the most that a model can have */
    r->layers = zeroed((size_t)c->L, sizeof *r->layers);

    r->embed_token = add_matrix(r, -1, "embed.token.weight", c->V, c->C, c->init_std);
    if (c->learned_positions)
        r->embed_position = add_matrix(r, -1, "embed.position.weight", c->max_position, c->C, c->init_std);
    for (int n = 0; n < c->L; n++) add_layer(r, n);
    r->final_gain = add_vector(r, -1, "final.norm.gain", c->C, 1.0);
    if (c->layer_norm) r->final_bias = add_vector(r, -1, "final.norm.bias", c->C, 0.0);
    r->head = c->tied ? r->embed_token : add_matrix(r, -1, "head.weight", c->V, c->C, c->init_std);
    return r;
}

struct ref_tensor *ref_tensor_at(struct ref *r, int index) {
    return index >= 0 && index < r->count ? &r->tensors[index] : NULL;
}

struct ref_tensor *ref_tensor_find(struct ref *r, const char *name) {
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->tensors[i].name, name) == 0) return &r->tensors[i];
    return NULL;
}

float *ref_param(struct ref *r, const char *name) {
    struct ref_tensor *t = ref_tensor_find(r, name);
    return t ? t->w : NULL;
}

double *ref_grad(struct ref *r, const char *name) {
    struct ref_tensor *t = ref_tensor_find(r, name);
    return t ? t->g : NULL;
}

/* ----------------------------------------------- 3. activations ----------------------------------------------- */

/* Makes room for B sequences of T tokens. */
static void reserve(struct ref *r, int B, int T) {
    const struct ref_config *c = &r->config;
    assert(B > 0 && T > 0 && T <= c->max_position);
    if (B == r->B && T == r->T) return;
    r->B = B, r->T = T;
    size_t N = (size_t)B * T, q = (size_t)c->H * c->D, kv = (size_t)c->Hkv * c->D;
    size_t C = c->C, F = c->F, V = c->V;

    for (int n = 0; n < c->L; n++) {
        struct layer *l = &r->layers[n];
        renew(&l->x, N * C), renew(&l->normed, N * C), renew(&l->y, N * C), renew(&l->normed2, N * C);
        renew(&l->q, N * q), renew(&l->k, N * kv), renew(&l->v, N * kv), renew(&l->o, N * q);
        renew(&l->p, N * c->H * T);
        renew(&l->gate, N * F), renew(&l->up, N * F), renew(&l->act, N * F);
    }
    renew(&r->cos, (size_t)T * (c->D / 2)), renew(&r->sin, (size_t)T * (c->D / 2));
    renew(&r->x, N * C), renew(&r->normed, N * C), renew(&r->logits, N * V);
    renew(&r->dlogits, N * V), renew(&r->dx, N * C), renew(&r->dnormed, N * C);
    renew(&r->dq, N * q), renew(&r->dk, N * kv), renew(&r->dv, N * kv), renew(&r->d_o, N * q);
    renew(&r->dgate, N * F), renew(&r->dup, N * F), renew(&r->dact, N * F);
}

void ref_free(struct ref *r) {
    if (!r) return;
    for (int i = 0; i < r->count; i++) {
        struct ref_tensor *t = &r->tensors[i];
        free(t->w), free(t->g), free(t->m), free(t->v);
    }
    for (int n = 0; n < r->config.L; n++) {
        struct layer *l = &r->layers[n];
        free(l->x), free(l->normed), free(l->q), free(l->k), free(l->v), free(l->p), free(l->o);
        free(l->y), free(l->normed2), free(l->gate), free(l->up), free(l->act);
    }
    free(r->cos), free(r->sin), free(r->x), free(r->normed), free(r->logits);
    free(r->dlogits), free(r->dx), free(r->dnormed), free(r->dq), free(r->dk), free(r->dv), free(r->d_o);
    free(r->dgate), free(r->dup), free(r->dact);
    free(r->tensors), free(r->layers), free(r);
}

/* -------------------------------------------------- 4. linear -------------------------------------------------- */

/* y = x W^T + bias.   x [N, in]   W [out, in]   bias [out] or NULL   y [N, out] */
static void linear_forward(double *y, const double *x, const struct ref_tensor *W, const struct ref_tensor *bias,
                           int N) {
    int out = W->rows, in = W->cols;
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < out; o++) {
            const double *x_row = x + (size_t)n * in;
            const float *w_row = W->w + (size_t)o * in;
            double sum = bias ? bias->w[o] : 0.0;
            for (int i = 0; i < in; i++) sum += x_row[i] * w_row[i];
            y[(size_t)n * out + o] = sum;
        }
    }
}

/* dx += dy W     dW += dy^T x     dbias += sum over tokens of dy */
static void linear_backward(double *dx, struct ref_tensor *W, struct ref_tensor *bias, const double *dy,
                            const double *x, int N) {
    int out = W->rows, in = W->cols;
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < out; o++) {
            const double *x_row = x + (size_t)n * in;
            const float *w_row = W->w + (size_t)o * in;
            double *dx_row = dx + (size_t)n * in, *dw_row = W->g + (size_t)o * in;
            double d = dy[(size_t)n * out + o];
            for (int i = 0; i < in; i++) dx_row[i] += d * w_row[i];
            for (int i = 0; i < in; i++) dw_row[i] += d * x_row[i];
            if (bias) bias->g[o] += d;
        }
    }
}

/* --------------------------------------------------- 5. norms --------------------------------------------------- */

/* Both norms are y = gain * (x - mean) * scale + bias. LayerNorm: scale = 1/sqrt(variance + eps). RMSNorm: mean 0 and
 * scale = 1/sqrt(mean of squares + eps), no bias: the same formulas with the mean left out. */
static void norm_statistics(const struct ref_config *c, const double *x, double *mean, double *scale) {
    double sum = 0.0, squares = 0.0;
    if (c->layer_norm)
        for (int i = 0; i < c->C; i++) sum += x[i];
    *mean = sum / c->C;
    for (int i = 0; i < c->C; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 1.0 / sqrt(squares / c->C + c->norm_eps);
}

/* x, y [N, C]   gain [C]   bias [C] or NULL */
static void norm_forward(const struct ref_config *c, double *y, const double *x, const struct ref_tensor *gain,
                         const struct ref_tensor *bias, int N) {
    for (int n = 0; n < N; n++, x += c->C, y += c->C) {
        double mean, scale;
        norm_statistics(c, x, &mean, &scale);
        for (int i = 0; i < c->C; i++) y[i] = gain->w[i] * (x[i] - mean) * scale + (bias ? bias->w[i] : 0.0);
    }
}

/* With h = (x - mean) * scale and dh = dy * gain, both seen as vectors over C:
 *     dx += scale * (dh - average(dh) - h * average(dh * h))
 * where average(dh) comes from the mean's dependence on x, so RMSNorm has none. */
static void norm_backward(const struct ref_config *c, double *dx, struct ref_tensor *gain, struct ref_tensor *bias,
                          const double *dy, const double *x, int N) {
    for (int n = 0; n < N; n++, x += c->C, dx += c->C, dy += c->C) {
        double mean, scale, average_dh = 0.0, average_dh_h = 0.0;
        norm_statistics(c, x, &mean, &scale);
        for (int i = 0; i < c->C; i++) {
            double h = (x[i] - mean) * scale, dh = dy[i] * gain->w[i];
            gain->g[i] += dy[i] * h;
            if (bias) bias->g[i] += dy[i];
            if (c->layer_norm) average_dh += dh / c->C;
            average_dh_h += dh * h / c->C;
        }
        for (int i = 0; i < c->C; i++) {
            double h = (x[i] - mean) * scale, dh = dy[i] * gain->w[i];
            dx[i] += scale * (dh - average_dh - h * average_dh_h);
        }
    }
}

/* -------------------------------------------------- 6. rotary -------------------------------------------------- */

/* Llama 3's scaling by wavelength: longer than original_max / low_freq: stretched by the factor; shorter than
 * original_max / high_freq: kept; between the two: blended. Source: Hugging Face, modeling_rope_utils. */
double ref_inverse_frequency(const struct ref_config *c, int i) {
    double frequency = pow(c->rope_theta, -2.0 * i / c->D);
    if (c->rope == REF_ROPE_PLAIN) return frequency;
    if (c->rope == REF_ROPE_LINEAR) return frequency / c->rope_factor;

    double turns = c->rope_original_max * frequency / (2.0 * PI); /* within the original context */
    double keep = (turns - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    if (keep < 0.0) keep = 0.0;
    if (keep > 1.0) keep = 1.0;
    return keep * frequency + (1.0 - keep) * frequency / c->rope_factor;
}

static void fill_rotary_table(struct ref *r) {
    int half = r->config.D / 2;
    for (int t = 0; t < r->T; t++) {
        for (int i = 0; i < half; i++) {
            double angle = t * ref_inverse_frequency(&r->config, i);
            r->cos[t * half + i] = cos(angle);
            r->sin[t * half + i] = sin(angle);
        }
    }
}

/* Rotates the pairs (i, i + D/2) of each head in place. x [N, heads, D]. direction +1: forward; -1: back, which is also
 * what the backward pass needs, as a rotation's transpose is its inverse. */
static void rotate(const struct ref *r, double *x, int heads, double direction) {
    int D = r->config.D, half = D / 2;
    for (int n = 0; n < r->B * r->T; n++) {
        const double *cosine = r->cos + (n % r->T) * half, *sine = r->sin + (n % r->T) * half;
        for (int h = 0; h < heads; h++, x += D) {
            for (int i = 0; i < half; i++) {
                double a = x[i], b = x[i + half], s = direction * sine[i];
                x[i] = a * cosine[i] - b * s;
                x[i + half] = b * cosine[i] + a * s;
            }
        }
    }
}

/* ------------------------------------------------- 7. attention ------------------------------------------------- */

/* scores[j] = q . k_j / sqrt(D) for the keys first .. t, then softmax over them. p has T places. */
static void attention_row(double *p, const double *q, const double *k, int first, int t, int k_stride, int D) {
    double largest = -INFINITY, sum = 0.0;
    for (int j = first; j <= t; j++) {
        p[j] = dot(q, k + (size_t)j * k_stride, D) / sqrt(D);
        if (p[j] > largest) largest = p[j];
    }
    for (int j = first; j <= t; j++) sum += p[j] = exp(p[j] - largest);
    for (int j = first; j <= t; j++) p[j] /= sum;
}

/* o_t = sum over j of p_tj v_j. Query head h uses key-value head h / (H/Hkv). */
static void attention_forward(const struct ref *r, struct layer *l, const uint32_t *document_start) {
    const struct ref_config *c = &r->config;
    int T = r->T, D = c->D, q_stride = c->H * D, k_stride = c->Hkv * D, group = c->H / c->Hkv;
    clear(l->p, (size_t)r->B * c->H * T * T);
    clear(l->o, (size_t)r->B * T * q_stride);
    for (int b = 0; b < r->B; b++) {
        for (int h = 0; h < c->H; h++) {
            const double *q = l->q + (size_t)b * T * q_stride + h * D;
            const double *k = l->k + (size_t)b * T * k_stride + h / group * D;
            const double *v = l->v + (size_t)b * T * k_stride + h / group * D;
            double *o = l->o + (size_t)b * T * q_stride + h * D;
            for (int t = 0; t < T; t++) {
                double *p = l->p + (((size_t)b * c->H + h) * T + t) * T; /* [T] */
                int first = document_start ? (int)document_start[b * T + t] : 0;
                assert(first <= t);
                attention_row(p, q + (size_t)t * q_stride, k, first, t, k_stride, D);
                for (int j = first; j <= t; j++)
                    for (int d = 0; d < D; d++) o[(size_t)t * q_stride + d] += p[j] * v[(size_t)j * k_stride + d];
            }
        }
    }
}

/* One query row. With dp_j = do . v_j the softmax gives ds_j = p_j (dp_j - sum over i of p_i dp_i), and that goes
 * through s_j = q . k_j / sqrt(D). Masked keys have p_j = 0, so they need no test. k, v, dk, dv: row 0 of the head. */
static void attention_row_backward(double *dq, double *dk, double *dv, const double *d_o, const double *p,
                                   const double *q, const double *k, const double *v, int t, int k_stride, int D) {
    double average = 0.0;
    for (int j = 0; j <= t; j++) average += p[j] * dot(d_o, v + (size_t)j * k_stride, D);
    for (int j = 0; j <= t; j++) {
        const double *k_j = k + (size_t)j * k_stride, *v_j = v + (size_t)j * k_stride;
        double *dk_j = dk + (size_t)j * k_stride, *dv_j = dv + (size_t)j * k_stride;
        double ds = p[j] * (dot(d_o, v_j, D) - average) / sqrt(D);
        for (int d = 0; d < D; d++) {
            dv_j[d] += p[j] * d_o[d];
            dq[d] += ds * k_j[d];
            dk_j[d] += ds * q[d];
        }
    }
}

/* Reads r->d_o, adds to r->dq, r->dk, r->dv. */
static void attention_backward(struct ref *r, const struct layer *l) {
    const struct ref_config *c = &r->config;
    int T = r->T, D = c->D, q_stride = c->H * D, k_stride = c->Hkv * D, group = c->H / c->Hkv;
    for (int b = 0; b < r->B; b++) {
        for (int h = 0; h < c->H; h++) {
            size_t kv = (size_t)b * T * k_stride + h / group * D;
            for (int t = 0; t < T; t++) {
                size_t row = ((size_t)b * T + t) * q_stride + h * D;
                const double *p = l->p + (((size_t)b * c->H + h) * T + t) * T;
                attention_row_backward(r->dq + row, r->dk + kv, r->dv + kv, r->d_o + row, p, l->q + row, l->k + kv,
                                       l->v + kv, t, k_stride, D);
            }
        }
    }
}

/* ------------------------------------------------ 8. feed-forward ------------------------------------------------ */

/* gelu(x) = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3): the form that GPT-2 was trained with. */
static double gelu(double x) { return 0.5 * x * (1.0 + tanh(sqrt(2.0 / PI) * (x + 0.044715 * x * x * x))); }

static double gelu_slope(double x) {
    double th = tanh(sqrt(2.0 / PI) * (x + 0.044715 * x * x * x));
    double u_slope = sqrt(2.0 / PI) * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + th) + 0.5 * x * (1.0 - th * th) * u_slope;
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double silu_slope(double x) { return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))); }

/* act from gate and up, all [N, F] */
static void activation_forward(int gated, struct layer *l, size_t count) {
    for (size_t i = 0; i < count; i++) l->act[i] = gated ? silu(l->gate[i]) * l->up[i] : gelu(l->up[i]);
}

static void activation_backward(int gated, double *dgate, double *dup, const double *dact, const struct layer *l,
                                size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (gated) {
            dgate[i] += dact[i] * silu_slope(l->gate[i]) * l->up[i];
            dup[i] += dact[i] * silu(l->gate[i]);
        } else {
            dup[i] += dact[i] * gelu_slope(l->up[i]);
        }
    }
}

/* -------------------------------------------- 9. embedding and loss -------------------------------------------- */

/* x_n = token[id_n] + position[t] */
static void embed_forward(const struct ref *r, double *x, const int32_t *ids) {
    int C = r->config.C;
    for (int n = 0; n < r->B * r->T; n++, x += C) {
        assert(ids[n] >= 0 && ids[n] < r->config.V);
        const float *token = r->embed_token->w + (size_t)ids[n] * C;
        for (int i = 0; i < C; i++) x[i] = token[i];
        if (!r->embed_position) continue;
        const float *position = r->embed_position->w + (size_t)(n % r->T) * C;
        for (int i = 0; i < C; i++) x[i] += position[i];
    }
}

static void embed_backward(struct ref *r, const double *dx, const int32_t *ids) {
    int C = r->config.C;
    for (int n = 0; n < r->B * r->T; n++, dx += C) {
        double *dtoken = r->embed_token->g + (size_t)ids[n] * C;
        for (int i = 0; i < C; i++) dtoken[i] += dx[i];
        if (!r->embed_position) continue;
        double *dposition = r->embed_position->g + (size_t)(n % r->T) * C;
        for (int i = 0; i < C; i++) dposition[i] += dx[i];
    }
}

/* Cross entropy of each valid token, averaged over the valid tokens of the whole batch (never averages of averages),
 * and its gradient (softmax - one-hot) / valid; ignored tokens have gradient 0. logits, dlogits [N, V]. */
static double loss_forward(double *dlogits, const double *logits, const int32_t *labels, int N, int V) {
    int valid = 0;
    double total = 0.0;
    for (int n = 0; n < N; n++) valid += labels[n] >= 0;
    clear(dlogits, (size_t)N * V);
    for (int n = 0; n < N; n++, logits += V, dlogits += V) {
        if (labels[n] < 0) continue;
        assert(labels[n] < V);
        double largest = -INFINITY, sum = 0.0;
        for (int i = 0; i < V; i++) largest = fmax(largest, logits[i]);
        for (int i = 0; i < V; i++) sum += exp(logits[i] - largest);
        total += log(sum) + largest - logits[labels[n]];
        for (int i = 0; i < V; i++) dlogits[i] = exp(logits[i] - largest) / sum / valid;
        dlogits[labels[n]] -= 1.0 / valid;
    }
    return valid ? total / valid : 0.0;
}

/* ------------------------------------------------- 10. the model ------------------------------------------------- */

/* From l->x to `out` [N, C], which is the next layer's x. */
static void layer_forward(const struct ref *r, struct layer *l, double *out, const uint32_t *document_start) {
    const struct ref_config *c = &r->config;
    int N = r->B * r->T;
    size_t NC = (size_t)N * c->C;

    norm_forward(c, l->normed, l->x, l->norm1_gain, l->norm1_bias, N);
    linear_forward(l->q, l->normed, l->wq, l->bq, N);
    linear_forward(l->k, l->normed, l->wk, l->bk, N);
    linear_forward(l->v, l->normed, l->wv, l->bv, N);
    if (!c->learned_positions) {
        rotate(r, l->q, c->H, +1.0);
        rotate(r, l->k, c->Hkv, +1.0);
    }
    attention_forward(r, l, document_start);
    linear_forward(l->y, l->o, l->wo, l->bo, N);
    for (size_t i = 0; i < NC; i++) l->y[i] += l->x[i];

    norm_forward(c, l->normed2, l->y, l->norm2_gain, l->norm2_bias, N);
    if (c->gated) linear_forward(l->gate, l->normed2, l->w_gate, NULL, N);
    linear_forward(l->up, l->normed2, l->w_up, l->b_up, N);
    activation_forward(c->gated, l, (size_t)N * c->F);
    linear_forward(out, l->act, l->w_down, l->b_down, N);
    for (size_t i = 0; i < NC; i++) out[i] += l->y[i];
}

/* r->dx comes in as the gradient of the layer's output and goes out as that of its input. The residual connections need
 * no code: dx of the sum is dx of both terms, and the branch's part is added by norm_backward. */
static void layer_backward(struct ref *r, struct layer *l) {
    const struct ref_config *c = &r->config;
    int N = r->B * r->T;
    size_t NC = (size_t)N * c->C, NF = (size_t)N * c->F, Nq = (size_t)N * c->H * c->D, Nkv = (size_t)N * c->Hkv * c->D;

    clear(r->dact, NF), clear(r->dgate, NF), clear(r->dup, NF), clear(r->dnormed, NC);
    linear_backward(r->dact, l->w_down, l->b_down, r->dx, l->act, N);
    activation_backward(c->gated, r->dgate, r->dup, r->dact, l, NF);
    linear_backward(r->dnormed, l->w_up, l->b_up, r->dup, l->normed2, N);
    if (c->gated) linear_backward(r->dnormed, l->w_gate, NULL, r->dgate, l->normed2, N);
    norm_backward(c, r->dx, l->norm2_gain, l->norm2_bias, r->dnormed, l->y, N);

    clear(r->d_o, Nq), clear(r->dq, Nq), clear(r->dk, Nkv), clear(r->dv, Nkv), clear(r->dnormed, NC);
    linear_backward(r->d_o, l->wo, l->bo, r->dx, l->o, N);
    attention_backward(r, l);
    if (!c->learned_positions) {
        rotate(r, r->dq, c->H, -1.0);
        rotate(r, r->dk, c->Hkv, -1.0);
    }
    linear_backward(r->dnormed, l->wq, l->bq, r->dq, l->normed, N);
    linear_backward(r->dnormed, l->wk, l->bk, r->dk, l->normed, N);
    linear_backward(r->dnormed, l->wv, l->bv, r->dv, l->normed, N);
    norm_backward(c, r->dx, l->norm1_gain, l->norm1_bias, r->dnormed, l->x, N);
}

double ref_forward(struct ref *r, int B, int T, const int32_t *ids, const int32_t *labels,
                   const uint32_t *document_start) {
    const struct ref_config *c = &r->config;
    reserve(r, B, T);
    if (!c->learned_positions) fill_rotary_table(r);
    embed_forward(r, r->layers[0].x, ids);
    for (int n = 0; n < c->L; n++)
        layer_forward(r, &r->layers[n], n + 1 < c->L ? r->layers[n + 1].x : r->x, document_start);
    norm_forward(c, r->normed, r->x, r->final_gain, r->final_bias, B * T);
    linear_forward(r->logits, r->normed, r->head, NULL, B * T);
    return loss_forward(r->dlogits, r->logits, labels, B * T, c->V);
}

double ref_step(struct ref *r, int B, int T, const int32_t *ids, const int32_t *labels,
                const uint32_t *document_start) {
    double loss = ref_forward(r, B, T, ids, labels, document_start);
    int N = B * T;
    size_t NC = (size_t)N * r->config.C;
    for (int i = 0; i < r->count; i++) clear(r->tensors[i].g, (size_t)r->tensors[i].elems);

    clear(r->dnormed, NC), clear(r->dx, NC);
    linear_backward(r->dnormed, r->head, NULL, r->dlogits, r->normed, N);
    norm_backward(&r->config, r->dx, r->final_gain, r->final_bias, r->dnormed, r->x, N);
    for (int n = r->config.L - 1; n >= 0; n--) layer_backward(r, &r->layers[n]);
    embed_backward(r, r->dx, ids);
    return loss;
}

const double *ref_logits(const struct ref *r) { return r->logits; }

const double *ref_hidden(const struct ref *r, int layer) {
    assert(layer >= 0 && layer <= r->config.L);
    return layer < r->config.L ? r->layers[layer].x : r->x;
}

/* ------------------------------------------------- 11. optimizer ------------------------------------------------- */

double ref_norm(const struct ref *r) {
    double squares = 0.0;
    for (int i = 0; i < r->count; i++)
        for (long e = 0; e < r->tensors[i].elems; e++) squares += r->tensors[i].g[e] * r->tensors[i].g[e];
    return sqrt(squares);
}

/* AdamW (Loshchilov and Hutter 2019) in PyTorch's order: decay first, then the step. */
static void adamw(const struct ref_config *c, struct ref_tensor *t, double lr, int step, double grad_scale) {
    double correction1 = 1.0 - pow(c->beta1, step), correction2 = 1.0 - pow(c->beta2, step);
    double keep = t->decay ? 1.0 - lr * c->weight_decay : 1.0;
    for (long i = 0; i < t->elems; i++) {
        double g = t->g[i] * grad_scale;
        t->m[i] = c->beta1 * t->m[i] + (1.0 - c->beta1) * g;
        t->v[i] = c->beta2 * t->v[i] + (1.0 - c->beta2) * g * g;
        double denominator = sqrt(t->v[i]) / sqrt(correction2) + c->adam_eps;
        t->w[i] = (float)(t->w[i] * keep - lr / correction1 * t->m[i] / denominator);
    }
}

void ref_update(struct ref *r, double lr, int t) {
    double scale = 1.0;
    assert(t >= 1);
    if (r->config.clip > 0.0) scale = fmin(1.0, r->config.clip / (ref_norm(r) + 1e-6));
    for (int i = 0; i < r->count; i++) adamw(&r->config, &r->tensors[i], lr, t, scale);
}

double ref_lr(const struct ref_config *c, int t) {
    if (t <= c->warmup_steps) return c->lr_peak * t / c->warmup_steps;
    if (t >= c->decay_steps) return c->lr_floor;
    double progress = (double)(t - c->warmup_steps) / (c->decay_steps - c->warmup_steps);
    return c->lr_floor + 0.5 * (c->lr_peak - c->lr_floor) * (1.0 + cos(PI * progress));
}
