#include "comm/reduce.h"

#include <string.h>

#include "comm/reduce_int.h"

/* Bytes of accumulated values in a tile; five of them (64 ranks) fit the first-level cache beside 8 input streams. The
 * last bf16 block of a tile is written whole: TILE_BYTES is a multiple of any block. */
enum { TILE_BYTES = 4096, LEVELS = 5 };

static bool runs_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static bool runs_avx512(void) {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool runs_always(void) { return true; }

const struct wh_reduce *wh_reduce_select(const char *name) {
    static const struct {
        const struct wh_reduce *table;
        bool (*runs)(void);
    } best_first[] = {
        {&wh_reduce_avx512, runs_avx512}, {&wh_reduce_avx2, runs_avx2}, {&wh_reduce_reference, runs_always}};
    for (size_t i = 0; i < sizeof best_first / sizeof best_first[0]; i++)
        if ((name == NULL || strcmp(name, best_first[i].table->name) == 0) && best_first[i].runs())
            return best_first[i].table;
    return NULL;
}

const char *wh_reduce_name(const struct wh_reduce *r) { return r->name; }

bool wh_reduce_has(enum wh_dtype type) {
    return type == WH_F32 || type == WH_BF16 || type == WH_F64 || type == WH_I32 || type == WH_I64;
}

static wh_reduce_loop *loop_of(const struct wh_reduce *r, enum wh_dtype type) {
    switch (type) {
    case WH_F32:
        return r->f32;
    case WH_F64:
        return r->f64;
    case WH_I32:
        return r->i32;
    case WH_I64:
        return r->i64;
    case WH_BF16:
        return r->bf16;
    default:
        WH_ASSERT(!"a type that has sums");
        return NULL;
    }
}

/* A sum over more streams than one loop takes, in tiles of accumulated values. */
struct wide {
    wh_reduce_loop *leaf, *join; /* inputs to a tile; two tiles to one */
    enum wh_redop op;
    const void *const *in;
    size_t at_bytes, elems, join_elems;
    _Alignas(64) char tile[LEVELS][TILE_BYTES];
};

static void wide_tree(struct wide *w, uint32_t begin, uint32_t n, int level) {
    void *const out = w->tile[level];
    if (n <= WH_REDUCE_STREAMS) {
        const void *in[WH_REDUCE_STREAMS];
        for (uint32_t i = 0; i < n; i++) in[i] = (const char *)w->in[begin + i] + w->at_bytes;
        w->leaf(w->op, in, n, &out, 1, w->elems);
        return;
    }
    uint32_t left = WH_REDUCE_STREAMS;
    while (left * 2 < n) left *= 2;
    wide_tree(w, begin, left, level);
    wide_tree(w, begin + left, n - left, level + 1);
    const void *const both[2] = {w->tile[level], w->tile[level + 1]};
    w->join(w->op, both, 2, &out, 1, w->join_elems);
}

void wh_reduce_run(const struct wh_reduce *r, enum wh_dtype type, enum wh_redop op, const void *const *in, uint32_t n,
                   void *const *out, uint32_t outs, size_t elems) {
    if (n <= WH_REDUCE_STREAMS) {
        loop_of(r, type)(op, in, n, out, outs, elems);
        return;
    }
    bool bf16 = type == WH_BF16;
    size_t size = wh_dtype_bytes(type), sum_size = bf16 ? sizeof(float) : size, most = TILE_BYTES / sum_size;
    struct wide w = {.leaf = bf16 ? r->bf16_widen : loop_of(r, type), .join = bf16 ? r->f32 : loop_of(r, type)};
    w.op = op, w.in = in;
    for (size_t begin = 0; begin < elems; begin += most) {
        w.elems = elems - begin < most ? elems - begin : most;
        w.join_elems = bf16 ? (w.elems + 31) / 32 * 32 : w.elems; /* 32: the longest block, 2 elements in 16 lanes */
        w.at_bytes = begin * size;
        wide_tree(&w, 0, n, 0);
        const void *const sum[1] = {w.tile[0]};
        for (uint32_t o = 0; o < outs; o += WH_COMM_RANKS_MAX) {
            void *to[WH_COMM_RANKS_MAX];
            uint32_t some = outs - o < WH_COMM_RANKS_MAX ? outs - o : WH_COMM_RANKS_MAX;
            for (uint32_t i = 0; i < some; i++) to[i] = (char *)out[o + i] + begin * size;
            if (bf16) r->bf16_narrow(sum[0], to, some, w.elems);
            if (!bf16) w.leaf(op, sum, 1, to, some, w.elems);
        }
    }
}
