/* Table of one instruction set; see reduce_body.h. Private to reduce*.c. */
#ifndef WH_COMM_REDUCE_INT_H
#define WH_COMM_REDUCE_INT_H

#include "comm/reduce.h"

enum { WH_REDUCE_STREAMS = 8 };

/* n <= WH_REDUCE_STREAMS inputs; any number of outputs. */
typedef void wh_reduce_loop(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs,
                            size_t elems);

struct wh_reduce {
    const char *name;
    wh_reduce_loop *f32, *f64, *i32, *i64;
    wh_reduce_loop *bf16;         /* bf16 to bf16 */
    wh_reduce_loop *bf16_rounded; /* the same, WH_SUM_ROUNDED */
    wh_reduce_loop *bf16_widen;   /* bf16 to fp32, in an order of elements of its own that bf16_narrow undoes */
    void (*bf16_narrow)(const void *pairs, void *const *out, uint32_t outs, size_t elems); /* and back */
};

extern const struct wh_reduce wh_reduce_reference, wh_reduce_avx2, wh_reduce_avx512;

#endif
