/* Which cores the ranks of this machine get. Cores are taken in the machine's own order (memory node, then shared
 * last-level cache, then core), each rank a run of neighbours, so that ranks that are close in number share caches and
 * the tree of a sum over ranks follows the machine. Second threads of a core go with it.
 *
 *     struct wh_topology *t;
 *     WH_TRY(wh_topology_new(4, &t));          // before the fork
 *     wh_topology_pin(t, rank);                // in the rank, before its first OpenMP region and before it touches memory
 *     wh_topology_describe(t, &text);          // what was done, for the log
 *
 * Counts only cores that this process may use (container, taskset, scheduler). Source: hwloc. */
#ifndef WH_OS_TOPOLOGY_H
#define WH_OS_TOPOLOGY_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct wh_topology;

/* With more ranks than cores nobody is pinned: the kernel spreads them better than we could. Errors: NOMEM, IO. */
enum wh_status wh_topology_new(uint32_t ranks, struct wh_topology **out);
void wh_topology_free(struct wh_topology *t); /* takes NULL */

/* Binds this process (its coming threads too) to the rank's cores; does nothing where nobody is pinned. Errors: IO. */
enum wh_status wh_topology_pin(const struct wh_topology *t, uint32_t rank);

uint32_t wh_topology_cores(const struct wh_topology *t);
uint32_t wh_topology_rank_cores(const struct wh_topology *t, uint32_t rank); /* 0: not pinned */

/* "8 cores, 2 last-level caches, 1 memory node; 4 ranks, pinned: 0 on cores 0-1, ..." or why nobody is. One line. */
void wh_topology_describe(const struct wh_topology *t, struct wh_text *out);

#endif
