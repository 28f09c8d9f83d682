/* Operations on memory outside the arena: piece by piece through staging space that stays in the cache.
 *
 *     piece     what lies in it, one after the other: a part of each slice; operations on the vector have one slice
 *     in place  ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER
 *     twice     ALL_TO_ALL: what is sent, then what is received
 *     again     several contributions: the same of each, a->stride apart; the sum takes the place of the first
 *
 * Each piece is an operation of its own with its own sequence number, WH_PIECES of them in flight: while one is worked on
 * the next is copied in. Every slice is cut into as many parts as there are pieces, however long it is, so that each piece
 * is copying for all ranks if the slices are equal, and full if one of them is the whole. */
#include <string.h>

#include "coll/plan.h"
#include "comm/comm_int.h"

enum { ALIGN_BYTES = 64 };

static uint32_t slices(const struct wh_comm_plan *p) { return wh_comm_op_slices(p->call.op) ? p->comm->size : 1; }

static struct wh_coll_range slice(const struct wh_comm_plan *p, uint32_t i) {
    if (!wh_comm_op_slices(p->call.op)) return (struct wh_coll_range){0, p->call.count};
    return (struct wh_coll_range){p->border[i], p->border[i + 1] - p->border[i]};
}

/* What piece `piece` holds of slice `i`. All parts of a slice are equally long, whole lines, except the last ones. */
static struct wh_coll_range part(const struct wh_comm_plan *p, uint64_t piece, uint32_t i) {
    struct wh_coll_range r = slice(p, i);
    uint64_t line = ALIGN_BYTES / wh_dtype_bytes(p->call.dtype);
    uint64_t elems = (r.count / p->pieces + line) / line * line; /* at least count / pieces, rounded up */
    uint64_t first = piece * elems < r.count ? piece * elems : r.count;
    return (struct wh_coll_range){r.first + first, r.count - first < elems ? r.count - first : elems};
}

void wh_staged_prepare(struct wh_comm_plan *p) {
    uint64_t elem = wh_dtype_bytes(p->call.dtype), shares = wh_comm_inputs_most(&p->call, p->comm->size);
    if (p->call.op == WH_ALL_TO_ALL) shares = 2;
    uint64_t room = WH_PIECE_BYTES / elem / shares - slices(p) * ALIGN_BYTES / elem; /* less what rounding up may add */
    p->pieces = (p->call.count + room - 1) / room;
}

/* One contribution. */
static void copy_in(const struct wh_comm_plan *p, uint64_t piece, const size_t *border, const char *in, char *stage) {
    size_t elem = wh_dtype_bytes(p->call.dtype);
    uint32_t me = p->comm->rank;
    if (p->call.op == WH_BROADCAST && me != p->call.root) return;
    for (uint32_t i = 0; i < slices(p); i++) {
        struct wh_coll_range r = part(p, piece, i);
        if (p->call.op == WH_ALL_GATHER) r.first -= slice(p, me).first;
        if (r.count && (p->call.op != WH_ALL_GATHER || i == me))
            memcpy(stage + border[i] * elem, in + r.first * elem, r.count * elem);
    }
}

static void copy_out(const struct wh_comm_plan *p, uint64_t piece, const size_t *border, const char *stage) {
    size_t elem = wh_dtype_bytes(p->call.dtype);
    uint32_t me = p->comm->rank;
    char *out = p->call.out;
    bool root = me == p->call.root;
    if ((p->call.op == WH_REDUCE && !root) || (p->call.op == WH_BROADCAST && root)) return;
    if (p->call.op == WH_ALL_TO_ALL) stage += border[slices(p)] * elem;
    for (uint32_t i = 0; i < slices(p); i++) {
        struct wh_coll_range r = part(p, piece, i);
        if (r.count == 0 || (p->call.op == WH_REDUCE_SCATTER && i != me)) continue;
        if (p->call.op == WH_ALL_GATHER && p->in_place && i == me) continue;
        if (p->call.op == WH_REDUCE_SCATTER) r.first -= slice(p, me).first;
        memcpy(out + r.first * elem, stage + border[i] * elem, r.count * elem);
    }
}

static void start_piece(struct wh_comm_plan *p, uint64_t piece) {
    struct wh_action *a = &p->action[piece % WH_PIECES];
    size_t *border = p->comm->piece_border[piece % WH_PIECES], elem = wh_dtype_bytes(p->call.dtype);
    char *stage = p->comm->staging[piece % WH_PIECES];
    const char *in = p->call.op == WH_BROADCAST ? p->call.out : p->call.in;
    for (uint32_t i = 0; i < slices(p); i++) border[i + 1] = border[i] + part(p, piece, i).count;
    a->count = border[slices(p)];
    a->stride = (a->count * elem + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES / elem;
    for (uint32_t k = 0; k < wh_comm_inputs(&p->call, p->comm->rank); k++)
        copy_in(p, piece, border, in + (k ? k * p->call.sum->stride * elem : 0), stage + k * a->stride * elem);
    a->border = border;
    a->in = a->out = stage;
    if (p->call.op == WH_REDUCE_SCATTER) a->out = stage + border[p->comm->rank] * elem;
    if (p->call.op == WH_ALL_GATHER) a->in = stage + border[p->comm->rank] * elem;
    if (p->call.op == WH_ALL_TO_ALL) a->out = stage + a->count * elem;
    a->fingerprint = p->call_hash + (piece + 1) * 0x9E3779B97F4A7C15u;
    wh_action_cut(a);
    wh_action_start(a, &p->entry);
}

void wh_staged_start(struct wh_comm_plan *p) {
    p->pieces_started = p->pieces_done = 0;
    for (int i = 0; i < WH_PIECES; i++)
        p->action[i] = (struct wh_action){.comm = p->comm, .call = &p->call, .path = WH_PATH_ARENA};
    p->comm->staged = p;
    wh_staged_move(p->comm);
}

void wh_staged_move(struct wh_comm *comm) {
    struct wh_comm_plan *p = comm->staged;
    while (p->pieces_done < p->pieces_started && p->action[p->pieces_done % WH_PIECES].finished) {
        uint64_t at = p->pieces_done % WH_PIECES;
        copy_out(p, p->pieces_done, comm->piece_border[at], comm->staging[at]);
        p->pieces_done++;
    }
    while (p->pieces_started < p->pieces && p->pieces_started - p->pieces_done < WH_PIECES && wh_comm_has_room(comm) &&
           p->action[p->pieces_started % WH_PIECES].sequence < comm->oldest) {
        start_piece(p, p->pieces_started++);
    }
    p->finished = p->pieces_done == p->pieces;
    if (p->finished) comm->staged = NULL;
}
