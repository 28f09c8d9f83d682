/* Two levels: inside a machine everyone to everyone, then across machines ranks of equal local number.
 *
 * Rank r is number l = r mod p of machine r / p, p = request.ranks_per_machine. All-reduce:
 *
 *     round 0  inside: rank l gets part l of the vector from its p - 1 neighbours and adds p shares
 *     round 1  across: piece k of part l goes to machine k's number l, which adds one sum per machine
 *     round 2  across: the finished piece goes to the other machines' number l
 *     round 3  inside: part l goes to the neighbours
 *
 * so a rank sends (m-1)/m S/p bytes across machines in each of rounds 1 and 2, m machines, and all ranks share the work.
 * Reduce-scatter is rounds 0 and 1 with the slices of the ranks in place of parts and pieces, all-gather rounds 2 and 3;
 * reduce and broadcast go through parts likewise. Sums between machines travel unrounded (PARTIAL).
 * Order: the canonical tree if p is a power of two: then every machine is a node of it.
 * Cost, all-reduce: 2 (a + (p-1)/p S b) inside + 2 (a + (m-1)/m S/p b) across. */
#include "coll/build.h"

struct levels {
    uint32_t p, m; /* ranks on a machine, machines */
    uint32_t local, machine;
    uint32_t first_rank; /* of this machine */
};

static struct levels find(const struct wh_coll_builder *b) {
    uint32_t p = b->q->ranks_per_machine;
    return (struct levels){p, b->q->ranks / p, b->rank % p, b->rank / p, b->rank - b->rank % p};
}

/* Neighbours on the machine and peers on the others, in turn: from(i) is whose to(i) we are. */
static uint32_t inside_to(const struct levels *v, uint32_t i) { return (v->local + i) % v->p; }
static uint32_t inside_from(const struct levels *v, uint32_t i) { return (v->local + v->p - i) % v->p; }
static uint32_t across_to(const struct levels *v, uint32_t i) { return (v->machine + i) % v->m; }
static uint32_t across_from(const struct levels *v, uint32_t i) { return (v->machine + v->m - i) % v->m; }

/* Part of the vector that local rank l of each machine looks after. */
static struct wh_coll_range part(const struct wh_coll_builder *b, const struct levels *v, uint32_t l) {
    return wh_coll_cut(wh_coll_whole(b->q), b->q->dtype, v->p, l);
}

/* What machine k's local rank l ends up with: a piece of part l, or its slice. */
static struct wh_coll_range piece(const struct wh_coll_builder *b, const struct levels *v, uint32_t l, uint32_t k) {
    if (b->q->op == WH_COLL_ALL_REDUCE) return wh_coll_cut(part(b, v, l), b->q->dtype, v->m, k);
    if (b->q->op == WH_COLL_REDUCE)
        return k == b->q->root / v->p ? part(b, v, l) : (struct wh_coll_range){part(b, v, l).first, 0};
    return wh_coll_slice(b->q, k * v->p + l);
}

/* What local rank l looks after inside the machine, as ranges of the vector: its part, or a slice for each machine. */
static bool by_slices(const struct wh_coll_builder *b) {
    return b->q->op == WH_COLL_REDUCE_SCATTER || b->q->op == WH_COLL_ALL_GATHER;
}
static uint32_t ranges(const struct wh_coll_builder *b, const struct levels *v) { return by_slices(b) ? v->m : 1; }
static struct wh_coll_range range(const struct wh_coll_builder *b, const struct levels *v, uint32_t l, uint32_t k) {
    return by_slices(b) ? piece(b, v, l, k) : part(b, v, l);
}
/* Room for any rank's range. */
static uint64_t room(const struct wh_coll_builder *b, const struct levels *v) { return range(b, v, 0, 0).count; }

/* The machine's sums lie in PARTIAL, those of range k at k * room; scratch behind them. */
static void reduce_inside(struct wh_coll_builder *b, const struct levels *v) {
    uint64_t stride = room(b, v), behind = ranges(b, v) * stride;
    for (uint32_t k = 0; k < ranges(b, v); k++) {
        struct wh_coll_range own = range(b, v, v->local, k);
        struct wh_coll_operands o = {.count = v->p,
                                     .own = v->local,
                                     .first = wh_coll_at(WH_COLL_LANDING, k * v->p * stride),
                                     .own_place = wh_coll_at(WH_COLL_IN, own.first),
                                     .stride = stride};
        for (uint32_t i = 1; i < v->p; i++) {
            uint32_t to = inside_to(v, i), from = inside_from(v, i);
            struct wh_coll_range other = range(b, v, to, k);
            wh_coll_send(b, 0, v->first_rank + to, wh_coll_at(WH_COLL_IN, other.first), other.count);
            wh_coll_recv(b, 0, v->first_rank + from, wh_coll_operand(&o, from), own.count);
        }
        wh_coll_add_tree(b, 0, wh_coll_at(WH_COLL_PARTIAL, k * stride), &o, behind, own.count);
    }
}

