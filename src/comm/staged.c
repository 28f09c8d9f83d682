/* Operations on memory outside the arena: piece by piece through staging space that stays in the cache.
 *
 *     piece     what lies in it, in elements (e = elements of a piece, n ranks)
 *     vector    ALL_REDUCE, REDUCE, BROADCAST: e, in place
 *     slices    REDUCE_SCATTER: n slices of e, then the result e
 *               ALL_GATHER: n slices of e, in place
 *               ALL_TO_ALL: n slices of e, then n slices of e
 *
 * Each piece is an operation of its own with its own sequence number, WH_PIECES of them in flight: while one is worked on
 * the next is copied in. Slices that are shorter than the longest are padded: what the padding becomes is never read. */
#include <string.h>

#include "coll/plan.h"
#include "comm/comm_int.h"

static bool by_slices(enum wh_comm_op op) {
    return op == WH_REDUCE_SCATTER || op == WH_ALL_GATHER || op == WH_ALL_TO_ALL;
}

static struct wh_coll_range slice(const struct wh_comm_plan *p, uint32_t i) {
    return wh_coll_cut((struct wh_coll_range){0, p->call.count}, p->call.dtype, p->comm->size, i);
}

/* Elements of slice `i` (vector: of all) in piece `piece`. */
static struct wh_coll_range part(const struct wh_comm_plan *p, uint64_t piece, uint32_t i) {
    struct wh_coll_range r = by_slices(p->call.op) ? slice(p, i) : (struct wh_coll_range){0, p->call.count};
    uint64_t first = piece * p->piece_elems;
    if (first >= r.count) return (struct wh_coll_range){r.first + r.count, 0};
    return (struct wh_coll_range){r.first + first, r.count - first < p->piece_elems ? r.count - first : p->piece_elems};
}

void wh_staged_prepare(struct wh_comm_plan *p) {
    enum wh_comm_op op = p->call.op;
    size_t elem = wh_dtype_bytes(p->call.dtype), n = p->comm->size;
    size_t shares = op == WH_REDUCE_SCATTER ? n + 1 : op == WH_ALL_GATHER ? n : op == WH_ALL_TO_ALL ? 2 * n : 1;
    uint64_t longest = by_slices(op) ? slice(p, 0).count : p->call.count;
    p->piece_elems = WH_PIECE_BYTES / shares / 64 * 64 / elem;
    p->pieces = (longest + p->piece_elems - 1) / p->piece_elems;
}

/* Where the parts of the slices lie in the staging space: as far apart as the longest part of this piece. */
static size_t pitch_bytes(const struct wh_comm_plan *p, uint64_t piece) {
    return part(p, piece, 0).count * wh_dtype_bytes(p->call.dtype);
}

static void copy_in(const struct wh_comm_plan *p, uint64_t piece, char *stage) {
    size_t elem = wh_dtype_bytes(p->call.dtype), pitch = pitch_bytes(p, piece);
    const char *in = p->call.op == WH_BROADCAST ? p->call.out : p->call.in;
    uint32_t me = p->comm->rank;
    struct wh_coll_range r = part(p, piece, me);
    switch (p->call.op) {
    case WH_BROADCAST:
        if (me != p->call.root) break; /* else: the same as */
        __attribute__((fallthrough));
    case WH_ALL_REDUCE:
    case WH_REDUCE:
        memcpy(stage, in + r.first * elem, r.count * elem);
        break;
    case WH_ALL_GATHER:
        if (r.count) memcpy(stage + me * pitch, in + (r.first - slice(p, me).first) * elem, r.count * elem);
        break;
    default:
        for (uint32_t i = 0; i < p->comm->size; i++) {
            r = part(p, piece, i);
            if (r.count) memcpy(stage + i * pitch, in + r.first * elem, r.count * elem);
        }
    }
}

static void copy_out(const struct wh_comm_plan *p, uint64_t piece, const char *stage) {
    size_t elem = wh_dtype_bytes(p->call.dtype), pitch = pitch_bytes(p, piece), n = p->comm->size;
    char *out = p->call.out;
    uint32_t me = p->comm->rank;
    struct wh_coll_range r = part(p, piece, me);
    switch (p->call.op) {
    case WH_REDUCE:
        if (me == p->call.root) memcpy(out + r.first * elem, stage, r.count * elem);
        break;
    case WH_BROADCAST:
        if (me == p->call.root) break;
        __attribute__((fallthrough));
    case WH_ALL_REDUCE:
        memcpy(out + r.first * elem, stage, r.count * elem);
        break;
    case WH_REDUCE_SCATTER:
        if (r.count) memcpy(out + (r.first - slice(p, me).first) * elem, stage + n * pitch, r.count * elem);
        break;
    default:
        for (uint32_t i = 0; i < n; i++) {
            r = part(p, piece, i);
            if (r.count && !(p->in_place && i == me))
                memcpy(out + r.first * elem, stage + (p->call.op == WH_ALL_TO_ALL ? n + i : i) * pitch, r.count * elem);
        }
    }
}

static void start_piece(struct wh_comm_plan *p, uint64_t piece) {
    struct wh_action *a = &p->action[piece % WH_PIECES];
    char *stage = p->comm->staging[piece % WH_PIECES];
    size_t pitch = pitch_bytes(p, piece), n = p->comm->size;
    copy_in(p, piece, stage);
    a->in = a->out = stage;
    if (p->call.op == WH_REDUCE_SCATTER || p->call.op == WH_ALL_TO_ALL) a->out = stage + n * pitch;
    if (p->call.op == WH_ALL_GATHER) a->in = stage + p->comm->rank * pitch;
    a->count = part(p, piece, 0).count * (by_slices(p->call.op) ? n : 1);
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
        copy_out(p, p->pieces_done, comm->staging[p->pieces_done % WH_PIECES]);
        p->pieces_done++;
    }
    while (p->pieces_started < p->pieces && p->pieces_started - p->pieces_done < WH_PIECES && wh_comm_has_room(comm) &&
           p->action[p->pieces_started % WH_PIECES].sequence < comm->oldest) {
        start_piece(p, p->pieces_started++);
    }
    p->finished = p->pieces_done == p->pieces;
    if (p->finished) comm->staged = NULL;
}
