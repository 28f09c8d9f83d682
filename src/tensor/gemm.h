/* Matrix product under the numbers contract (docs/numbers.md): the only GEMM in the project.
 *
 *     C[i][j]  =  epilogue( tree over grains g of  chain over k in grain g of  fma(A[i][k], B[k][j], c) )
 *
 * Chain: one fused multiply-add after the other in the order of `parts`, in fp32, starting from +0 (or, with
 * `accumulate`, from the value already in C). Tree: base/tree.h over the grains in order. So an element's bits depend
 * on its row of A, its column of B and the grain alone: not on M, N, the tiling, threads or instruction set.
 *
 * bf16 operands are widened exactly while they are packed; the arithmetic is fp32; a bf16 result is rounded once, after
 * the epilogue.
 *
 *     struct wh_gemm g = {.m = T, .n = N, .k = K,                      // y = x W^T + bias,  x [T,K]  W [N,K]  y [T,N]
 *                         .a = {x, WH_F32, K, false}, .b = {W, WH_F32, K, true}, .c = {y, WH_F32, N},
 *                         .bias = b, .bias_dtype = WH_F32};
 *     wh_gemm_run(&g, &pool);
 *
 * Threads: wh_gemm_run splits the work over OpenMP threads; call it outside a parallel region. Results never depend on
 * their number. No allocation: panels live in the workspace given once at start. Cost: 2·m·n·k operations; packing
 * reads A and B about once and writes them once; see gemm.c. */
#ifndef WH_TENSOR_GEMM_H
#define WH_TENSOR_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* Element (i,j) is data[i*ld + j], or data[j*ld + i] if `transposed`. fp32 or bf16. Borrowed. */
struct wh_gemm_in {
    const void *data;
    enum wh_dtype dtype;
    size_t ld; /* in elements */
    bool transposed;
};

struct wh_gemm_out {
    void *data; /* row-major; must not overlap an input (residual excepted) */
    enum wh_dtype dtype;
    size_t ld;
};

/* A run of k, begin .. begin+length-1, taken in list order. The last part of a grain has `ends_grain`. */
struct wh_gemm_part {
    uint32_t begin, length;
    bool ends_grain;
};

enum wh_gemm_activation { WH_GEMM_NONE, WH_GEMM_GELU_TANH };

struct wh_gemm {
    size_t m, n, k;
    struct wh_gemm_in a;  /* [m,k] */
    struct wh_gemm_in b;  /* [k,n] */
    struct wh_gemm_out c; /* [m,n] */

    const struct wh_gemm_part *parts; /* NULL: all of k in order, one grain. Need not cover k; the last ends a grain */
    size_t part_count;
    bool accumulate; /* the first grain's chain starts from C, which is fp32; the others from +0 */

    /* Epilogue, in this order, each step rounded to fp32: + bias[j]; to `pre`; activation; residual[i][j] + it. */
    const void *bias; /* [n] or NULL */
    enum wh_dtype bias_dtype;
    struct wh_gemm_out pre; /* data NULL: not wanted. The value before the activation, for the backward pass */
    enum wh_gemm_activation activation;
    struct wh_gemm_in residual; /* data NULL: none. Not transposed. May be C itself */
};

/* Bytes of workspace that any product needs with `threads` threads and at most `grain_depth` pending subtrees
 * (wh_tree_depth of the grain count). A constant, independent of m, n, k: about 9 MB, and 2 MB a level, a thread. */
size_t wh_gemm_workspace_bytes(int threads, unsigned grain_depth);

/* A set of kernels: "reference" (plain C), "avx2", "avx512". All give equal bits. The best that this processor can run,
 * or the named one: NULL if it can't run here or doesn't exist. */
struct wh_gemm_kernel;
const struct wh_gemm_kernel *wh_gemm_select(const char *name);

/* Threads and workspace for the products of one process; fill once, keep for the job. */
struct wh_gemm_pool {
    int threads;
    unsigned grain_depth;
    void *workspace; /* cache-line aligned, borrowed; wh_gemm_workspace_bytes(threads, grain_depth) */
    const struct wh_gemm_kernel *kernel; /* NULL: the best */
};

/* Runs one product. Asserts on impossible arguments (a bug of ours): see the fields above. */
void wh_gemm_run(const struct wh_gemm *g, const struct wh_gemm_pool *pool);

/* The same product by plain loops over fmaf, one element at a time, one thread, no workspace: the contract as code. */
void wh_gemm_reference(const struct wh_gemm *g);

#endif
