/* Causal attention of one sequence, forward and backward, without a T x T matrix: scratch holds packed keys and values
 * of one head and a block of 32 query rows.
 *
 * Contract; sums over j run over the allowed keys of row i, document_start[i] <= j <= i (document_start NULL: 0):
 *   s_ij = scale * chain_d fma(q_id, k_jd)        m_i = max_j s_ij        e_ij = exp(s_ij - m_i)
 *   z_i  = 16-lane sum of e_ij (lane j % 16)      p_ij = e_ij * (1 / z_i)
 *   o_id = chain_j fma(p~_ij, v_jd) + 0           p~ = p after dropout
 * backward, with delta_i = 16-lane dot of do_i and o_i over d (lane d % 16):
 *   dp_ij = chain_d fma(do_id, v_jd), then dropout as in p~          ds_ij = scale * p_ij * (dp_ij - delta_i)
 *   dq_id = chain_j fma(ds_ij, k_jd) + 0
 *   dk_jd = tree over sequence chunks (base/tree.h) of: chain over the query heads of the group, ascending, and in each
 *           over the rows i of the chunk, ascending, fma(ds_ij, q_id); then + 0. dv likewise with p~ and do.
 * A chain is one fma after the other in ascending order, starting from +0; every other operation rounds once, from left
 * to right; exp is SLEEF's finz variant. bf16 inputs are widened exactly, bf16 results rounded once at the end.
 *
 * The last `+ 0` turns -0 into +0. Since a term with probability 0 changes nothing but the sign of a zero, chains may
 * then take in masked keys as zeros or leave them out: the bits of a row depend on its allowed keys alone, not on
 * blocks, on later tokens, on other documents or on the instruction set. (True of finite data. An infinite or NaN key
 * spreads within its block of 32 rows.) */
#ifndef WH_TENSOR_ATTENTION_H
#define WH_TENSOR_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "tensor/vec.h"

enum { WH_ATTENTION_BLOCK = 32 };

/* One key-value head of one sequence and the R = H/Hkv query heads that share it. Rows are positions. Pointers are to
 * row 0 of the (first) head; head r of the group lies r*D elements further in q, o, do, dq. Everything is borrowed;
 * no output may overlap an input. */
struct wh_attention {
    size_t T, D, R;      /* all at least 1 */
    enum wh_dtype dtype; /* of q, k, v, o and their gradients: fp32 or bf16; the arithmetic is fp32 */
    float scale;         /* 1/sqrt(D) */
    const void *q, *k, *v;
    size_t q_stride, k_stride, v_stride; /* elements from one position to the next */
    void *o;                             /* written by forward, read by backward */
    size_t o_stride;
    float *stats;                   /* [R][T][2]: m_i and 1/z_i; written by forward, read by backward */
    const uint32_t *document_start; /* [T], document_start[i] <= i; or NULL */
    uint32_t chunks; /* grain.sequence, at least 1; chunk c is rows T*c/chunks .. T*(c+1)/chunks - 1; backward only */

    /* dropout of probabilities: element ((sample*H + head)*T + i)*T + j, see dropout in vec.h; scale 1 and threshold 0:
     * off */
    struct wh_rng rng;
    uint64_t first_element; /* of i = j = 0 of the first head of the group; head r: + r*T*T */
    uint32_t dropout_threshold;
    float dropout_scale;

    const void *d_o; /* backward only, strides as the tensors they belong to */
    void *dq, *dk, *dv;
    size_t do_stride, dq_stride, dk_stride, dv_stride;
};

/* Bytes of private scratch, cache-line aligned, that one thread needs for sequences up to T, head size D, `chunks`; one
 * number for forward and backward: about 4 * (5*T*D + 100*T) with one chunk. The sums dk and dv of finished chunks wait
 * there to be merged, so that `chunks` > 1 adds 8*T*D bytes for each further level of the tree (wh_tree_depth(chunks)
 * levels in all). */
size_t wh_attention_scratch_bytes(size_t T, size_t D, uint32_t chunks);

struct wh_attention_kernels {
    const char *name;
    /* Query head r of the group, all its rows; callers spread (sequence, head) pairs over threads.
     * Cost: 4*D operations for each pair (i, j) with j up to the end of i's block. */
    void (*forward)(const struct wh_attention *a, size_t r, void *scratch);
    /* All heads of the group; writes dq, dk, dv. Cost: 10*D operations a pair. */
    void (*backward)(const struct wh_attention *a, void *scratch);
};

extern const struct wh_attention_kernels wh_attention_reference, wh_attention_avx2, wh_attention_avx512;

/* As wh_vec_select. */
const struct wh_attention_kernels *wh_attention_select(const char *name);

#endif
