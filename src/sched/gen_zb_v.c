/* Zero bubble in V shape (ZB-V): two chunks per rank, the first in the order of the ranks, the second back again, so that
 * rank 0 holds both ends of the model and the last rank turns round without a message. Backward split.
 *
 *     rank 0  F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a W0a F2b B2b W2b B1a W1a B2a W2a .
 *     rank 1  .   F0a F0b F1a F1b B0b W0b F2a B0a W0a F2b B1b W1b B1a B2b B2a W1a W2b W2a
 *
 * (2 ranks, every part takes 1; a and b are the two chunks.)
 *
 * Fill: 2 (p - r) - 1 forwards of chunk a; r times (b, a); p - r times forward, backward, weights of b. Then in turns:
 * F a, backward and weights of a, F b, backward and weights of b. Drain: r times the input parts of a and b, p - r times
 * the input part of a with a weight part of a, then the weight parts that remain.
 * With fewer than 2p - 1 micro-batches it is laid out for 2p - 1, and those that don't exist are left out.
 *
 * Every rank keeps up to 2p chunks, as much as rank 0 in 1F1B; idle for (p - 1) F of a chunk if F = B = W and m >= 2p - 1:
 * ranks begin and end staggered, so that the next step could follow without a gap. 2r + 1 gradient slots.
 * Source: Qi et al., "Pipeline Parallelism with Controllable Memory", 2024; the order is that of their published code. */
#include "sched/build.h"

enum { A, B, CHUNKS };

struct state {
    struct wh_sched_builder *b;
    uint32_t forward[CHUNKS], input[CHUNKS], weight[CHUNKS]; /* done so far */
};

static void forward(struct state *s, uint32_t chunk) {
    wh_sched_add(s->b, WH_SCHED_FORWARD, chunk, s->forward[chunk]++);
}

static void input(struct state *s, uint32_t chunk) {
    wh_sched_add(s->b, WH_SCHED_BACKWARD_INPUT, chunk, s->input[chunk]++);
}

static void weight(struct state *s, uint32_t chunk) {
    wh_sched_add(s->b, WH_SCHED_BACKWARD_WEIGHT, chunk, s->weight[chunk]++);
}

static void fill(struct state *s, uint32_t p, uint32_t r) {
    for (uint32_t i = 0; i < 2 * (p - r) - 1; i++) forward(s, A);
    for (uint32_t i = 0; i < r; i++) forward(s, B), forward(s, A);
    for (uint32_t i = 0; i < p - r; i++) forward(s, B), input(s, B), weight(s, B);
}

static void drain(struct state *s, uint32_t p, uint32_t r) {
    for (uint32_t i = 0; i < r; i++) input(s, A), input(s, B);
    for (uint32_t i = 0; i < p - r; i++) input(s, A), weight(s, A);
    while (s->weight[B] < s->input[B]) weight(s, B);
    while (s->weight[A] < s->input[A]) weight(s, A);
}

static void build(struct wh_sched_builder *b) {
    uint32_t p = b->shape.ranks, r = b->rank, most = b->shape.micro_batches;
    struct state s = {.b = b};
    if (most < 2 * p - 1) most = 2 * p - 1;
    fill(&s, p, r);
    while (s.forward[B] < most) {
        if (s.forward[A] < most) forward(&s, A);
        input(&s, A), weight(&s, A);
        forward(&s, B), input(&s, B), weight(&s, B);
    }
    drain(&s, p, r);
}

static uint32_t resident(const struct wh_sched_shape *s, uint32_t rank) {
    uint32_t m = s->micro_batches;
    return wh_sched_min(2 * wh_sched_min(m, s->ranks), m + rank + 1);
}

static double idle(const struct wh_sched_shape *s, const struct wh_sched_cost *c) {
    double wait = (s->ranks - 1.0) * c->forward;
    if (s->micro_batches + 1 < 2 * s->ranks || c->forward != c->input || c->input != c->weight) return -1;
    return wait / (2.0 * s->micro_batches * (c->forward + c->input + c->weight) + wait);
}

const struct wh_sched_generator wh_sched_zb_v = {
    .name = "zb-v",
    .summary = "backward split, two chunks per rank in V shape: ranks wait only for the pipeline to fill",
    .placement = WH_SCHED_V,
    .chunks_min = CHUNKS,
    .chunks_max = CHUNKS,
    .chunks_default = CHUNKS,
    .splits = true,
    .build = build,
    .resident = resident,
    .idle = idle,
    .formula = "(p - 1) / (6 m + p - 1), where m >= 2 p - 1 and F = B = W",
};
