#include "run/bench_coll_data.h"

#include "base/tree.h"

union value {
    float f;
    double d;
    uint32_t u; /* integers wrap: as unsigned, so that it is defined */
    uint64_t w;
};

static uint64_t mix(uint32_t rank, uint64_t i) {
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    return h ^ (h >> 27);
}

/* Sign and mantissa from the hash, the exponent one of sixteen around 1. */
static union value input(enum wh_dtype dtype, uint32_t rank, uint64_t i) {
    const uint64_t h = mix(rank, i);
    const uint32_t bits = ((uint32_t)h & 0x807fffffu) | ((119u + (uint32_t)(h >> 40) % 16u) << 23);
    union value v = {.w = h};
    if (dtype == WH_I64) return v;
    v.u = (uint32_t)h;
    if (dtype == WH_I32) return v;
    v.u = bits;
    if (dtype == WH_BF16) v.f = wh_bf16_to_f32(wh_f32_to_bf16(v.f));
    if (dtype == WH_F64) v.d = (double)v.f * (1.0 + (double)(h >> 44) * 0x1p-48);
    return v;
}

static void store(enum wh_dtype dtype, union value v, void *out) {
    const uint16_t half = dtype == WH_BF16 ? wh_f32_to_bf16(v.f) : 0;
    memcpy(out, dtype == WH_BF16 ? (const void *)&half : &v, wh_dtype_bytes(dtype));
}

static union value add(enum wh_dtype dtype, union value a, union value b) {
    switch (dtype) {
    case WH_F64:
        return (union value){.d = a.d + b.d};
    case WH_I32:
        return (union value){.u = a.u + b.u};
    case WH_I64:
        return (union value){.w = a.w + b.w};
    default:
        return (union value){.f = a.f + b.f};
    }
}

static bool below(enum wh_dtype dtype, union value a, union value b) {
    switch (dtype) {
    case WH_F64:
        return a.d < b.d;
    case WH_I32:
        return (int32_t)a.u < (int32_t)b.u;
    case WH_I64:
        return (int64_t)a.w < (int64_t)b.w;
    default:
        return a.f < b.f;
    }
}

static union value combine(enum wh_dtype dtype, enum wh_redop redop, union value a, union value b) {
    union value sum = add(dtype, a, b);
    if (redop == WH_SUM_ROUNDED && dtype == WH_BF16) sum.f = wh_bf16_to_f32(wh_f32_to_bf16(sum.f));
    if (wh_redop_sums(redop)) return sum;
    return below(dtype, a, b) == (redop == WH_MAX) ? b : a;
}

void wh_bench_coll_input(enum wh_dtype dtype, uint32_t rank, uint64_t i, void *out) {
    store(dtype, input(dtype, rank, i), out);
}

void wh_bench_coll_reduced(enum wh_dtype dtype, enum wh_redop redop, uint32_t ranks, uint64_t i, void *out) {
    union value stack[WH_TREE_DEPTH_MAX];
    unsigned on_stack = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        stack[on_stack++] = input(dtype, r, i);
        for (unsigned m = wh_tree_merges(r, ranks); m > 0; m--, on_stack--)
            stack[on_stack - 2] = combine(dtype, redop, stack[on_stack - 2], stack[on_stack - 1]);
    }
    store(dtype, stack[0], out);
}
