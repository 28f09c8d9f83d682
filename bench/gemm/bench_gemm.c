/* The project's GEMM beside OpenBLAS and oneDNN on training shapes. CSV on stdout, medians as lines that begin with #.
 *
 *     bench_gemm [--quick] [--threads N] [--kernel NAME] [--only TEXT] [--ms N]
 *
 *   --quick      a dozen shapes, under a minute
 *   --threads N  only N threads (default: 1, then 2)
 *   --kernel S   only these kernels (default: all SIMD ones that run here)
 *   --only S     only rows whose "form name tokens" contains S
 *   --ms N       time for each competitor and shape (default 60)
 *
 * Every shape is run by all competitors in turn, several rounds; the figure is the fastest call of all rounds (other
 * programs on the machine can only slow a call down). The multiply-add peak is measured between the shapes and taken as
 * the fastest of the whole run, with as many threads as the product uses; AVX2 and AVX-512 each have their own.
 * Products: NN input gradient (dY W), NT forward (X W^T), TN weight gradient (dY^T X).
 *
 * Link: libwanhe.a -ldl. Libraries are loaded at run time and left out if absent. */
#include <dlfcn.h>
#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "os/clock.h"
#include "tensor/gemm.h"

enum { GRAINS = 8, GRAIN_DEPTH = 4, SHAPES_MAX = 512, ROUNDS = 3 };
enum competitor { OURS, OURS_GRAINS, OPENBLAS, ONEDNN, COMPETITORS };
enum form { NN, NT, TN };
static const char *const form_names[] = {"NN", "NT", "TN"};

typedef void (*cblas_sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                               float *, int);
typedef int (*dnnl_sgemm_fn)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *,
                             int64_t, float, float *, int64_t);

static cblas_sgemm_fn openblas_sgemm;
static void (*openblas_threads)(int);
static dnnl_sgemm_fn onednn_sgemm;

struct shape {
    enum form form;
    const char *name;
    size_t tokens, width; /* C */
    size_t m, n, k;
};

struct result {
    struct shape shape;
    double gflops[COMPETITORS];
};

struct options {
    bool quick;
    int threads;
    const char *kernel, *only;
    double ms;
};

static double now(void) { return (double)wh_clock_ns() * 1e-9; }

/* Each library gets the instruction set that ours has. OpenBLAS 0.3.21 takes newer processors for an SSE3 one unless
 * told; its idle threads spin 2^26 cycles by default, into the others' turns. */
static void load_libraries(bool avx512) {
    setenv("OPENBLAS_THREAD_TIMEOUT", "20", 1);
    setenv("OPENBLAS_CORETYPE", avx512 ? "SkylakeX" : "Haswell", 0);
    if (!avx512) setenv("DNNL_MAX_CPU_ISA", "AVX2", 0);
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL),
         *dnnl = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (blas) {
        *(void **)&openblas_sgemm = dlsym(blas, "cblas_sgemm");
        *(void **)&openblas_threads = dlsym(blas, "openblas_set_num_threads");
        char *(*core)(void);
        *(void **)&core = dlsym(blas, "openblas_get_corename");
        if (core) printf("# OpenBLAS core %s\n", core());
    }
    if (dnnl) *(void **)&onednn_sgemm = dlsym(dnnl, "dnnl_sgemm");
    if (!openblas_sgemm) printf("# no OpenBLAS\n");
    if (!onednn_sgemm) printf("# no oneDNN\n");
}

/* --------------------------------------------------------------------------------------------- peak */

/* 24 chains: enough for a latency of 4 on two units, few enough for the registers. */
__attribute__((target("avx512f"))) static void burn_avx512(size_t steps) {
    __m512 acc[24], x = _mm512_set1_ps(0.5f);
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) acc[i] = _mm512_set1_ps((float)i);
    for (size_t s = 0; s < steps; s++) {
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) acc[i] = _mm512_fmadd_ps(x, x, acc[i]);
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) __asm__ volatile("" : "+v"(acc[i]));
    }
}

