/* Measures what the ranks of a group can do: latency and time per message and byte of messages, time per byte of adding
 * and copying, and the same for the shared-memory paths; at a few sizes, because caches count (coll/links.h).
 *
 *     struct wh_probe_links_what what = {.scratch = gradients, .scratch_bytes = bytes, .machine = machine};
 *     WH_TRY(wh_probe_links(comm, &what, &links));      // in every member; equal results on all
 *     WH_TRY(wh_comm_set_links(comm, &links));
 *
 * What is timed, each the best of at least five batches between barriers, of the slowest rank in each (others on the same
 * processors only ever take speed away, and medians then measure them):
 *
 *     a message            1 and 4 messages of 64 bytes at once from every rank: what a further one takes
 *     latency              a round of the ring's all-gather of 64 bytes a rank, what messages take of it left out
 *     message, per byte    the same round with slices of the level's size
 *     copy, add            every rank by itself, all at once: memcpy; sum of two halves by the kernel of the collectives
 *     arena, staged        all-reduce in place of 1 KiB (start) and of the level's size (rate)
 *
 * About 50 ms on two processors with the least time; the scratch buffer's contents are lost. */
#ifndef WH_RUN_PROBE_LINKS_H
#define WH_RUN_PROBE_LINKS_H

#include "coll/links.h"
#include "comm/comm.h"

struct wh_probe_links_what {
    void *scratch; /* of wh_comm_buffer: at least 16 KiB; levels go up to its size */
    size_t scratch_bytes;
    uint32_t factor;     /* from one level to the next; 0: 16, so 16 KiB, 256 KiB, 4 MiB */
    size_t max_bytes;    /* of the largest level; 0: 4 MiB */
    double seconds;      /* for each figure; 0: as short as can be */
    const char *machine; /* wh_probe_links_machine */
};

/* Names this machine as a file of links does. Before ranks are pinned: it counts the processors. */
void wh_probe_links_machine(char out[WH_COLL_LINKS_MACHINE_BYTES]);

/* Errors: those of comm, NOMEM, CONFIG (scratch too small). Groups of one rank: figures of one rank by itself. */
enum wh_status wh_probe_links(struct wh_comm *comm, const struct wh_probe_links_what *what, struct wh_coll_links *out);

#endif
