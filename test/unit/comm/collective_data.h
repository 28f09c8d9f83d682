/* Inputs of collectives as a function of (rank, element), and the right outputs by plain recursion over ranks. */
#ifndef WH_TEST_UNIT_COMM_COLLECTIVE_DATA_H
#define WH_TEST_UNIT_COMM_COLLECTIVE_DATA_H

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "coll/plan.h"
#include "comm/comm.h"

union test_value {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint16_t u16;
    unsigned char bytes[8];
};

static inline uint64_t test_hash(uint64_t x) {
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

/* Numbers of very different size and both signs, some zeros, some subnormals; opposite large ones on neighbours. */
static inline double test_number(uint64_t h, uint32_t rank) {
    int exponent = (int)(h >> 32) % 25;
    double x = ((double)(h & 0xffffff) + 1) / 0x1000000;
    if (h >> 40 & 1) x = -x;
    if ((h >> 48) % 29 == 0) return rank & 1 ? -1e18 : 1e18;
    if ((h >> 48) % 31 == 0) return h >> 41 & 1 ? 0.0 : -0.0;
    if ((h >> 48) % 37 == 0) return x * 1e-40;
    for (; exponent > 0; exponent--) x *= 2;
    return x;
}

static inline union test_value test_input(enum wh_dtype type, uint64_t seed, uint32_t rank, uint64_t element) {
    /* the large ones lie at the same elements of all ranks */
    uint64_t common = test_hash(seed * 0x9E3779B97F4A7C15u + element), h = test_hash(common + 1 + rank);
    union test_value v = {0};
    h = (h & 0xffffffffffff) | (common & 0xffff000000000000);
    switch (type) {
    case WH_F32:
        v.f32 = (float)test_number(h, rank);
        break;
    case WH_F64:
        v.f64 = test_number(h, rank);
        break;
    case WH_BF16:
        v.u16 = wh_f32_to_bf16((float)test_number(h, rank));
        break;
    default:
        v.i64 = (int64_t)test_hash(h + 5);
        break;
    }
    return v;
}

static inline union test_value test_combine(enum wh_dtype type, enum wh_redop op, union test_value a,
                                            union test_value b) {
    union test_value v = {0};
#define COMBINE(member) \
    v.member = op == WH_MAX ? (a.member > b.member ? a.member : b.member) : (a.member < b.member ? a.member : b.member)
    switch (type) {
    case WH_F64:
        if (wh_redop_sums(op))
            v.f64 = a.f64 + b.f64;
        else
            COMBINE(f64);
        break;
    case WH_I32:
        if (wh_redop_sums(op))
            v.i32 = (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32);
        else
            COMBINE(i32);
        break;
    case WH_I64:
        if (wh_redop_sums(op))
            v.i64 = (int64_t)((uint64_t)a.i64 + (uint64_t)b.i64);
        else
            COMBINE(i64);
        break;
    default: /* fp32, and what bf16 is summed in */
        if (wh_redop_sums(op))
            v.f32 = a.f32 + b.f32;
        else
            COMBINE(f32);
    }
    if (type == WH_BF16 && op == WH_SUM_ROUNDED) v.f32 = wh_bf16_to_f32(wh_f32_to_bf16(v.f32));
#undef COMBINE
    return v;
}

/* The canonical tree over ranks [begin, begin + n); bf16: not rounded at the end. */
static inline union test_value test_tree(enum wh_dtype type, enum wh_redop op, uint64_t seed, uint64_t element,
                                         uint32_t begin, uint32_t n) {
    if (n == 1) {
        union test_value v = test_input(type, seed, begin, element);
        if (type == WH_BF16) v.f32 = wh_bf16_to_f32(v.u16);
        return v;
    }
    uint32_t left = 1;
    while (left * 2 < n) left *= 2;
    return test_combine(type, op, test_tree(type, op, seed, element, begin, left),
                        test_tree(type, op, seed, element, begin + left, n - left));
}

static inline union test_value test_reduced(enum wh_dtype type, enum wh_redop op, uint64_t seed, uint64_t element,
                                            uint32_t ranks) {
    union test_value v = test_tree(type, op, seed, element, 0, ranks);
    if (type == WH_BF16) v.u16 = wh_f32_to_bf16(v.f32);
    return v;
}

static inline struct wh_coll_range test_slice(const struct wh_comm_call *c, uint32_t ranks, uint32_t i) {
    if (c->border) return (struct wh_coll_range){c->border[i], c->border[i + 1] - c->border[i]};
    return wh_coll_cut((struct wh_coll_range){0, c->count}, c->dtype, ranks, i);
}

/* Elements of the call's buffers, and the vector's element at which `in` and `out` begin. */
static inline struct wh_coll_range test_in_range(const struct wh_comm_call *c, uint32_t rank, uint32_t ranks) {
    if (c->op == WH_ALL_GATHER) return test_slice(c, ranks, rank);
    return (struct wh_coll_range){0, c->op == WH_BROADCAST && rank != c->root ? 0 : c->count};
}

static inline struct wh_coll_range test_out_range(const struct wh_comm_call *c, uint32_t rank, uint32_t ranks) {
    if (c->op == WH_REDUCE_SCATTER) return test_slice(c, ranks, rank);
    return (struct wh_coll_range){0, c->op == WH_REDUCE && rank != c->root ? 0 : c->count};
}

/* Element `i` of the vector that rank's `out` belongs to. */
static inline union test_value test_output(const struct wh_comm_call *c, uint64_t seed, uint32_t rank, uint32_t ranks,
                                           uint64_t i) {
    struct wh_coll_range r;
    uint32_t owner = 0;
    switch (c->op) {
    case WH_BROADCAST:
        return test_input(c->dtype, seed, c->root, i);
    case WH_ALL_GATHER:
    case WH_ALL_TO_ALL:
        for (r = test_slice(c, ranks, 0); i >= r.first + r.count; r = test_slice(c, ranks, owner)) owner++;
        if (c->op == WH_ALL_GATHER) return test_input(c->dtype, seed, owner, i);
        return test_input(c->dtype, seed, owner, i - r.first + test_slice(c, ranks, rank).first);
    default:
        return test_reduced(c->dtype, c->redop, seed, i, ranks);
    }
}

#endif