__attribute__((target("avx2,fma"))) static void burn_avx2(size_t steps) {
    __m256 acc[12], x = _mm256_set1_ps(0.5f);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) acc[i] = _mm256_set1_ps((float)i);
    for (size_t s = 0; s < steps; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) acc[i] = _mm256_fmadd_ps(x, x, acc[i]);
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) __asm__ volatile("" : "+x"(acc[i]));
    }
}

/* GFLOP/s of `threads` threads at once, one sample of about two milliseconds. */
static double peak_sample(bool avx512, int threads) {
    size_t steps = 300000;
    double start = now();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) avx512 ? burn_avx512(steps) : burn_avx2(2 * steps);
    double flops = (avx512 ? 24.0 * 16 : 2 * 12.0 * 8) * 2 * (double)steps * threads;
    return flops / (now() - start) * 1e-9;
}

/* --------------------------------------------------------------------------------------------- shapes */

static size_t add_layer(struct shape *out, const char *name, size_t C, size_t T, size_t in, size_t n) {
    out[0] = (struct shape){NT, name, T, C, T, n, in};
    out[1] = (struct shape){NN, name, T, C, T, in, n};
    out[2] = (struct shape){TN, name, T, C, n, in, T};
    return 3;
}

static size_t list_shapes(struct shape *out, bool quick) {
    static const size_t all_tokens[] = {64, 128, 256, 512, 1024, 2048}, quick_tokens[] = {64, 512};
    const size_t *tokens = quick ? quick_tokens : all_tokens;
    size_t n = 0, token_count = quick ? 2 : 6;
    for (size_t t = 0; t < token_count; t++) {
        size_t T = tokens[t];
        n += add_layer(out + n, "qkv", 768, T, 768, 2304);
        n += add_layer(out + n, "out", 768, T, 768, 768);
        n += add_layer(out + n, "down", 768, T, 3072, 768);
        if (quick) continue;
        n += add_layer(out + n, "up", 768, T, 768, 3072);
        if (T <= 512) n += add_layer(out + n, "vocab", 768, T, 768, 50304);
        n += add_layer(out + n, "qkv", 384, T, 384, 1152);
        n += add_layer(out + n, "down", 384, T, 1536, 384);
        n += add_layer(out + n, "vocab4k", 384, T, 384, 4096);
        if (T == 512) {
            n += add_layer(out + n, "qkv", 64, T, 64, 192);
            n += add_layer(out + n, "qkv", 128, T, 128, 384);
            n += add_layer(out + n, "down", 192, T, 768, 192);
        }
        n += add_layer(out + n, "up", 1024, T, 1024, 4096); /* leading dimensions that are multiples of 1024 */
    }
    return n;
}

/* --------------------------------------------------------------------------------------------- running */

struct operands {
    float *a, *b, *c;
};

static float *filled(size_t elems) {
    float *x;
    if (posix_memalign((void **)&x, 64, elems * sizeof *x)) abort();
    uint32_t state = 12345;
    for (size_t i = 0; i < elems; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((int32_t)state >> 8) * 0x1p-23f;
    }
    return x;
}

static void run_ours(const struct shape *s, const struct operands *o, const struct wh_gemm_pool *pool, size_t grains) {
    struct wh_gemm_part parts[GRAINS];
    for (size_t g = 0; g < grains; g++) {
        size_t begin = s->k * g / grains, end = s->k * (g + 1) / grains;
        parts[g] = (struct wh_gemm_part){(uint32_t)begin, (uint32_t)(end - begin), true};
    }
    struct wh_gemm g = {.m = s->m, .n = s->n, .k = s->k, .parts = parts, .part_count = grains};
    g.a = (struct wh_gemm_in){o->a, WH_F32, s->form == TN ? s->m : s->k, s->form == TN};
    g.b = (struct wh_gemm_in){o->b, WH_F32, s->form == NT ? s->k : s->n, s->form == NT};
    g.c = (struct wh_gemm_out){o->c, WH_F32, s->n};
    wh_gemm_run(&g, pool);
}

