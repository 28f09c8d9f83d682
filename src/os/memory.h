/* Large memory straight from the kernel: zeroed, page-aligned, with huge pages where the kernel offers them. */
#ifndef WH_OS_MEMORY_H
#define WH_OS_MEMORY_H

#include <stddef.h>

#include "base/status.h"

/* Reserves `bytes` (0 is fine: *out is then NULL). Pages are given by the kernel at first touch. Errors: NOMEM. */
enum wh_status wh_memory_reserve(size_t bytes, void **out);
void wh_memory_release(void *memory, size_t bytes);

/* Peak resident set of this process, in bytes. */
size_t wh_memory_peak_bytes(void);
/* What the kernel says could be taken without swapping, in bytes; 0 if unknown. */
size_t wh_memory_available_bytes(void);

#endif
