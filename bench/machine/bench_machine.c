/* What this machine is and its measured limits, as one JSON object: bench_machine [MOST_THREADS]. */
#include <stdio.h>
#include <stdlib.h>

#include "os/probe.h"

static void add_peaks(struct wh_text *t, int threads) {
    static const char *const kernels[] = {"reference", "avx2", "avx512"};
    double gbs[WH_PROBE_MEMORY_COUNT], best = 0;
    wh_text_add(t, "{\"threads\": %d", threads);
    for (int i = 0; i < 3; i++) {
        double gflops = wh_probe_fma_gflops(threads, kernels[i]);
        if (gflops > 0) wh_text_add(t, ", \"%s_gflops\": %.1f", kernels[i], gflops);
        if (gflops > best) best = gflops;
    }
    wh_text_add(t, ", \"best_gflops\": %.1f", best);
    if (wh_probe_memory_gbs(threads, gbs) == WH_OK) {
        wh_text_add(t, ", \"read_gbs\": %.1f, \"copy_gbs\": %.1f, \"triad_gbs\": %.1f", gbs[WH_PROBE_READ],
                    gbs[WH_PROBE_COPY], gbs[WH_PROBE_TRIAD]);
    }
    wh_text_add(t, "}");
}

int main(int argc, char **argv) {
    int most = argc > 1 ? (int)strtol(argv[1], NULL, 10) : wh_probe_processors();
    struct wh_text t = {0};
    wh_text_add(&t, "{\"machine\": ");
    wh_probe_machine(&t);
    wh_text_add(&t, ",\n \"peaks\": [");
    for (int threads = 1; threads <= most; threads = threads < most && 2 * threads > most ? most : 2 * threads) {
        if (threads > 1) wh_text_add(&t, ",\n           ");
        add_peaks(&t, threads);
    }
    wh_text_add(&t, "]}");
    puts(t.data);
    wh_text_fini(&t);
    return 0;
}
