/* Every set of kernels, one thread and two, against wh_gemm_reference: bit for bit, whole buffers (so that nothing
 * beside the product is touched either). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/tree.h"
#include "tensor/gemm.h"
#include "tensor/vec.h"

enum { GRAIN_DEPTH = 4, PARTS_MAX = 64, THREADS_MAX = 2 };

static const char *const kernel_names[] = {"reference", "avx2", "avx512"};
enum { KERNELS = sizeof kernel_names / sizeof kernel_names[0] };

static void *workspace;
static uint64_t seed = 88172645463325252u;

static uint32_t random_u32(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static size_t below(size_t n) { return random_u32() % n; }
static bool coin(void) { return random_u32() & 1; }

static size_t pick(const size_t *values, size_t count) { return values[below(count)]; }
#define PICK(values) pick(values, sizeof values / sizeof values[0])

/* Room for `elems`, filled with values in -1..1 of which some are zeros of both signs. */
static void *filled(enum wh_dtype dtype, size_t elems) {
    void *data = malloc(elems * wh_dtype_bytes(dtype) + 1);
    assert_non_null(data);
    for (size_t i = 0; i < elems; i++) {
        float v = (float)((int32_t)random_u32() >> 8) * 0x1p-23f;
        if (below(40) == 0) v = coin() ? 0.0f : -0.0f;
        if (dtype == WH_F32)
            ((float *)data)[i] = v;
        else
            ((uint16_t *)data)[i] = wh_f32_to_bf16(v);
    }
    return data;
}

static struct wh_gemm_in random_in(size_t rows, size_t cols, bool transposed) {
    struct wh_gemm_in x = {.dtype = below(3) ? WH_F32 : WH_BF16, .transposed = transposed};
    size_t height = transposed ? cols : rows, width = transposed ? rows : cols;
    x.ld = width + (coin() ? 0 : below(20));
    x.data = filled(x.dtype, height ? (height - 1) * x.ld + width : 0);
    return x;
}

static size_t out_bytes(const struct wh_gemm *g, const struct wh_gemm_out *x) {
    return g->m && g->n ? ((g->m - 1) * x->ld + g->n) * wh_dtype_bytes(x->dtype) : 0;
}

static struct wh_gemm_out random_out(size_t rows, size_t cols, enum wh_dtype dtype) {
    struct wh_gemm_out x = {.dtype = dtype, .ld = cols + (coin() ? 0 : below(20))};
    x.data = filled(dtype, rows * x.ld);
    return x;
}

/* k in `grains` grains of one to three parts, in random order and with gaps; some parts and grains empty. */
static size_t random_parts(struct wh_gemm_part *parts, size_t k, size_t grains) {
    size_t count = 0;
    for (size_t g = 0; g < grains; g++) {
        size_t in_grain = 1 + below(3);
        for (size_t p = 0; p < in_grain; p++) {
            size_t begin = below(k + 1), length = below(8) ? below((k - begin) / (coin() ? 1 : 3) + 1) : 0;
            parts[count++] = (struct wh_gemm_part){(uint32_t)begin, (uint32_t)length, p + 1 == in_grain};
        }
    }
    return count;
}

static size_t even_parts(struct wh_gemm_part *parts, size_t k, size_t grains) {
    for (size_t g = 0; g < grains; g++)
        parts[g] =
            (struct wh_gemm_part){(uint32_t)(k * g / grains), (uint32_t)(k * (g + 1) / grains - k * g / grains), true};
    return grains;
}

/* Runs the product into copies of C and `pre` and compares with the reference's. Residual may be C itself. */
static void check_case(const struct wh_gemm *g) {
    size_t c_bytes = out_bytes(g, &g->c), pre_bytes = g->pre.data ? out_bytes(g, &g->pre) : 0;
    void *c[2] = {malloc(c_bytes + 1), malloc(c_bytes + 1)}, *pre[2] = {malloc(pre_bytes + 1), malloc(pre_bytes + 1)};
    for (int run = -1; run < KERNELS * THREADS_MAX; run++) {
        struct wh_gemm copy = *g;
        int slot = run >= 0;
        memcpy(c[slot], g->c.data, c_bytes);
        copy.c.data = c[slot];
        if (g->residual.data == g->c.data) copy.residual.data = c[slot];
        if (g->pre.data) memcpy(pre[slot], g->pre.data, pre_bytes), copy.pre.data = pre[slot];
        if (run < 0) {
            wh_gemm_reference(&copy);
            continue;
        }
        struct wh_gemm_pool pool = {1 + run % THREADS_MAX, GRAIN_DEPTH, workspace,
                                    wh_gemm_select(kernel_names[run / THREADS_MAX])};
        if (!pool.kernel) continue;
        wh_gemm_run(&copy, &pool);
        bool equal = memcmp(c[0], c[1], c_bytes) == 0 && memcmp(pre[0], pre[1], pre_bytes) == 0;
        if (!equal)
            print_error("%s, %d threads: m %zu n %zu k %zu, %zu parts, a %d%d b %d%d c %d accumulate %d pre %d\n",
                        kernel_names[run / THREADS_MAX], pool.threads, g->m, g->n, g->k, g->part_count, g->a.dtype,
                        g->a.transposed, g->b.dtype, g->b.transposed, g->c.dtype, g->accumulate, g->pre.data != NULL);
        assert_true(equal);
    }
    for (int s = 0; s < 2; s++) free(c[s]), free(pre[s]);
}

