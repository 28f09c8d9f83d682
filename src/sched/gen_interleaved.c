/* Interleaved 1F1B: a rank holds v chunks, stages r, p + r, 2p + r, ... of v p; the pipeline is filled v times as fast,
 * with v times the messages.
 *
 * Micro-batches go in groups of p: a group passes forward through chunk 0, then chunk 1, ...; backward through chunk
 * v - 1 first. Rank r runs 2 (p - 1 - r) + (v - 1) p chunk forwards ahead, then takes a backward after each forward:
 *
 *     forward of chunk   a a a a b b b b a a a a b b b b        4 ranks, 2 chunks a and b, 8 micro-batches
 *     of micro-batch     0 1 2 3 0 1 2 3 4 5 6 7 4 5 6 7
 *     backward of chunk  b b b b a a a a b b b b a a a a
 *
 * If p doesn't divide m, the last group is laid out as if it were full and the missing ones are left out: any m works (a
 * shorter group without that leads to waits in a circle, found by the checker at p = 4, v = 3, m = 5).
 * Source: Narayanan et al., SC21, section 2.2; memory factor 1 + (p - 1) / (p v): arXiv:2205.05198. */
#include "sched/build.h"

struct turn {
    uint32_t chunk, micro_batch;
};

/* Number k of the chunk forwards of a rank. */
static struct turn forward_turn(const struct wh_sched_shape *s, uint32_t k) {
    uint32_t group = k / (s->ranks * s->chunks), inside = k % (s->ranks * s->chunks);
    return (struct turn){inside / s->ranks, group * s->ranks + inside % s->ranks};
}

static uint32_t runs_ahead(const struct wh_sched_shape *s, uint32_t rank) {
    return 2 * (s->ranks - 1 - rank) + (s->chunks - 1) * s->ranks;
}

static void build(struct wh_sched_builder *b) {
    const struct wh_sched_shape *s = &b->shape;
    uint32_t ahead = runs_ahead(s, b->rank), groups = (s->micro_batches + s->ranks - 1) / s->ranks;
    uint32_t turns = groups * s->ranks * s->chunks;
    for (uint32_t k = 0; k < turns + ahead; k++) {
        struct turn f = forward_turn(s, k);
        wh_sched_add(b, WH_SCHED_FORWARD, f.chunk, f.micro_batch);
        if (k < ahead) continue;
        struct turn g = forward_turn(s, k - ahead);
        wh_sched_add(b, WH_SCHED_BACKWARD, s->chunks - 1 - g.chunk, g.micro_batch);
    }
}

static uint32_t resident(const struct wh_sched_shape *s, uint32_t rank) {
    return wh_sched_min(s->micro_batches * s->chunks, runs_ahead(s, rank) + 1);
}

static double idle(const struct wh_sched_shape *s, const struct wh_sched_cost *c) {
    (void)c;
    if (s->micro_batches % s->ranks) return -1;
    return (s->ranks - 1.0) / ((double)s->micro_batches * s->chunks + s->ranks - 1.0);
}

const struct wh_sched_generator wh_sched_interleaved = {
    .name = "interleaved",
    .summary = "1F1B with v chunks per rank; less idle time, v times the messages",
    .placement = WH_SCHED_LOOP,
    .chunks_min = 2,
    .chunks_max = WH_SCHED_CHUNKS_MAX,
    .chunks_default = 2,
    .build = build,
    .resident = resident,
    .idle = idle,
    .formula = "(p - 1) / (m v + p - 1), where p divides m",
};