static void run_one(enum competitor who, const struct shape *s, const struct operands *o,
                    const struct wh_gemm_pool *pool) {
    int m = (int)s->m, n = (int)s->n, k = (int)s->k, lda = s->form == TN ? m : k, ldb = s->form == NT ? k : n;
    if (who == OURS) run_ours(s, o, pool, 1);
    if (who == OURS_GRAINS) run_ours(s, o, pool, GRAINS);
    if (who == OPENBLAS)
        openblas_sgemm(101, s->form == TN ? 112 : 111, s->form == NT ? 112 : 111, m, n, k, 1.0f, o->a, lda, o->b, ldb,
                       0.0f, o->c, n);
    if (who == ONEDNN)
        onednn_sgemm(s->form == TN ? 'T' : 'N', s->form == NT ? 'T' : 'N', m, n, k, 1.0f, o->a, lda, o->b, ldb, 0.0f,
                     o->c, n);
}

/* Fastest call in seconds: at least two after an unmeasured one. */
static double fastest(enum competitor who, const struct shape *s, const struct operands *o,
                      const struct wh_gemm_pool *pool, double seconds) {
    double best = 1e9, begin = now();
    run_one(who, s, o, pool);
    for (int i = 0; i < 2 || (i < 100 && now() - begin < seconds); i++) {
        double start = now();
        run_one(who, s, o, pool);
        double took = now() - start;
        if (took < best) best = took;
    }
    nanosleep(&(struct timespec){0, 1000000}, NULL); /* its idle threads stop spinning */
    return best;
}

static bool present(enum competitor who) {
    return who == OPENBLAS ? openblas_sgemm != NULL : who == ONEDNN ? onednn_sgemm != NULL : true;
}

static struct result measure(const struct shape *s, const struct wh_gemm_pool *pool, double ms) {
    struct operands o = {filled(s->m * s->k), filled(s->k * s->n), filled(s->m * s->n)};
    double best[COMPETITORS] = {1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < ROUNDS; round++)
        for (int who = 0; who < COMPETITORS; who++) {
            if (!present((enum competitor)who)) continue;
            double t = fastest((enum competitor)who, s, &o, pool, ms * 1e-3 / ROUNDS);
            if (t < best[who]) best[who] = t;
        }
    struct result r = {.shape = *s};
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    for (int who = 0; who < COMPETITORS; who++) r.gflops[who] = best[who] < 1e9 ? flops / best[who] * 1e-9 : 0;
    free(o.a), free(o.b), free(o.c);
    return r;
}

/* --------------------------------------------------------------------------------------------- report */

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    if (n == 0) return 0;
    qsort(v, n, sizeof *v, compare_double);
    return v[n / 2];
}

static void print_medians(const struct result *r, size_t count, double peak, const char *kernel, int threads,
                          const char *label, int form, size_t tokens_min, size_t tokens_max) {
    double share[SHAPES_MAX], grains[SHAPES_MAX], blas[SHAPES_MAX], dnnl[SHAPES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const struct shape *s = &r[i].shape;
        if (s->width < 384 || s->tokens < tokens_min || s->tokens > tokens_max) continue;
        if (form >= 0 && s->form != (enum form)form) continue;
        share[n] = r[i].gflops[OURS] / peak;
        grains[n] = r[i].gflops[OURS_GRAINS] / r[i].gflops[OURS];
        blas[n] = r[i].gflops[OPENBLAS] > 0 ? r[i].gflops[OURS] / r[i].gflops[OPENBLAS] : 0;
        dnnl[n] = r[i].gflops[ONEDNN] > 0 ? r[i].gflops[OURS] / r[i].gflops[ONEDNN] : 0;
        n++;
    }
    if (n == 0) return;
    double low_blas = 1e9, low_dnnl = 1e9, low_share = 1e9;
    for (size_t i = 0; i < n; i++) {
        if (blas[i] < low_blas) low_blas = blas[i];
        if (dnnl[i] < low_dnnl) low_dnnl = dnnl[i];
        if (share[i] < low_share) low_share = share[i];
    }
    printf(
        "# %s %d threads, %s %s (%zu shapes): %.1f %% of peak (least %.1f), 8 grains/1 %.3f, / OpenBLAS %.2f (least "
        "%.2f), / oneDNN %.2f (least %.2f)\n",
        kernel, threads, label, form >= 0 ? form_names[form] : "all", n, 100 * median(share, n), 100 * low_share,
        median(grains, n), median(blas, n), low_blas, median(dnnl, n), low_dnnl);
}

