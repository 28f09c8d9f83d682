/* Sums (or maxima, minima) of several vectors, element by element, in the order of the canonical tree (base/tree.h) or in a
 * given one: out[e] = tree over i of in[i][e]. Written once (reduce_body.h, reduce_loop.h) and compiled for plain C, AVX2
 * and AVX-512; all give equal bits, except which bits a NaN has.
 *
 * bf16: widened, combined in fp32, rounded to nearest even, once or (WH_SUM_ROUNDED) at every join. Integers wrap.
 * max(a, b) = a > b or a is NaN ? a : b. */
#ifndef WH_COMM_REDUCE_H
#define WH_COMM_REDUCE_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/comm.h"

struct wh_reduce;

/* "reference", "avx2", "avx512"; NULL: the best this processor has. NULL if it can't run it or there is none. */
const struct wh_reduce *wh_reduce_select(const char *name);
const char *wh_reduce_name(const struct wh_reduce *r);

/* F32, BF16, F64, I32, I64 */
bool wh_reduce_has(enum wh_dtype type);

/* Writes the tree over in[0 .. n) to each of out[0 .. outs). Pointers need no alignment beyond their element's; an out may
 * be one of the in, never overlap otherwise. n = 1 .. WH_COMM_RANKS_MAX * WH_COMM_INPUTS_MAX, outs >= 1. Reads each input
 * once and writes each output once, by at most 8 streams at a time; larger n go through tiles on the stack (64 KiB) that
 * stay in the first-level cache as long as there are few. */
void wh_reduce_run(const struct wh_reduce *r, enum wh_dtype type, enum wh_redop op, const void *const *in, uint32_t n,
                   void *const *out, uint32_t outs, size_t elems);

/* The same in any order: after input i the two topmost values of a stack are joined merges[i] times, left plus right, so
 * that one value remains; the stack never holds more than WH_COMM_STACK_MAX. Runs of up to 8 inputs that are joined as the
 * canonical tree does take one pass; if all inputs are one such run this is wh_reduce_run. */
void wh_reduce_merge(const struct wh_reduce *r, enum wh_dtype type, enum wh_redop op, const void *const *in, uint32_t n,
                     const uint8_t *merges, void *const *out, uint32_t outs, size_t elems);

#endif
