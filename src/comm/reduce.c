#include "comm/reduce.h"

#include <string.h>

#include "base/tree.h"
#include "comm/reduce_int.h"

/* Bytes of accumulated values in a tile; those of the canonical tree over 64 ranks, five, fit the first-level cache beside 8
 * input streams. The last bf16 block of a tile is written whole: TILE_BYTES is a multiple of any block. */
enum { TILE_BYTES = 4096 };

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

/* Only bf16 has joins to round. */
static enum wh_redop op_on(enum wh_dtype type, enum wh_redop op) {
    return op == WH_SUM_ROUNDED && type != WH_BF16 ? WH_SUM : op;
}

static wh_reduce_loop *loop_of(const struct wh_reduce *r, enum wh_dtype type, enum wh_redop op) {
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
        return op == WH_SUM_ROUNDED ? r->bf16_rounded : r->bf16;
    default:
        WH_ASSERT(!"a type that has sums");
        return NULL;
    }
}

/* A sum over more streams than one loop takes, or in an order of its own, in tiles of accumulated values. */
struct tiles {
    wh_reduce_loop *leaf, *join; /* inputs to a tile; two tiles to one */
    enum wh_redop op;
    bool widens; /* values on the stack are fp32 of bf16 inputs */
    const void *const *in;
    const uint8_t *merges;
    uint32_t n;
    char (*tile)[TILE_BYTES]; /* [WH_COMM_STACK_MAX] */
};

/* How many inputs from `i` on one loop can join: as many as the order joins to one before it joins that to what came
 * earlier, and in the way of the canonical tree. */
static uint32_t width_at(const uint8_t *merges, uint32_t i, uint32_t n) {
    uint32_t most = 1;
    merges += i;
    for (uint32_t w = 2; w <= n - i && w <= WH_REDUCE_STREAMS && merges[w - 2] == wh_tree_merges(w - 2, w); w++)
        if (merges[w - 1] >= wh_tree_merges(w - 1, w)) most = w;
    return most;
}

/* The sum of `elems` elements of every input from byte `at` on. Value `d` of the stack lies in tile `d` or is an input. */
static const void *reduce_tile(struct tiles *t, size_t at, size_t elems) {
    const void *stack[WH_COMM_STACK_MAX];
    size_t join_elems = t->widens ? (elems + 31) / 32 * 32 : elems; /* 32: the longest block, 2 elements in 16 lanes */
    uint32_t depth = 0;
    for (uint32_t i = 0, width; i < t->n; i += width) {
        const void *in[WH_REDUCE_STREAMS];
        void *out = t->tile[depth];
        width = width_at(t->merges, i, t->n);
        for (uint32_t k = 0; k < width; k++) in[k] = (const char *)t->in[i + k] + at;
        stack[depth] = width == 1 && !t->widens ? in[0] : out;
        if (stack[depth++] == out) t->leaf(t->op, in, width, &out, 1, elems);
        for (uint32_t m = t->merges[i + width - 1] - wh_tree_merges(width - 1, width); m > 0; m--) {
            depth--;
            out = t->tile[depth - 1];
            t->join(t->op, &stack[depth - 1], 2, &out, 1, join_elems);
            stack[depth - 1] = out;
        }
    }
    return stack[0];
}

static void reduce_tiles(const struct wh_reduce *r, enum wh_dtype type, struct tiles *t, void *const *out,
                         uint32_t outs, size_t elems) {
    size_t size = wh_dtype_bytes(type), most = TILE_BYTES / (t->widens ? sizeof(float) : size);
    t->leaf = t->widens ? r->bf16_widen : loop_of(r, type, t->op);
    t->join = t->widens ? r->f32 : loop_of(r, type, t->op);
    for (size_t begin = 0; begin < elems; begin += most) {
        size_t some = elems - begin < most ? elems - begin : most;
        const void *const sum[1] = {reduce_tile(t, begin * size, some)};
        for (uint32_t o = 0; o < outs; o += WH_COMM_RANKS_MAX) {
            void *to[WH_COMM_RANKS_MAX];
            uint32_t few = outs - o < WH_COMM_RANKS_MAX ? outs - o : WH_COMM_RANKS_MAX;
            for (uint32_t i = 0; i < few; i++) to[i] = (char *)out[o + i] + begin * size;
            if (t->widens) r->bf16_narrow(sum[0], to, few, some);
            if (!t->widens) t->leaf(t->op, sum, 1, to, few, some);
        }
    }
}

void wh_reduce_merge(const struct wh_reduce *r, enum wh_dtype type, enum wh_redop op, const void *const *in, uint32_t n,
                     const uint8_t *merges, void *const *out, uint32_t outs, size_t elems) {
    op = op_on(type, op);
    if (width_at(merges, 0, n) == n) {
        loop_of(r, type, op)(op, in, n, out, outs, elems);
        return;
    }
    _Alignas(64) char tile[WH_COMM_STACK_MAX][TILE_BYTES];
    struct tiles t = {.op = op, .in = in, .merges = merges, .n = n, .tile = tile};
    t.widens = type == WH_BF16 && op != WH_SUM_ROUNDED;
    reduce_tiles(r, type, &t, out, outs, elems);
}

void wh_reduce_run(const struct wh_reduce *r, enum wh_dtype type, enum wh_redop op, const void *const *in, uint32_t n,
                   void *const *out, uint32_t outs, size_t elems) {
    op = op_on(type, op);
    if (n <= WH_REDUCE_STREAMS) {
        loop_of(r, type, op)(op, in, n, out, outs, elems);
        return;
    }
    uint8_t merges[WH_COMM_RANKS_MAX * WH_COMM_INPUTS_MAX];
    for (uint32_t i = 0; i < n; i++) merges[i] = (uint8_t)wh_tree_merges(i, n);
    wh_reduce_merge(r, type, op, in, n, merges, out, outs, elems);
}
