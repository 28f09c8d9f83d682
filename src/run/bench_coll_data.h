/* What the benchmark's ranks put in, and what must come out: the definition that results are compared with. */
#ifndef WH_RUN_BENCH_COLL_DATA_H
#define WH_RUN_BENCH_COLL_DATA_H

#include "comm/comm.h"

/* Element `i` of what `rank` gives: a function of both, of either sign, over sixteen powers of two, so that every order
 * of summation but the right one shows. `out` has the size of the format. */
void wh_bench_coll_input(enum wh_dtype dtype, uint32_t rank, uint64_t i, void *out);

/* The canonical tree over the ranks' elements `i`, one after the other. */
void wh_bench_coll_reduced(enum wh_dtype dtype, enum wh_redop redop, uint32_t ranks, uint64_t i, void *out);

#endif
