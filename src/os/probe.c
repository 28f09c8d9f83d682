#include "os/probe.h"

#include <omp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "os/clock.h"
#include "os/probe_int.h"

enum { FMA_ROUNDS = 15, FMA_ROUND_NS = 4000000, MEMORY_ROUNDS = 5, BLOCK_ELEMS = 128 };
static const size_t array_bytes_least = (size_t)64 << 20, array_bytes_most = (size_t)256 << 20;

/* Best first. */
static const struct wh_probe_loops *const all_loops[] = {&wh_probe_loops_avx512, &wh_probe_loops_avx2,
                                                         &wh_probe_loops_reference};

static bool can_run(const struct wh_probe_loops *l) {
    if (l == &wh_probe_loops_avx512) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    if (l == &wh_probe_loops_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return true;
}

static const struct wh_probe_loops *loops_named(const char *name) {
    bool any = !name || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof all_loops / sizeof *all_loops; i++) {
        if ((any || strcmp(name, all_loops[i]->name) == 0) && can_run(all_loops[i])) return all_loops[i];
    }
    return NULL;
}

/* Results of loops end here, so that no compiler drops them. */
static volatile uint64_t sink;

/* One round; all threads leave the first barrier together, so the time between the barriers is that of the slowest. */
static uint64_t fma_round_ns(const struct wh_probe_loops *l, int threads, size_t iterations) {
    uint64_t begin = 0, end = 0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
#pragma omp master
        begin = wh_clock_ns();
        uint64_t result = (uint64_t)l->fma(iterations);
#pragma omp barrier
#pragma omp master
        end = wh_clock_ns();
#pragma omp atomic
        sink += result;
    }
    return end - begin;
}

/* As many as take one undisturbed thread about FMA_ROUND_NS; disturbed, somewhat fewer. */
static size_t fma_iterations(const struct wh_probe_loops *l) {
    size_t iterations = 1000;
    for (;; iterations *= 2) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < 3; i++) {
            uint64_t ns = fma_round_ns(l, 1, iterations);
            if (ns < best) best = ns;
        }
        if (best >= FMA_ROUND_NS / 4) return (size_t)((double)iterations * FMA_ROUND_NS / (double)best);
    }
}

double wh_probe_fma_gflops(int threads, const char *kernels) {
    const struct wh_probe_loops *l = loops_named(kernels);
    if (!l || threads < 1) return 0;
    size_t iterations = fma_iterations(l);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < FMA_ROUNDS; i++) { /* the first also starts the threads */
        uint64_t ns = fma_round_ns(l, threads, iterations);
        if (ns < best) best = ns;
    }
    return (double)threads * (double)l->flops_per_iteration * (double)iterations / (double)best;
}

