/* The loop of one element type, included by reduce_body.h once for each after it has defined
 *
 *   VEC        vector of elements in which sums are made (unsigned for integers: they wrap)
 *   SIGNED     vector of the same shape that a > b compares as the type wants: floats, or signed integers
 *   BITS       integer vector of the same shape
 *   NANS(x)    BITS set where x is a NaN
 *   SIZE       bytes of an element
 *   combine, tree, pass, extremes, LOOP    names of the functions to define
 *
 * Layout of a step: STEP vectors of each input are loaded before any is stored, so that outputs may be inputs. */

/* max or min; associative, so that any order is the tree's. */
static inline VEC combine(enum wh_redop op, VEC a, VEC b) {
    SIGNED x = (SIGNED)a, y = (SIGNED)b;
    BITS left = (BITS)(op == WH_MAX ? x > y : x < y) | NANS(x);
    return (VEC)((left & (BITS)a) | (~left & (BITS)b));
}

/* The canonical tree over n = 1 .. 8. */
static inline __attribute__((always_inline)) VEC tree(const VEC *x, uint32_t n) {
    if (n == 1) return x[0];
    if (n == 2) return x[0] + x[1];
    if (n == 3) return (x[0] + x[1]) + x[2];
    VEC four = (x[0] + x[1]) + (x[2] + x[3]);
    if (n == 4) return four;
    if (n == 5) return four + x[4];
    if (n == 6) return four + (x[4] + x[5]);
    if (n == 7) return four + ((x[4] + x[5]) + x[6]);
    return four + ((x[4] + x[5]) + (x[6] + x[7]));
}

static inline __attribute__((always_inline)) void pass(const void *const *in, uint32_t n, void *const *out,
                                                       uint32_t outs, size_t bytes) {
    size_t at = 0;
    VEC x[WH_REDUCE_STREAMS], sum[STEP];
    for (; at + sizeof sum <= bytes; at += sizeof sum) {
#pragma GCC unroll 8
        for (size_t u = 0; u < STEP; u++) {
#pragma GCC unroll 8
            for (uint32_t i = 0; i < n; i++) memcpy(&x[i], (const char *)in[i] + at + u * sizeof(VEC), sizeof(VEC));
            sum[u] = tree(x, n);
        }
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, sum, sizeof sum);
    }
    for (; at < bytes; at += sizeof(VEC)) {
        size_t part = bytes - at < sizeof(VEC) ? bytes - at : sizeof(VEC);
        for (uint32_t i = 0; i < n; i++) x[i] = (VEC){0}, memcpy(&x[i], (const char *)in[i] + at, part);
        sum[0] = tree(x, n);
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, sum, part);
    }
}

static void extremes(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs,
                     size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(VEC)) {
        size_t part = bytes - at < sizeof(VEC) ? bytes - at : sizeof(VEC);
        VEC most = {0}, x = {0};
        memcpy(&most, (const char *)in[0] + at, part);
        for (uint32_t i = 1; i < n; i++) memcpy(&x, (const char *)in[i] + at, part), most = combine(op, most, x);
        for (uint32_t o = 0; o < outs; o++) memcpy((char *)out[o] + at, &most, part);
    }
}

/* One copy of `pass` for each n of a sum, so that the tree is straight code in registers. */
static void LOOP(enum wh_redop op, const void *const *in, uint32_t n, void *const *out, uint32_t outs, size_t elems) {
    size_t bytes = elems * SIZE;
#define FOR_N(N)                       \
    case N:                            \
        pass(in, N, out, outs, bytes); \
        break;
    if (op != WH_SUM) {
        extremes(op, in, n, out, outs, bytes);
        return;
    }
    switch (n) { FOR_N(1) FOR_N(2) FOR_N(3) FOR_N(4) FOR_N(5) FOR_N(6) FOR_N(7) FOR_N(8) }
#undef FOR_N
}

#undef VEC
#undef SIGNED
#undef BITS
#undef NANS
#undef SIZE
#undef combine
#undef tree
#undef pass
#undef extremes
#undef LOOP
