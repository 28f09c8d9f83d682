/* The loops of one instruction set, included by reduce_reference.c, reduce_avx2.c and reduce_avx512.c after they have
 * defined
 *
 *   VECTOR     bytes in a register
 *   TABLE      name of the table to define, and NAME its text */
#include <string.h>

#include "comm/reduce_int.h"

typedef float floats __attribute__((vector_size(VECTOR)));
typedef double doubles __attribute__((vector_size(VECTOR)));
typedef int32_t ints __attribute__((vector_size(VECTOR)));
typedef int64_t longs __attribute__((vector_size(VECTOR)));
typedef uint32_t words __attribute__((vector_size(VECTOR)));
typedef uint64_t long_words __attribute__((vector_size(VECTOR)));

enum { STEP = 4 };

#define VEC      floats
#define SIGNED   floats
#define BITS     words
#define NANS(x)  (words)(x != x)
#define SIZE     4
#define combine  combine_f32
#define tree     tree_f32
#define pass     pass_f32
#define extremes extremes_f32
#define LOOP     loop_f32
#include "comm/reduce_loop.h"

#define VEC      doubles
#define SIGNED   doubles
#define BITS     long_words
#define NANS(x)  (long_words)(x != x)
#define SIZE     8
#define combine  combine_f64
#define tree     tree_f64
#define pass     pass_f64
#define extremes extremes_f64
#define LOOP     loop_f64
#include "comm/reduce_loop.h"

#define VEC    words
#define SIGNED ints
#define BITS   words
#define NANS(x) \
    (words) { 0 }
#define SIZE     4
#define combine  combine_i32
#define tree     tree_i32
#define pass     pass_i32
#define extremes extremes_i32
#define LOOP     loop_i32
#include "comm/reduce_loop.h"

#define VEC    long_words
#define SIGNED longs
#define BITS   long_words
#define NANS(x) \
    (long_words) { 0 }
#define SIZE     8
#define combine  combine_i64
#define tree     tree_i64
#define pass     pass_i64
#define extremes extremes_i64
#define LOOP     loop_i64
#include "comm/reduce_loop.h"

/* bf16 comes in words of two: the even element in the low half, the odd one in the high half. Widening each is a shift or
 * a mask, so no element changes its lane; fp32 values stand as a vector of evens, then a vector of odds. */
struct pair {
    floats even, odd;
};

static inline struct pair widen(words w) { return (struct pair){(floats)(w << 16), (floats)(w & 0xffff0000u)}; }

/* As wh_f32_to_bf16, left in the high half. */
static inline words round_high(floats f) {
    words u = (words)f, quiet = u | 0x400000u, nearest = u + 0x7fffu + ((u >> 16) & 1u);
    words nan = (words)((ints)(u & 0x7fffffffu) > 0x7f800000);
    return ((nan & quiet) | (~nan & nearest)) & 0xffff0000u;
}

static inline words narrow(struct pair p) { return (round_high(p.even) >> 16) | round_high(p.odd); }

/* At most sizeof(words) bytes of in[i], widened. */
static inline __attribute__((always_inline)) struct pair load(const void *in, size_t at, size_t bytes) {
    words w = {0};
    memcpy(&w, (const char *)in + at, bytes);
    return widen(w);
}

/* The canonical tree over n = 1 .. 4, then over n = 1 .. 8, with every join rounded to bf16. */
static inline floats join_rounded(floats a, floats b) { return (floats)round_high(a + b); }

static inline __attribute__((always_inline)) floats tree_rounded_few(const floats *x, uint32_t n) {
    if (n == 1) return x[0];
    floats two = join_rounded(x[0], x[1]);
    if (n == 2) return two;
    return join_rounded(two, n == 3 ? x[2] : join_rounded(x[2], x[3]));
}

static inline __attribute__((always_inline)) floats tree_rounded(const floats *x, uint32_t n) {
    if (n <= 4) return tree_rounded_few(x, n);
    return join_rounded(tree_rounded_few(x, 4), tree_rounded_few(x + 4, n - 4));
}

static inline __attribute__((always_inline)) struct pair tree_pair(const void *const *in, uint32_t n, size_t at,
                                                                   size_t bytes, bool rounded) {
    floats even[WH_REDUCE_STREAMS], odd[WH_REDUCE_STREAMS];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n; i++) {
        struct pair p = load(in[i], at, bytes);
        even[i] = p.even, odd[i] = p.odd;
    }
    if (rounded) return (struct pair){tree_rounded(even, n), tree_rounded(odd, n)};
    return (struct pair){tree_f32(even, n), tree_f32(odd, n)};
}