static void random_epilogue(struct wh_gemm *g) {
    if (coin()) {
        g->bias_dtype = coin() ? WH_F32 : WH_BF16;
        g->bias = filled(g->bias_dtype, g->n);
    }
    if (coin()) g->pre = random_out(g->m, g->n, coin() ? WH_F32 : WH_BF16);
    if (coin()) g->activation = WH_GEMM_GELU_TANH;
    size_t residual = below(3);
    if (residual == 1) g->residual = random_in(g->m, g->n, false);
    if (residual == 2) g->residual = (struct wh_gemm_in){g->c.data, g->c.dtype, g->c.ld, false};
}

static void free_case(struct wh_gemm *g) {
    if (g->residual.data != g->c.data) free((void *)g->residual.data);
    free((void *)g->a.data);
    free((void *)g->b.data);
    free((void *)g->bias);
    free(g->pre.data);
    free(g->c.data);
}

static void random_case(size_t m, size_t n, size_t k, struct wh_gemm_part *parts, size_t part_count, bool epilogue) {
    struct wh_gemm g = {.m = m, .n = n, .k = k, .parts = parts, .part_count = part_count};
    g.a = random_in(m, k, coin());
    g.b = random_in(k, n, coin());
    g.c = random_out(m, n, below(3) ? WH_F32 : WH_BF16);
    g.accumulate = g.c.dtype == WH_F32 && coin();
    if (epilogue) random_epilogue(&g);
    check_case(&g);
    free_case(&g);
}

static void test_small_shapes(void **state) {
    (void)state;
    struct wh_gemm_part parts[PARTS_MAX];
    for (int i = 0; i < 400; i++) {
        size_t m = below(40), n = below(120), k = below(4) ? below(70) : below(3);
        size_t count = coin() ? random_parts(parts, k, 1 + below(9)) : 0;
        random_case(m, n, k, count ? parts : NULL, count, coin());
    }
}

/* One below, at and above the borders of tiles and blocks of every set of kernels. */
static void test_borders(void **state) {
    (void)state;
    static const size_t ms[] = {1, 5, 6, 7, 8, 9, 13, 17, 143, 144, 145, 255, 257, 263};
    static const size_t ns[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 97, 127};
    static const size_t ks[] = {1, 2, 31, 33, 63, 65, 319, 320, 321, 640, 641, 767, 768, 769, 1543};
    struct wh_gemm_part parts[PARTS_MAX];
    for (int i = 0; i < 40; i++) {
        size_t m = PICK(ms), n = PICK(ns), k = PICK(ks), kind = below(3), count = 0;
        if (m > 150 && k > 400) n = below(20);
        if (kind == 1) count = even_parts(parts, k, 1 + below(9));
        if (kind == 2) count = random_parts(parts, k, 1 + below(9));
        random_case(m, n, k, count ? parts : NULL, count, coin());
    }
}

/* Wide and high enough for several regions and threads, k for several blocks, subtrees pending between them. */
static void test_regions(void **state) {
    (void)state;
    struct wh_gemm_part parts[PARTS_MAX];
    random_case(3, 5000, 40, parts, even_parts(parts, 40, 3), true);
    random_case(1500, 8, 37, NULL, 0, false);
    random_case(700, 800, 1, NULL, 0, true);
    random_case(1400, 390, 9, parts, even_parts(parts, 9, 8), true);
    for (size_t i = 0; i < PARTS_MAX; i++) parts[i] = (struct wh_gemm_part){(uint32_t)i, 1, i % 8 == 7};
    random_case(20, 50, PARTS_MAX, parts, PARTS_MAX, true);
    random_case(9, 17, 7000, parts, even_parts(parts, 7000, 7), true);
}

/* Rows, columns and blocks of the product computed alone have the bits of the whole. */
static void test_sub_products(void **state) {
    (void)state;
    enum { M = 61, N = 130, K = 900 };
    struct wh_gemm_part parts[PARTS_MAX];
    struct wh_gemm_pool pool = {1, GRAIN_DEPTH, workspace, NULL};
    struct wh_gemm g = {.m = M, .n = N, .k = K, .parts = parts, .part_count = even_parts(parts, K, 6)};
    float *a = filled(WH_F32, M * K), *b = filled(WH_F32, K * N), *c = filled(WH_F32, M * N),
          *d = filled(WH_F32, M * N);
    g.a = (struct wh_gemm_in){a, WH_F32, K, false};
    g.b = (struct wh_gemm_in){b, WH_F32, N, false};
    g.c = (struct wh_gemm_out){c, WH_F32, N};
    wh_gemm_run(&g, &pool);
    for (int i = 0; i < 60; i++) {
        size_t i0 = below(M), j0 = below(N), m = 1 + below(M - i0), n = 1 + below(N - j0);
        struct wh_gemm s = g;
        s.m = m, s.n = n;
        s.a.data = a + i0 * K;
        s.b.data = b + j0;
        s.c.data = d + i0 * N + j0;
        wh_gemm_run(&s, &pool);
        for (size_t r = i0; r < i0 + m; r++) assert_memory_equal(c + r * N + j0, d + r * N + j0, n * sizeof(float));
    }
    free(a), free(b), free(c), free(d);
}

static void test_select(void **state) {
    (void)state;
    assert_non_null(wh_gemm_select(NULL));
    assert_non_null(wh_gemm_select("reference"));
    assert_null(wh_gemm_select("sse9"));
}

static int allocate_workspace(void **state) {
    (void)state;
    return posix_memalign(&workspace, 64, wh_gemm_workspace_bytes(THREADS_MAX, GRAIN_DEPTH));
}

static int free_workspace(void **state) {
    (void)state;
    free(workspace);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select),  cmocka_unit_test(test_small_shapes), cmocka_unit_test(test_borders),
        cmocka_unit_test(test_regions), cmocka_unit_test(test_sub_products),
    };
    return cmocka_run_group_tests(tests, allocate_workspace, free_workspace);
}
