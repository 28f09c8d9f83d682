/* The oracle: a whole GPT-2 or Llama-like transformer with its training step, in plain loops, one thread, arithmetic in
 * double. Weights are stored as float, as in the engine; everything that is computed from them is double, so what
 * differs between the engine and this is the engine's rounding. Reading order and bounds: README.md beside this file.
 *
 *     struct ref *r = ref_new(&config, seed);
 *     memcpy(ref_param(r, "layer.0.attn.q.weight"), q, bytes);        // or keep the seeded initial weights
 *     for (int t = 1; t <= steps; t++) {
 *         double loss = ref_step(r, B, T, ids, labels, NULL);         // loss and gradients
 *         double norm = ref_norm(r);                                  // before clipping
 *         ref_update(r, ref_lr(&config, t), t);                       // clip, AdamW
 *     }
 *     ref_free(r);
 *
 * Needs nothing but libc and libm; unit tests include the .c file itself. A wrong argument or no memory ends the
 * program (assert): this is for tests, not for users. Cost: 3 ms a step for 20,000 parameters and 64
 * tokens. */
#ifndef WANHE_REF_H
#define WANHE_REF_H

#include <stdint.h>

enum ref_rope { REF_ROPE_PLAIN, REF_ROPE_LINEAR, REF_ROPE_LLAMA3 };

struct ref_config {
    int V, C, L, H, Hkv, D, F; /* vocabulary, hidden, layers, heads, key-value heads, head size, feed-forward width */
    int max_position;          /* longest sequence */
    int layer_norm;            /* 1: LayerNorm with gain and bias; 0: RMSNorm with gain */
    int learned_positions;     /* 1: position table; 0: rotary embedding, pairs (i, i + D/2) */
    int gated;                 /* 1: down(silu(gate(x)) * up(x)); 0: down(gelu_tanh(up(x))) */
    int qkv_bias, linear_bias; /* biases on q, k, v; on attention output and feed-forward */
    int tied;                  /* 1: the head is the token embedding */
    double norm_eps, init_std;

    enum ref_rope rope;
    double rope_theta, rope_factor;                          /* factor: linear, llama3 */
    double rope_low_freq, rope_high_freq, rope_original_max; /* llama3 */

    double beta1, beta2, adam_eps, weight_decay;
    double clip; /* 0: no clipping */

    double lr_peak, lr_floor; /* see ref_lr */
    int warmup_steps, decay_steps;
};

/* One parameter with its gradient and moments. Matrices are [out, in], row-major; decay is true for exactly these. */
struct ref_tensor {
    char name[48];  /* "layer.3.attn.q.weight" */
    int rows, cols; /* a vector has cols 1 */
    int decay;
    long elems;
    float *w;          /* weights */
    double *g, *m, *v; /* gradient of the last step; first and second moment */
};

struct ref;

/* Weights: matrices normal with init_std, those that write to the residual stream init_std / sqrt(2L); gains 1, biases
 * 0. Deterministic in `seed`, but not the engine's numbers: copy weights over to compare. */
struct ref *ref_new(const struct ref_config *config, uint64_t seed);
void ref_free(struct ref *r);

/* Tensors in the order of the parameter table; NULL beyond the last one, or if no tensor has this name. */
struct ref_tensor *ref_tensor_at(struct ref *r, int index);
struct ref_tensor *ref_tensor_find(struct ref *r, const char *name);
float *ref_param(struct ref *r, const char *name); /* ->w or NULL */
double *ref_grad(struct ref *r, const char *name); /* ->g or NULL */

/* Forward over B sequences of T tokens. ids and labels are [B*T]; label -1 is ignored. document_start is [B*T] or NULL:
 * position t of a sequence sees positions document_start[t] .. t of that sequence; positions are not restarted.
 * Returns the sum of the valid labels' cross entropy over their count; 0 if none is valid. */
double ref_forward(struct ref *r, int B, int T, const int32_t *ids, const int32_t *labels,
                   const uint32_t *document_start);

/* Forward and backward; gradients replace those of the step before. */
double ref_step(struct ref *r, int B, int T, const int32_t *ids, const int32_t *labels, const uint32_t *document_start);

/* Of the last forward: logits [B*T, V]; residual stream [B*T, C] in front of layer `layer`, L: behind the last. */
const double *ref_logits(const struct ref *r);
const double *ref_hidden(const struct ref *r, int layer);

double ref_norm(const struct ref *r); /* of all gradients together, each parameter once */

/* Update t = 1, 2, ...: gradients times min(1, clip / (norm + 1e-6)), then AdamW with decoupled decay. Gradients stay
 * as they are. */
void ref_update(struct ref *r, double lr, int t);

/* Learning rate of update t = 1, 2, ...: linear from 0 to the peak at warmup_steps, half a cosine down to the floor at
 * decay_steps, the floor from there on. */
double ref_lr(const struct ref_config *config, int t);

/* Inverse rotary frequency of pair i of D/2, scaling applied: the angle at position p is p times this. */
double ref_inverse_frequency(const struct ref_config *config, int i);

#endif
