/* Causal attention of one sequence, forward and backward, without a T x T matrix: scratch is one block of query rows.
 *
 * Contract (bits are a function of the row, the block rule below and the data alone):
 *   query rows are taken in blocks of WH_ATTENTION_BLOCK at absolute positions; a block that starts at i0 looks at keys
 *   0 .. min(T, i0 + WH_ATTENTION_BLOCK) - 1, and its masked keys have probability exactly 0
 *   s_ij = scale * chain_d fma(q_id, k_jd)        m_i = max over allowed j        e_ij = exp(s_ij - m_i)
 *   z_i  = 16-lane sum of e_ij (lane = j % 16)    p_ij = e_ij * (1 / z_i)
 *   o_id = chain_j fma(p~_ij, v_jd)               p~ = p after dropout
 * backward, delta_i = 16-lane dot over d of do_i and o_i:
 *   dp_ij = chain_d fma(do_id, v_jd) (dropout)    ds_ij = scale * p_ij * (dp_ij - delta_i)
 *   dq_id = chain_j fma(ds_ij, k_jd)
 *   dk_jd = tree over sequence chunks of: chain over the query heads of the group, ascending, and in each over query
 *           rows i ascending, fma(ds_ij, q_id); dv likewise with p~ and do. (With one chunk: one chain.)
 * Query blocks never straddle a chunk boundary.
 *
 * Allowed keys of row i: document_start[i] <= j <= i (document_start NULL: 0). */
#ifndef WH_TENSOR_ATTENTION_H
#define WH_TENSOR_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "tensor/vec.h"

enum { WH_ATTENTION_BLOCK = 32 };

/* One key-value head of one sequence and the R = H/Hkv query heads that share it. Rows are positions. Pointers are to
 * row 0 of the (first) head; head r of the group lies r*D elements further in q, o, do, dq. */
struct wh_attention {
    size_t T, D, R;
    enum wh_dtype dtype; /* of q, k, v, o and their gradients: fp32 or bf16; the arithmetic is fp32 */
    float scale;         /* 1/sqrt(D) */
    const void *q, *k, *v;
    size_t q_stride, k_stride, v_stride; /* elements from one position to the next */
    void *o;                             /* written by forward, read by backward */
    size_t o_stride;
    float *stats; /* [R][T][2]: m_i and 1/z_i; written by forward, read by backward */
    const uint32_t *document_start; /* [T] or NULL */
    uint32_t chunks; /* grain.sequence; chunk c is rows T*c/chunks .. T*(c+1)/chunks - 1 */

    /* dropout of probabilities: element ((sample*H + head)*T + i)*T + j, see dropout in vec.h; scale 1 and threshold 0: off */
    struct wh_rng rng;
    uint64_t first_element; /* of i = j = 0 of the first head of the group; head r: + r*T*T */
    uint32_t dropout_threshold;
    float dropout_scale;

    const void *d_o; /* backward only, strides as the tensors they belong to */
    void *dq, *dk, *dv;
    size_t do_stride, dq_stride, dk_stride, dv_stride;
};

/* Bytes of private scratch that one thread needs for sequences up to T, head size D, `chunks`. */
size_t wh_attention_scratch_bytes(size_t T, size_t D, uint32_t chunks);

struct wh_attention_kernels {
    const char *name;
    /* Query head r of the group, all its rows; callers spread (sequence, head) pairs over threads. */
    void (*forward)(const struct wh_attention *a, size_t r, void *scratch);
    /* All heads of the group; writes dq, dk, dv. */
    void (*backward)(const struct wh_attention *a, void *scratch);
};

extern const struct wh_attention_kernels wh_attention_reference, wh_attention_avx2, wh_attention_avx512;
const struct wh_attention_kernels *wh_attention_select(const char *name);

#endif
