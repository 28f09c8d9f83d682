/* What this machine is and can do, measured: the limits that "% of peak" and the benches refer to.
 *
 * Peaks are the best of several short rounds, since neighbours and clock changes only ever take speed away. All threads
 * start a round together; its time is that of the slowest. Start-up and benches only: this allocates and takes time. */
#ifndef WH_OS_PROBE_H
#define WH_OS_PROBE_H

#include "base/status.h"
#include "base/text.h"

/* fp32 multiply-adds per second in GFLOP/s (a multiply-add is two), `threads` threads, about 70 ms. Chains are
 * independent and live in registers: no memory is touched. `kernels`: "avx2" or "avx512" = the instructions of those
 * kernels, "reference" = multiply and add of the baseline instruction set, NULL or "auto" = the best that this processor
 * has. 0 if it can't run them or there are none of that name. */
double wh_probe_fma_gflops(int threads, const char *kernels);

/* Memory traffic in GB/s (1e9 bytes), counted as STREAM does: bytes that the program reads plus bytes that it writes,
 * through ordinary stores. Arrays are as large as twice the last-level cache, within 64 .. 256 MiB (so where that cache
 * is larger than 128 MiB, part of the traffic is served by it). About one second. Errors: NOMEM. */
enum wh_probe_memory { WH_PROBE_READ, WH_PROBE_COPY, WH_PROBE_TRIAD, WH_PROBE_MEMORY_COUNT }; /* triad: a = b + s*c */
enum wh_status wh_probe_memory_gbs(int threads, double gbs[WH_PROBE_MEMORY_COUNT]);

/* Processors that this process may run on. */
int wh_probe_processors(void);

/* Appends a JSON object: processor model, processors, instruction sets, caches, memory, kernel release, compiler. No
 * names of hosts or users. What can't be found out is left out. */
void wh_probe_machine(struct wh_text *out);

#endif