/* Where the machine's sum of machine k's piece lies. */
static struct wh_coll_place sum_place(const struct wh_coll_builder *b, const struct levels *v, uint32_t k) {
    uint64_t first = by_slices(b) ? k * room(b, v) : piece(b, v, v->local, k).first - part(b, v, v->local).first;
    return wh_coll_at(WH_COLL_PARTIAL, first);
}

/* This rank's piece from all machines; the sum goes to `out`. */
static void reduce_across(struct wh_coll_builder *b, const struct levels *v, struct wh_coll_place out) {
    struct wh_coll_range own = piece(b, v, v->local, v->machine);
    uint64_t behind = ranges(b, v) * room(b, v);
    struct wh_coll_operands o = {.count = v->m,
                                 .own = v->machine,
                                 .first = wh_coll_at(WH_COLL_PARTIAL, behind),
                                 .own_place = sum_place(b, v, v->machine),
                                 .stride = own.count};
    for (uint32_t i = 1; i < v->m; i++) {
        uint32_t to = across_to(v, i), from = across_from(v, i);
        wh_coll_send(b, 1, to * v->p + v->local, sum_place(b, v, to), piece(b, v, v->local, to).count);
        wh_coll_recv(b, 1, from * v->p + v->local, wh_coll_operand(&o, from), own.count);
    }
    wh_coll_add_tree(b, 1, out, &o, behind + v->m * own.count, own.count);
}

/* The own piece, at `own_place`, goes to the same local rank of the other machines; theirs come to OUT. */
static void gather_across(struct wh_coll_builder *b, const struct levels *v, uint32_t round,
                          struct wh_coll_place own_place) {
    struct wh_coll_range own = piece(b, v, v->local, v->machine);
    for (uint32_t i = 1; i < v->m; i++) {
        uint32_t to = across_to(v, i), from = across_from(v, i);
        struct wh_coll_range other = piece(b, v, v->local, from);
        wh_coll_send(b, round, to * v->p + v->local, own_place, own.count);
        wh_coll_recv(b, round, from * v->p + v->local, wh_coll_at(WH_COLL_OUT, other.first), other.count);
    }
    wh_coll_copy(b, round, wh_coll_at(WH_COLL_OUT, own.first), own_place, own.count);
}

static void swap_inside(struct wh_coll_builder *b, const struct levels *v, uint32_t round, uint32_t i,
                        struct wh_coll_range give, struct wh_coll_range get) {
    wh_coll_send(b, round, v->first_rank + inside_to(v, i), wh_coll_at(WH_COLL_OUT, give.first), give.count);
    wh_coll_recv(b, round, v->first_rank + inside_from(v, i), wh_coll_at(WH_COLL_OUT, get.first), get.count);
}

/* Everyone's finished ranges, in OUT, go to the neighbours. */
static void gather_inside(struct wh_coll_builder *b, const struct levels *v, uint32_t round) {
    for (uint32_t i = 1; i < v->p; i++)
        for (uint32_t k = 0; k < ranges(b, v); k++)
            swap_inside(b, v, round, i, range(b, v, v->local, k), range(b, v, inside_from(v, i), k));
}

/* Parts of the result, summed on the root's machine, go to the root, which has its own in place. */
static void reduce_to_root(struct wh_coll_builder *b, const struct levels *v) {
    struct wh_coll_range own = part(b, v, v->local);
    bool is_root = b->rank == b->q->root, near = v->machine == b->q->root / v->p;
    reduce_inside(b, v);
    reduce_across(b, v, is_root ? wh_coll_at(WH_COLL_OUT, own.first) : wh_coll_at(WH_COLL_LANDING, 0));
    if (near && !is_root) wh_coll_send(b, 2, b->q->root, wh_coll_at(WH_COLL_LANDING, 0), own.count);
    for (uint32_t i = 1; is_root && i < v->p; i++) {
        struct wh_coll_range other = part(b, v, inside_from(v, i));
        wh_coll_recv(b, 2, v->first_rank + inside_from(v, i), wh_coll_at(WH_COLL_OUT, other.first), other.count);
    }
}

