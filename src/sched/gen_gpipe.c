/* GPipe, also called all forward, all backward: every micro-batch goes forward, then every one backward.
 *
 *     rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B0--- B1--- B2--- B3---          3 ranks, a backward takes 2
 *     rank 1  .  F0 F1 F2 F3 .  .  .  B0--- B1--- B2--- B3--- .  .
 *     rank 2  .  .  F0 F1 F2 F3 B0--- B1--- B2--- B3--- .  .  .  .
 *
 * Every rank keeps all m. The backward takes micro-batches in ascending order, where the paper reverses them: sums of
 * weight gradients go through samples in order. Source: Huang et al., 2019. */
#include "sched/build.h"

static void build(struct wh_sched_builder *b) {
    for (uint32_t i = 0; i < b->shape.micro_batches; i++) wh_sched_add(b, WH_SCHED_FORWARD, 0, i);
    for (uint32_t i = 0; i < b->shape.micro_batches; i++) wh_sched_add(b, WH_SCHED_BACKWARD, 0, i);
}

static uint32_t resident(const struct wh_sched_shape *s, uint32_t rank) {
    (void)rank;
    return s->micro_batches;
}

const struct wh_sched_generator wh_sched_gpipe = {
    .name = "gpipe",
    .summary = "all forward, then all backward; every rank keeps every micro-batch",
    .placement = WH_SCHED_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .chunks_default = 1,
    .build = build,
    .resident = resident,
    .idle = wh_sched_idle_of_passes,
    .formula = "(p - 1) / (m + p - 1)",
};