/* Text of a small file such as those of /proc and /sys, "" if there is none. */
static void small_file(const char *path, char *out, size_t bytes) {
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(out, 1, bytes - 1, f) : 0;
    if (f) fclose(f);
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

struct cache {
    char type[16];
    int level;
    size_t bytes;
};

/* Cache `index` of the first processor; false: no such cache. */
static bool read_cache(int index, struct cache *out) {
    char path[96], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
    small_file(path, text, sizeof text);
    if (!text[0]) return false;
    out->level = (int)strtol(text, NULL, 10);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
    small_file(path, out->type, sizeof out->type);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    small_file(path, text, sizeof text);
    char *unit;
    size_t size = strtoul(text, &unit, 10);
    out->bytes = size * (*unit == 'M' ? 1 << 20 : *unit == 'K' ? 1 << 10 : 1);
    return true;
}

static size_t array_elems(void) {
    size_t bytes = 0;
    struct cache c;
    for (int i = 0; read_cache(i, &c); i++) {
        if (2 * c.bytes > bytes) bytes = 2 * c.bytes;
    }
    if (bytes < array_bytes_least) bytes = array_bytes_least;
    if (bytes > array_bytes_most) bytes = array_bytes_most;
    return bytes / sizeof(float) / BLOCK_ELEMS * BLOCK_ELEMS;
}

struct memory_job {
    const struct wh_probe_loops *loops;
    float *a, *b, *c; /* 64-byte aligned */
    size_t elems;
};

/* Returns something that depends on what was read. */
static uint64_t memory_part(const struct memory_job *j, enum wh_probe_memory kind, size_t begin, size_t elems) {
    switch (kind) {
    case WH_PROBE_READ:
        return j->loops->read(j->a + begin, elems);
    case WH_PROBE_COPY:
        j->loops->copy(j->a + begin, j->b + begin, elems);
        break;
    default:
        j->loops->triad(j->a + begin, j->b + begin, j->c + begin, 0.5f, elems);
    }
    return 0;
}

static uint64_t memory_round_ns(const struct memory_job *j, enum wh_probe_memory kind, int threads) {
    uint64_t begin_ns = 0, end_ns = 0;
#pragma omp parallel num_threads(threads)
    {
        size_t blocks = j->elems / BLOCK_ELEMS, n = (size_t)omp_get_num_threads(), i = (size_t)omp_get_thread_num();
        size_t begin = blocks * i / n * BLOCK_ELEMS, end = blocks * (i + 1) / n * BLOCK_ELEMS;
#pragma omp barrier
#pragma omp master
        begin_ns = wh_clock_ns();
        uint64_t result = memory_part(j, kind, begin, end - begin);
#pragma omp barrier
#pragma omp master
        end_ns = wh_clock_ns();
#pragma omp atomic
        sink += result;
    }
    return end_ns - begin_ns;
}

enum wh_status wh_probe_memory_gbs(int threads, double gbs[WH_PROBE_MEMORY_COUNT]) {
    static const int arrays[WH_PROBE_MEMORY_COUNT] = {1, 2, 3};
    size_t elems = array_elems(), bytes = elems * sizeof(float);
    float *memory = aligned_alloc(64, 3 * bytes);
    if (!memory) return WH_FAIL(WH_NOMEM, "no memory for three arrays of %zu bytes to measure its speed", bytes);
    struct memory_job j = {loops_named(NULL), memory, memory + elems, memory + 2 * elems, elems};
#pragma omp parallel for num_threads(threads) schedule(static) /* pages come from where their thread runs */
    for (size_t i = 0; i < elems; i++) j.a[i] = 0, j.b[i] = 1, j.c[i] = 2;
    for (enum wh_probe_memory kind = 0; kind < WH_PROBE_MEMORY_COUNT; kind++) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < MEMORY_ROUNDS; i++) {
            uint64_t ns = memory_round_ns(&j, kind, threads);
            if (ns < best) best = ns;
        }
        gbs[kind] = (double)(arrays[kind] * bytes) / (double)best;
    }
    free(memory);
    return WH_OK;
}

int wh_probe_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : get_nprocs();
}

static void add_text(struct wh_text *out, const char *name, const char *value) {
    wh_text_add(out, "\"%s\": \"", name);
    for (const char *p = value; *p; p++) {
        if (*p == '"' || *p == '\\') wh_text_add(out, "\\");
        if ((unsigned char)*p >= ' ') wh_text_add_bytes(out, p, 1);
    }
    wh_text_add(out, "\"");
}

/* The first "model name" of /proc/cpuinfo. */
static void processor_name(char *out, size_t bytes) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (colon) snprintf(out, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f) fclose(f);
}

static void add_caches(struct wh_text *out) {
    struct cache c;
    wh_text_add(out, "\"caches\": [");
    for (int i = 0; read_cache(i, &c); i++) {
        wh_text_add(out, "%s{\"level\": %d, ", i ? ", " : "", c.level);
        add_text(out, "type", c.type);
        wh_text_add(out, ", \"bytes\": %zu}", c.bytes);
    }
    wh_text_add(out, "]");
}

void wh_probe_machine(struct wh_text *out) {
    char name[160];
    struct utsname kernel;
    struct sysinfo memory;
    processor_name(name, sizeof name);
    wh_text_add(out, "{");
    if (name[0]) add_text(out, "processor", name), wh_text_add(out, ", ");
    wh_text_add(out, "\"processors\": %d, \"kernels\": [", wh_probe_processors());
    for (size_t i = 0, n = 0; i < sizeof all_loops / sizeof *all_loops; i++) {
        if (can_run(all_loops[i])) wh_text_add(out, "%s\"%s\"", n++ ? ", " : "", all_loops[i]->name);
    }
    wh_text_add(out, "], ");
    add_caches(out);
    if (sysinfo(&memory) == 0) {
        wh_text_add(out, ", \"memory_bytes\": %llu", (unsigned long long)memory.totalram * memory.mem_unit);
    }
    if (uname(&kernel) == 0) wh_text_add(out, ", "), add_text(out, "linux", kernel.release);
    wh_text_add(out, ", ");
#ifdef __clang__
    add_text(out, "compiler", "clang " __clang_version__);
#else
    add_text(out, "compiler", "gcc " __VERSION__);
#endif
    wh_text_add(out, "}");
}
