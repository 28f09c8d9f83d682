/* 1F1B, one forward, one backward: a rank runs ahead by as many micro-batches as there are ranks behind it, then takes a
 * backward after each forward.
 *
 *     rank 0  F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3---          3 ranks, a backward takes 2
 *     rank 1  .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .
 *     rank 2  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .
 *
 * As long as GPipe, but stage s keeps min(m, p - s) micro-batches only (case B83). Source: Narayanan et al., 2019, 2021. */
#include "sched/build.h"

static void build(struct wh_sched_builder *b) {
    uint32_t ahead = b->shape.ranks - 1 - b->rank;
    for (uint32_t i = 0; i < ahead; i++) wh_sched_add(b, WH_SCHED_FORWARD, 0, i);
    for (uint32_t i = 0; i < b->shape.micro_batches; i++) {
        wh_sched_add(b, WH_SCHED_FORWARD, 0, ahead + i);
        wh_sched_add(b, WH_SCHED_BACKWARD, 0, i);
    }
}

static uint32_t resident(const struct wh_sched_shape *s, uint32_t rank) {
    return wh_sched_min(s->micro_batches, s->ranks - rank);
}

const struct wh_sched_generator wh_sched_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward; stage s keeps min(m, p - s) micro-batches",
    .placement = WH_SCHED_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .chunks_default = 1,
    .build = build,
    .resident = resident,
    .idle = wh_sched_idle_of_passes,
    .formula = "(p - 1) / (m + p - 1)",
};
