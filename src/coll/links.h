/* What a machine's ranks were measured to do (run/probe_links.h), and what operations will take by it.
 *
 * Two ways of running an operation have different laws. Step lists over messages are priced step by step (cost.h). The
 * shared-memory paths of comm/ have no messages: everybody meets, then the bytes are read and written once. Their time is
 * start + bytes that a rank moves / rate; wh_coll_moved counts the bytes. Each operation has a rate of its own: they differ
 * in what of it must come out of another processor's caches.
 *
 * Rates depend on which cache the vector stays in. So they are kept for a few sizes of the vector; in between they go with
 * the logarithm of the size, beyond the last they stay. No rate stands for a size that nobody measured unless it is above
 * the largest.
 *
 * Pure. The file format is docs/formats/links.md. */
#ifndef WH_COLL_LINKS_H
#define WH_COLL_LINKS_H

#include "base/text.h"
#include "coll/select.h"

enum { WH_COLL_LEVELS_MAX = 8, WH_COLL_LINKS_MACHINE_BYTES = 160, WH_COLL_LINKS_LIMIT_BYTES = 1 << 20 };

/* How comm/ runs an operation by itself. */
enum wh_coll_way {
    WH_COLL_SHARED, /* buffers in the shared arena: read and written in place */
    WH_COLL_STAGED, /* other buffers: through a shared staging space */
    WH_COLL_WAY_COUNT
};

/* All-reduce, reduce-scatter, all-gather: the first of enum wh_coll_op. Others are taken to go as all-reduce does. */
enum { WH_COLL_MEASURED_OPS = (int)WH_COLL_ALL_GATHER + 1 };

/* Seconds per byte while a vector of `bytes` is worked on by all ranks. */
struct wh_coll_level {
    uint64_t bytes; /* of the vector */
    double piped;   /* of a byte of a message through a pipe: of its sender's time, and of its receiver's */
    double placed;  /* of a byte of a message that is read where it lies: of its receiver's time */
    double copy;    /* of a byte copied within a rank */
    double add;     /* of a byte of a sum of two */
    double way[WH_COLL_WAY_COUNT][WH_COLL_MEASURED_OPS]; /* of a byte that a rank moves, see wh_coll_moved */
};

struct wh_coll_links {
    char machine[WH_COLL_LINKS_MACHINE_BYTES]; /* what was measured: processor, kernels; a line, may be "" */
    uint32_t ranks;
    double latency_s, message_s; /* of a message, as in cost.h; half-duplex */
    double piece_bytes, piped_most_bytes;
    double start_s[WH_COLL_WAY_COUNT];              /* of an operation that moves next to nothing */
    uint32_t level_count;                           /* at least 1 */
    struct wh_coll_level level[WH_COLL_LEVELS_MAX]; /* of ascending bytes */
};

const char *wh_coll_way_name(enum wh_coll_way way); /* "arena", "staged" */

/* The figures for step lists on a vector of `bytes`; in the arena, or else (STAGED) with all messages piped. */
struct wh_coll_topology wh_coll_links_topology(const struct wh_coll_links *l, uint64_t bytes, enum wh_coll_way way);

/* Bytes that a rank must read or write at the least: all ranks' inputs once, outputs once, those that are written without
 * having been read twice (memory fetches such lines first), nothing that is in its place already; its share of that. */
double wh_coll_moved(const struct wh_coll_request *q);

/* Predicted seconds of the request by a way of comm/. */
double wh_coll_way_s(const struct wh_coll_links *l, const struct wh_coll_request *q, enum wh_coll_way way);

/* An operation, its candidates, and what is predicted to be fastest. */
struct wh_coll_choice {
    double way_s;                   /* of `way`, which keeps the contract always */
    struct wh_coll_ranking ranking; /* step lists; may be empty */
    bool lists;                     /* the first of the ranking is faster than `way` */
};

/* Deterministic: equal figures give equal choices. Errors: NOMEM. Free with wh_coll_choice_free. */
enum wh_status wh_coll_choose(const struct wh_coll_links *l, const struct wh_coll_request *q, enum wh_coll_way way,
                              const struct wh_coll_limits *limits, struct wh_coll_choice *out);
void wh_coll_choice_free(struct wh_coll_choice *c);

/* Reads back what wh_coll_links_write wrote: to the bit. `file` names it in messages; `text` need not end in NUL. Errors:
 * CONFIG, what is wrong and where. */
enum wh_status wh_coll_links_parse(const char *text, size_t bytes, const char *file, struct wh_coll_links *out);
/* Appends JSON. */
void wh_coll_links_write(const struct wh_coll_links *l, struct wh_text *out);

#endif