/* The root deals parts out to its neighbours; each sends its part to the other machines; parts are gathered inside. */
static void broadcast(struct wh_coll_builder *b, const struct levels *v) {
    uint32_t home = b->q->root / v->p;
    struct wh_coll_range own = part(b, v, v->local);
    struct wh_coll_place out = wh_coll_at(WH_COLL_OUT, own.first);
    bool is_root = b->rank == b->q->root;
    if (is_root) {
        for (uint32_t i = 1; i < v->p; i++) {
            struct wh_coll_range other = part(b, v, inside_to(v, i));
            wh_coll_send(b, 0, v->first_rank + inside_to(v, i), wh_coll_at(WH_COLL_IN, other.first), other.count);
        }
        wh_coll_copy(b, 0, wh_coll_at(WH_COLL_OUT, 0), wh_coll_at(WH_COLL_IN, 0), b->q->count);
    } else if (v->machine == home) {
        wh_coll_recv(b, 0, b->q->root, out, own.count);
    }
    for (uint32_t i = 1; v->machine == home && i < v->m; i++)
        wh_coll_send(b, 1, across_to(v, i) * v->p + v->local, out, own.count);
    if (v->machine != home) wh_coll_recv(b, 1, home * v->p + v->local, out, own.count);
    for (uint32_t i = 1; i < v->p; i++) {
        bool to_root = v->machine == home && v->first_rank + inside_to(v, i) == b->q->root;
        struct wh_coll_range none = {0, 0};
        swap_inside(b, v, 2, i, to_root ? none : own, is_root ? none : part(b, v, inside_from(v, i)));
    }
}

/* Neighbours report to local rank 0; those meet; neighbours are told. */
static void barrier(struct wh_coll_builder *b, const struct levels *v) {
    if (v->local > 0) {
        wh_coll_signal(b, 0, v->first_rank);
        wh_coll_await(b, 2, v->first_rank);
        return;
    }
    for (uint32_t l = 1; l < v->p; l++) wh_coll_await(b, 0, b->rank + l);
    for (uint32_t i = 1; i < v->m; i++) {
        wh_coll_signal(b, 1, across_to(v, i) * v->p);
        wh_coll_await(b, 1, across_from(v, i) * v->p);
    }
    for (uint32_t l = 1; l < v->p; l++) wh_coll_signal(b, 2, b->rank + l);
}

static void all_reduce(struct wh_coll_builder *b, const struct levels *v) {
    struct wh_coll_place own = wh_coll_at(WH_COLL_OUT, piece(b, v, v->local, v->machine).first);
    reduce_inside(b, v);
    reduce_across(b, v, own);
    gather_across(b, v, 2, own);
    gather_inside(b, v, 3);
}

static void build(struct wh_coll_builder *b) {
    struct levels v = find(b);
    switch (b->q->op) {
    case WH_COLL_ALL_REDUCE:
        all_reduce(b, &v);
        break;
    case WH_COLL_REDUCE_SCATTER:
        reduce_inside(b, &v);
        reduce_across(b, &v, wh_coll_at(WH_COLL_OUT, 0));
        break;
    case WH_COLL_ALL_GATHER:
        gather_across(b, &v, 0, wh_coll_at(WH_COLL_IN, 0));
        gather_inside(b, &v, 1);
        break;
    case WH_COLL_BROADCAST:
        broadcast(b, &v);
        break;
    case WH_COLL_REDUCE:
        reduce_to_root(b, &v);
        break;
    default:
        barrier(b, &v);
        break;
    }
}

static bool can(const struct wh_coll_request *q) {
    return q->ranks_per_machine > 1 && q->ranks_per_machine < q->ranks && q->ranks % q->ranks_per_machine == 0;
}

static bool canonical(const struct wh_coll_request *q) {
    return (q->ranks_per_machine & (q->ranks_per_machine - 1)) == 0;
}

const struct wh_coll_algorithm wh_coll_two_level = {
    .name = "two_level",
    .summary = "inside a machine, then across: least bytes between machines, all ranks share the network",
    .operations = ((1u << WH_COLL_OP_COUNT) - 1) & ~(1u << WH_COLL_ALL_TO_ALL),
    .demands = "ranks_per_machine of two or more that divides the ranks, and several machines",
    .can = can,
    .canonical = canonical,
    .build = build,
};
