/* Measures what the ranks of a group can do: latency and time per message and byte of messages, time per byte of adding
 * and copying, and the same for the shared-memory paths; at a few sizes, because caches count (coll/links.h).
 *
 *     struct wh_probe_links_what what = {.scratch = gradients, .scratch_bytes = bytes, .machine = machine};
 *     WH_TRY(wh_probe_links(comm, &what, &links));      // in every member; equal results on all
 *     WH_TRY(wh_comm_set_links(comm, &links));
 *
 * What is timed, each the best of at least five batches between barriers, of the slowest rank in each (others on the same
 * processors only ever take speed away, and medians then measure them). What is sent or summed has just been written by its
 * rank, as in a step: else it would lie in its readers' caches from the time before.
 *
 *     a message            1 and 4 messages of 64 bytes at once from every rank: what a further one takes
 *     latency              64 bytes from every rank to the next, what messages take of it left out
 *     piped, placed        half a level's bytes from every rank to the next: out of own memory, out of the arena
 *     copy, add            every rank by itself, all at once: memcpy; sum of two halves by the kernel of the collectives
 *     arena, staged        all-reduce in place of 1 KiB (start); all-reduce, reduce-scatter and all-gather in place of the
 *                          level's size (rates)
 *
 * About 50 ms on two processors with the least time. */
#ifndef WH_RUN_PROBE_LINKS_H
#define WH_RUN_PROBE_LINKS_H

#include "coll/links.h"
#include "comm/comm.h"

enum { WH_PROBE_LINKS_LEVEL_BYTES = 16 << 10 };                        /* the first level */
enum { WH_PROBE_LINKS_LEAST_BYTES = WH_PROBE_LINKS_LEVEL_BYTES + 64 }; /* that, wherever it begins */

struct wh_probe_links_what {
    void *scratch; /* of wh_comm_buffer; used from its first whole cache line on, up to its size. Zeros afterwards */
    size_t scratch_bytes;
    uint32_t factor;  /* from one level to the next; 0: 16, so 16 KiB, 256 KiB, and the last */
    size_t max_bytes; /* of the last level; 0: 4 MiB */
    double seconds;   /* for each figure; 0: as short as can be */
    uint32_t passes;  /* over all of it, of which medians are taken; 0: one, at most 5; equal levels: without a limit */
    double limit_s;   /* when so much is over, a figure is one batch and no further level begins; 0: none */
    const char *machine; /* wh_probe_links_machine */
};

/* Names this machine as a file of links does. Before ranks are pinned: it counts the processors. */
void wh_probe_links_machine(char out[WH_COLL_LINKS_MACHINE_BYTES]);

/* Errors: those of comm, NOMEM, CONFIG (scratch too small). Groups of one rank: figures of one rank by itself. */
enum wh_status wh_probe_links(struct wh_comm *comm, const struct wh_probe_links_what *what, struct wh_coll_links *out);

#endif
