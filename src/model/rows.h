/* Rows of fp32 or bf16 matrices for the fp32 row kernels: fp32 rows are used where they lie, bf16 rows pass through a
 * scratch row of the calling thread. */
#ifndef WH_MODEL_ROWS_H
#define WH_MODEL_ROWS_H

#include <omp.h>

#include "model/net.h"
#include "os/clock.h"

/* Books the time since `since` (wh_clock_ns) under a ledger row. Outside parallel regions only. */
static inline void wh_net_book(struct wh_net *net, enum wh_time row, uint64_t since) {
    net->times.ns[row] += wh_clock_ns() - since;
}

/* A product, booked. */
static inline void wh_net_gemm(struct wh_net *net, enum wh_time row, const struct wh_gemm *g) {
    const uint64_t since = wh_clock_ns();
    wh_gemm_run(g, &net->pool);
    wh_net_book(net, row, since);
}

/* The calling thread's scratch, net->row_scratch_elems floats. */
static inline float *wh_rows_scratch(const struct wh_net *net) {
    return net->row_scratch + (size_t)omp_get_thread_num() * net->row_scratch_elems;
}

static inline char *wh_rows_at(const struct wh_net *net, const void *matrix, size_t elem) {
    return (char *)(uintptr_t)matrix + elem * wh_dtype_bytes(net->shape.dtype);
}

/* `n` elements from element `elem` of a matrix in the compute dtype, to read; `scratch` holds n floats. */
static inline const float *wh_rows_read(const struct wh_net *net, const void *matrix, size_t elem, size_t n,
                                        float *scratch) {
    const void *p = wh_rows_at(net, matrix, elem);
    if (net->shape.dtype == WH_F32) return p;
    net->vec->widen(scratch, p, n);
    return scratch;
}

/* Where to compute n elements that wh_rows_done then stores. */
static inline float *wh_rows_target(const struct wh_net *net, void *matrix, size_t elem, float *scratch) {
    return net->shape.dtype == WH_F32 ? (float *)wh_rows_at(net, matrix, elem) : scratch;
}

static inline void wh_rows_done(const struct wh_net *net, void *matrix, size_t elem, size_t n, const float *scratch) {
    if (net->shape.dtype != WH_F32) net->vec->narrow((uint16_t *)wh_rows_at(net, matrix, elem), scratch, n);
}

#endif
