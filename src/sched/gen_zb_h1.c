/* Zero bubble, first handcrafted schedule (ZB-H1): 1F1B with the backward split. The input part goes where 1F1B has the
 * backward, so the ranks before get their gradients sooner; rank r puts its weight parts off by r micro-batches and fills
 * the end with them.
 *
 *     rank 0  F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3                      3 ranks, every part takes 1
 *     rank 1  .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
 *     rank 2  .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
 *
 * Every rank keeps up to p micro-batches, what rank 0 keeps in 1F1B; the idle time is a third of 1F1B's if F = B = W.
 * Gradient slots are the price that the paper doesn't count: r + 1 on rank r. Source: Qi et al., 2023, section 2.3. */
#include "sched/build.h"

static void build(struct wh_sched_builder *b) {
    uint32_t m = b->shape.micro_batches, r = b->rank, ahead = b->shape.ranks - 1 - r;
    for (uint32_t i = 0; i < ahead; i++) wh_sched_add(b, WH_SCHED_FORWARD, 0, i);
    for (uint32_t i = 0; i < m; i++) {
        wh_sched_add(b, WH_SCHED_FORWARD, 0, ahead + i);
        wh_sched_add(b, WH_SCHED_BACKWARD_INPUT, 0, i);
        if (i >= r) wh_sched_add(b, WH_SCHED_BACKWARD_WEIGHT, 0, i - r);
    }
    for (uint32_t i = m > r ? m - r : 0; i < m; i++) wh_sched_add(b, WH_SCHED_BACKWARD_WEIGHT, 0, i);
}

static uint32_t resident(const struct wh_sched_shape *s, uint32_t rank) {
    (void)rank;
    return wh_sched_min(s->micro_batches, s->ranks);
}

/* From as many micro-batches as ranks on, and while a weight part is no longer than a forward or an input part. */
static double idle(const struct wh_sched_shape *s, const struct wh_sched_cost *c) {
    double wait = (s->ranks - 1.0) * (c->forward + c->input - c->weight);
    if (s->micro_batches < s->ranks || c->weight > c->forward || c->weight > c->input) return -1;
    return wait / (s->micro_batches * (c->forward + c->input + c->weight) + wait);
}

const struct wh_sched_generator wh_sched_zb_h1 = {
    .name = "zb-h1",
    .summary = "1F1B with the backward split: a third of its idle time, no more micro-batches than its first stage",
    .placement = WH_SCHED_LOOP,
    .chunks_min = 1,
    .chunks_max = 1,
    .chunks_default = 1,
    .splits = true,
    .build = build,
    .resident = resident,
    .idle = idle,
    .formula = "x / (m (F + B + W) + x) with x = (p - 1) (F + B - W), where m >= p and W <= F, B",
};