static void run_all(const char *kernel, int threads, const struct options *opt) {
    static struct shape shapes[SHAPES_MAX];
    static struct result results[SHAPES_MAX];
    struct wh_gemm_pool pool = {.threads = threads, .grain_depth = GRAIN_DEPTH, .kernel = wh_gemm_select(kernel)};
    if (!pool.kernel) return;
    if (posix_memalign(&pool.workspace, 64, wh_gemm_workspace_bytes(threads, GRAIN_DEPTH))) abort();
    if (openblas_threads) openblas_threads(threads);
    omp_set_num_threads(threads); /* oneDNN */
    bool avx512 = strcmp(kernel, "avx512") == 0;
    size_t count = list_shapes(shapes, opt->quick), done = 0;
    double peak = 0;
    for (size_t i = 0; i < count; i++) {
        char label[96];
        snprintf(label, sizeof label, "%s %s C%zu T%zu", form_names[shapes[i].form], shapes[i].name, shapes[i].width,
                 shapes[i].tokens);
        if (opt->only && !strstr(label, opt->only)) continue;
        for (int p = 0; p < 3; p++) {
            double sample = peak_sample(avx512, threads);
            if (sample > peak) peak = sample;
        }
        results[done++] = measure(&shapes[i], &pool, opt->ms);
    }
    for (size_t i = 0; i < done; i++) {
        const struct result *r = &results[i];
        const struct shape *s = &r->shape;
        double ours = r->gflops[OURS], blas = r->gflops[OPENBLAS], dnnl = r->gflops[ONEDNN];
        printf("%s,%d,%s,%s,%zu,%zu,%zu,%zu,%zu,%.1f,%.1f,%.1f,%.1f,%.1f,%.3f,%.3f,%.3f\n", kernel, threads,
               form_names[s->form], s->name, s->width, s->tokens, s->m, s->n, s->k, ours, r->gflops[OURS_GRAINS], blas,
               dnnl, 100 * ours / peak, r->gflops[OURS_GRAINS] / ours, blas > 0 ? ours / blas : 0,
               dnnl > 0 ? ours / dnnl : 0);
    }
    printf("# %s %d threads: peak %.1f GFLOP/s\n", kernel, threads, peak);
    for (int form = -1; form <= TN; form++)
        print_medians(results, done, peak, kernel, threads, "C>=384 tokens>=256", form, 256, SIZE_MAX);
    print_medians(results, done, peak, kernel, threads, "C>=384 tokens=64", -1, 64, 64);
    fflush(stdout);
    free(pool.workspace);
}

int main(int argc, char **argv) {
    struct options opt = {.ms = 60};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--quick") == 0) {
            opt.quick = true;
            continue;
        }
        if (!value) return fprintf(stderr, "bench_gemm: unknown option or missing value: %s\n", argv[i]), 2;
        if (strcmp(argv[i], "--threads") == 0)
            opt.threads = atoi(value);
        else if (strcmp(argv[i], "--kernel") == 0)
            opt.kernel = value;
        else if (strcmp(argv[i], "--only") == 0)
            opt.only = value;
        else if (strcmp(argv[i], "--ms") == 0)
            opt.ms = atof(value);
        else
            return fprintf(stderr, "bench_gemm: unknown option %s\n", argv[i]), 2;
        i++;
    }
    printf(
        "kernel,threads,form,layer,C,tokens,m,n,k,ours,ours_8_grains,openblas,onednn,percent_of_peak,grains_ratio,"
        "vs_openblas,vs_onednn\n");
    int failed = 0;
    for (int avx512 = 1; avx512 >= 0; avx512--) {
        const char *name = avx512 ? "avx512" : "avx2";
        if (opt.kernel && strcmp(opt.kernel, name) != 0) continue;
        fflush(stdout);
        pid_t child = fork(); /* libraries read their settings when they are loaded */
        if (child == 0) {
            load_libraries(avx512);
            for (int threads = 1; threads <= 2; threads++)
                if (!opt.threads || threads == opt.threads) run_all(name, threads, &opt);
            exit(0);
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) failed = 1;
    }
    return failed;
}