static inline __attribute__((always_inline)) void pass_bf16(const void *const *in, uint32_t n, void *const *out,
                                                            uint32_t outs, size_t bytes, bool rounded) {
    size_t at = 0;
    words sum[STEP];
    for (; at + sizeof sum <= bytes; at += sizeof sum) {
#pragma GCC unroll 8
        for (size_t u = 0; u < STEP; u++) sum[u] = narrow(tree_pair(in, n, at + u * sizeof *sum, sizeof *sum, rounded));
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, sum, sizeof sum);
    }
    for (; at < bytes; at += sizeof *sum) {
        size_t part = bytes - at < sizeof *sum ? bytes - at : sizeof *sum;
        sum[0] = narrow(tree_pair(in, n, at, part, rounded));
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, sum, part);
    }
}

static inline struct pair combine_pair(enum wh_redop op, struct pair a, struct pair b) {
    return (struct pair){combine_f32(op, a.even, b.even), combine_f32(op, a.odd, b.odd)};
}

/* Max or min, written as bf16 or, `wide`, as pairs. */
static void extremes_bf16(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs,
                          size_t bytes, bool wide) {
    for (size_t at = 0; at < bytes; at += sizeof(words)) {
        size_t part = bytes - at < sizeof(words) ? bytes - at : sizeof(words);
        struct pair most = load(in[0], at, part);
        for (uint32_t i = 1; i < n; i++) most = combine_pair(op, most, load(in[i], at, part));
        words half = narrow(most);
        for (uint32_t o = 0; o < outs; o++) {
            if (wide) memcpy((char *)out[o] + 2 * at, &most, sizeof most);
            if (!wide) memcpy((char *)out[o] + at, &half, part);
        }
    }
}

#define FOR_N(N)                                       \
    case N:                                            \
        pass_bf16(in, N, out, outs, 2 * elems, false); \
        break;
static void loop_bf16(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs,
                      size_t elems) {
    if (op != WH_SUM) {
        extremes_bf16(op, in, n, out, outs, 2 * elems, false);
        return;
    }
    switch (n) { FOR_N(1) FOR_N(2) FOR_N(3) FOR_N(4) FOR_N(5) FOR_N(6) FOR_N(7) FOR_N(8) }
}
#undef FOR_N

#define FOR_N(N)                                      \
    case N:                                           \
        pass_bf16(in, N, out, outs, 2 * elems, true); \
        break;
static void loop_rounded(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs,
                         size_t elems) {
    (void)op;
    switch (n) { FOR_N(1) FOR_N(2) FOR_N(3) FOR_N(4) FOR_N(5) FOR_N(6) FOR_N(7) FOR_N(8) }
}
#undef FOR_N

static inline __attribute__((always_inline)) void pass_widen(const void *const *in, uint32_t n, void *const *out,
                                                             uint32_t outs, size_t bytes) {
    size_t at = 0; /* a length that is known makes each memcpy one move */
    for (; at + sizeof(words) <= bytes; at += sizeof(words)) {
        struct pair sum = tree_pair(in, n, at, sizeof(words), false);
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + 2 * at, &sum, sizeof sum);
    }
    if (at == bytes) return;
    struct pair sum = tree_pair(in, n, at, bytes - at, false);
    for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + 2 * at, &sum, sizeof sum);
}

#define FOR_N(N)                                 \
    case N:                                      \
        pass_widen(in, N, out, outs, 2 * elems); \
        break;
static void loop_widen(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs,
                       size_t elems) {
    if (op != WH_SUM) {
        extremes_bf16(op, in, n, out, outs, 2 * elems, true);
        return;
    }
    switch (n) { FOR_N(1) FOR_N(2) FOR_N(3) FOR_N(4) FOR_N(5) FOR_N(6) FOR_N(7) FOR_N(8) }
}
#undef FOR_N

static void loop_narrow(const void *pairs, void *const *out, uint32_t outs, size_t elems) {
    size_t at = 0, bytes = 2 * elems;
    struct pair x;
    words half;
    for (; at + sizeof half <= bytes; at += sizeof half) {
        memcpy(&x, (const char *)pairs + 2 * at, sizeof x);
        half = narrow(x);
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, &half, sizeof half);
    }
    if (at == bytes) return;
    memcpy(&x, (const char *)pairs + 2 * at, sizeof x);
    half = narrow(x);
    for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, &half, bytes - at);
}

const struct wh_reduce TABLE = {
    .name = NAME,
    .f32 = loop_f32,
    .f64 = loop_f64,
    .i32 = loop_i32,
    .i64 = loop_i64,
    .bf16 = loop_bf16,
    .bf16_rounded = loop_rounded,
    .bf16_widen = loop_widen,
    .bf16_narrow = loop_narrow,
};
