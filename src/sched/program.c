#include "sched/program.h"

#include <inttypes.h>
#include <stdlib.h>

const struct wh_sched_op_row wh_sched_ops[WH_SCHED_OP_COUNT] = {
#define X(id, mark, act, grad, act_out, grad_out, message, meaning) \
    {mark, {WH_SCHED_##act, WH_SCHED_##grad, WH_SCHED_##act_out, WH_SCHED_##grad_out}, WH_SCHED_##message, meaning},
#include "sched/ops.def"
#undef X
};

/* Chunks that run against the order of the ranks. */
static bool turned(const struct wh_sched_shape *s, uint32_t chunk) { return s->placement == WH_SCHED_V && chunk % 2; }

uint32_t wh_sched_stage(const struct wh_sched_shape *s, uint32_t rank, uint32_t chunk) {
    return chunk * s->ranks + (turned(s, chunk) ? s->ranks - 1 - rank : rank);
}

uint32_t wh_sched_stage_rank(const struct wh_sched_shape *s, uint32_t stage) {
    uint32_t place = stage % s->ranks;
    return turned(s, stage / s->ranks) ? s->ranks - 1 - place : place;
}

struct wh_sched_effects wh_sched_effects(const struct wh_sched_shape *s, uint32_t rank,
                                         const struct wh_sched_instr *i) {
    struct wh_sched_effects e = wh_sched_ops[i->op].effects;
    uint32_t stage = wh_sched_stage(s, rank, i->chunk);
    bool first = stage == 0, last = stage + 1 == wh_sched_stages(s);
    switch ((enum wh_sched_op)i->op) {
    case WH_SCHED_FORWARD:
        if (first) e.act = WH_SCHED_TAKE;
        if (last) e.act_out = WH_SCHED_NOTHING;
        break;
    case WH_SCHED_BACKWARD:
    case WH_SCHED_BACKWARD_INPUT:
        if (first) e.grad_out = WH_SCHED_NOTHING;
        if (last) e.grad = i->op == WH_SCHED_BACKWARD ? WH_SCHED_TOUCH : WH_SCHED_TAKE;
        break;
    default:
        break;
    }
    return e;
}

uint32_t wh_sched_peer(const struct wh_sched_shape *s, uint32_t rank, enum wh_sched_op op, uint32_t chunk) {
    uint32_t stage = wh_sched_stage(s, rank, chunk);
    if (wh_sched_ops[op].message == WH_SCHED_NO_MESSAGE) return rank;
    if (op == WH_SCHED_SEND_ACT || op == WH_SCHED_RECV_GRAD)
        return stage + 1 < wh_sched_stages(s) ? wh_sched_stage_rank(s, stage + 1) : UINT32_MAX;
    return stage > 0 ? wh_sched_stage_rank(s, stage - 1) : UINT32_MAX;
}

void wh_sched_label(const struct wh_sched_shape *s, const struct wh_sched_instr *i, struct wh_text *out) {
    const struct wh_sched_op_row *row = &wh_sched_ops[i->op];
    wh_text_add(out, "%s%" PRIu32, row->mark, i->micro_batch);
    if (s->chunks > 1) wh_text_add(out, "%c", 'a' + i->chunk);
    if (i->peer == UINT32_MAX) return; /* at an end of the pipeline */
    if (row->message == WH_SCHED_SENDS) wh_text_add(out, ">%" PRIu32, i->peer);
    if (row->message == WH_SCHED_RECEIVES) wh_text_add(out, "<%" PRIu32, i->peer);
}

const char *wh_sched_placement_name(enum wh_sched_placement p) { return p == WH_SCHED_V ? "v" : "loop"; }

static void size_fault(struct wh_text *why, const char *what, uint64_t value, uint64_t most) {
    if (value >= 1 && value <= most) return;
    wh_text_add(why, "%s%" PRIu64 " %s: 1 to %" PRIu64 " are legal", why->bytes ? "; " : "", value, what, most);
}

bool wh_sched_sizes_legal(uint64_t ranks, uint64_t micro_batches, uint64_t chunks, struct wh_text *why) {
    size_t before = why->bytes;
    size_fault(why, "ranks", ranks, WH_SCHED_RANKS_MAX);
    size_fault(why, "micro-batches", micro_batches, WH_SCHED_MICRO_BATCHES_MAX);
    size_fault(why, "chunks", chunks, WH_SCHED_CHUNKS_MAX);
    if (why->bytes == before && ranks * micro_batches * chunks > WH_SCHED_BLOCKS_MAX)
        wh_text_add(why, "%" PRIu64 " ranks * %" PRIu64 " micro-batches * %" PRIu64 " chunks: %d blocks are the most",
                    ranks, micro_batches, chunks, WH_SCHED_BLOCKS_MAX);
    return why->bytes == before;
}

void wh_sched_plan_free(struct wh_sched_plan *p) {
    for (uint32_t r = 0; p->rank && r < p->shape.ranks; r++) free(p->rank[r].instrs);
    free(p->rank);
    *p = (struct wh_sched_plan){0};
}
