#include "os/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

enum wh_status wh_memory_reserve(size_t bytes, void **out) {
    *out = NULL;
    if (bytes == 0) return WH_OK;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return WH_FAIL(WH_NOMEM, "cannot reserve %zu bytes: %s", bytes, strerror(errno));
    if (bytes >= 2 * (size_t)HUGE_PAGE_BYTES) madvise(p, bytes, MADV_HUGEPAGE); /* only an advice: failure is fine */
    *out = p;
    return WH_OK;
}

void wh_memory_release(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

size_t wh_memory_peak_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}

size_t wh_memory_available_bytes(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    size_t kib = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1) break;
    fclose(f);
    return kib * 1024;
}
