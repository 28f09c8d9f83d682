#include "sched/gradsum.h"

#include <stdlib.h>

#include "base/tree.h"

struct builder {
    const struct wh_sum_shape *shape;
    struct wh_sum_plan plan;
    size_t part_capacity, call_capacity, piece_capacity;
    uint32_t first_group, group_count;
    uint32_t chunks;                                          /* of a sequence, that are summed here */
    uint32_t stack[WH_SUM_ROOTS_MAX + WH_SUM_MERGES_MAX + 1]; /* buffers of the finished subtrees */
    uint32_t depth, roots; /* the lowest `roots` are contributions: their siblings lie out of the range */
    uint32_t *open;        /* [chunks]: buffer of an unfinished leaf, or UINT32_MAX */
    bool *used;            /* [buffer_capacity] */
    bool *kept;            /* [buffer_capacity]: was used at the end of a piece */
    uint32_t buffer_capacity;
    bool no_memory;
};

static void *grow(void *list, size_t count, size_t *capacity, size_t size, bool *no_memory) {
    if (count < *capacity) return list;
    size_t wanted = *capacity ? 2 * *capacity : 16;
    void *longer = realloc(list, wanted * size);
    if (!longer) {
        *no_memory = true;
        return list;
    }
    *capacity = wanted;
    return longer;
}

static uint32_t take_buffer(struct builder *b) {
    uint32_t i = 0;
    while (b->used[i]) i++;
    WH_ASSERT(i < b->buffer_capacity);
    b->used[i] = true;
    if (i + 1 > b->plan.buffers) b->plan.buffers = i + 1;
    return i;
}

static void add_part(struct builder *b, uint32_t begin, uint32_t length, bool ends_leaf) {
    b->plan.parts = grow(b->plan.parts, b->plan.part_count, &b->part_capacity, sizeof *b->plan.parts, &b->no_memory);
    if (!b->no_memory) b->plan.parts[b->plan.part_count++] = (struct wh_sum_part){begin, length, ends_leaf};
}

struct piece {
    uint64_t begin, end; /* tokens of the global batch */
};

static uint32_t tokens_per_group(const struct wh_sum_shape *s) { return s->sequences / s->groups * s->positions; }

static uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint32_t chunk_border(const struct wh_sum_shape *s, uint32_t chunk) {
    return (uint32_t)((uint64_t)s->positions * chunk / s->chunks);
}

/* Adds the parts of one leaf that lie in the piece. */
static void add_leaf_parts(struct builder *b, const struct piece *p, uint32_t leaf) {
    const struct wh_sum_shape *s = b->shape;
    const uint32_t group = leaf / b->chunks, chunk = s->first_chunk + leaf % b->chunks, T = s->positions;
    const uint32_t first = chunk_border(s, s->first_chunk), rows = chunk_border(s, s->first_chunk + b->chunks) - first;
    uint64_t group_begin = (uint64_t)group * tokens_per_group(s), group_end = group_begin + tokens_per_group(s);
    uint64_t begin = max64(p->begin, group_begin), end = min64(p->end, group_end);
    if (s->chunks == 1) {
        add_part(b, (uint32_t)(begin - p->begin), (uint32_t)(end - begin), true);
        return;
    }
    const uint32_t at = chunk_border(s, chunk) - first, length = chunk_border(s, chunk + 1) - first - at;
    for (uint64_t t = begin; t < end; t += T) /* whole sequences */
        add_part(b, (uint32_t)(t - p->begin) / T * rows + at, length, t + T >= end);
}

static struct wh_sum_call *new_call(struct builder *b) {
    b->plan.calls = grow(b->plan.calls, b->plan.call_count, &b->call_capacity, sizeof *b->plan.calls, &b->no_memory);
    if (b->no_memory) return NULL;
    struct wh_sum_call *c = &b->plan.calls[b->plan.call_count++];
    *c = (struct wh_sum_call){.first_part = b->plan.part_count};
    return c;
}

/* Merges that follow in the whole tree when the complete subtree [leaf, leaf + count) has been joined itself. */
static uint32_t merges_after(uint32_t leaf, uint32_t count, uint32_t leaves) {
    return wh_tree_merges(leaf + count - 1, leaves) - wh_tree_merges(count - 1, count);
}

/* Pushes the call's result and merges finished siblings; `merges` of them, or those in the range: the stack goes on
 * downwards with what lies left of the range, and a merge with that is none of ours, nor are those behind it. The first
 * merge is folded into the call when it starts afresh, unless the result must be rounded before. */
static void push_and_merge(struct builder *b, struct wh_sum_call *c, uint32_t merges) {
    const uint32_t siblings = b->depth - b->roots;
    const bool contributes = merges > siblings;
    if (contributes) merges = siblings;
    c->ends = true;
    if (!c->accumulate && merges > 0 && !b->shape->rounded) {
        c->add_left = true;
        c->buffer = b->stack[b->depth - 1];
        merges--;
    } else {
        if (!c->accumulate || b->shape->rounded) c->buffer = take_buffer(b);
        b->stack[b->depth++] = c->buffer;
    }
    for (; merges > 0 && c->merges < WH_SUM_MERGES_MAX; merges--) {
        uint32_t right = b->stack[--b->depth], left = b->stack[b->depth - 1];
        c->merge[c->merges].left = left;
        c->merge[c->merges++].right = right;
        b->used[right] = false;
    }
    if (merges > 0) b->no_memory = true; /* more than 2^16 leaves */
    if (contributes) b->roots = b->depth;
}

/* Merges that follow when the complete subtree [leaf, leaf + count) is there. Groups that stay apart are trees of their own,
 * each a contribution when it is complete. */
static void join(struct builder *b, struct wh_sum_call *c, uint32_t leaf, uint32_t count) {
    const bool apart = b->shape->own_chunks > 0;
    if (apart) leaf %= b->chunks;
    push_and_merge(b, c, merges_after(leaf, count, b->plan.leaves));
    if (apart && leaf + count == b->chunks) b->roots = b->depth;
}

/* Leaves [leaf, leaf + count) lie wholly inside the piece and are a complete subtree. */
static void call_whole(struct builder *b, const struct piece *p, uint32_t leaf, uint32_t count) {
    struct wh_sum_call *c = new_call(b);
    if (!c) return;
    for (uint32_t i = 0; i < count; i++) add_leaf_parts(b, p, leaf + i);
    c->part_count = b->plan.part_count - c->first_part;
    c->leaves = count;
    if (count > b->plan.leaves_max) b->plan.leaves_max = count;
    join(b, c, leaf, count);
}

/* One leaf, of which this piece holds a part only. */
static void call_open(struct builder *b, const struct piece *p, uint32_t leaf, bool finishes) {
    struct wh_sum_call *c = new_call(b);
    if (!c) return;
    uint32_t *open = &b->open[leaf % b->chunks];
    add_leaf_parts(b, p, leaf);
    c->part_count = b->plan.part_count - c->first_part;
    c->leaves = 1;
    if (b->plan.leaves_max == 0) b->plan.leaves_max = 1;
    c->accumulate = *open != UINT32_MAX;
    if (b->shape->rounded) {
        *open = c->open = leaf % b->chunks;
        b->plan.opens = b->chunks;
    } else {
        if (!c->accumulate && !finishes) *open = take_buffer(b);
        if (*open != UINT32_MAX) c->buffer = *open;
    }
    if (!finishes) return;
    join(b, c, leaf, 1);
    *open = UINT32_MAX;
}

/* Largest complete subtree of a power of two leaves that starts at `leaf` and ends by `end`. */
static uint32_t aligned_at(uint32_t leaf, uint32_t end) {
    uint64_t count = 1;
    while (leaf % (2 * count) == 0 && leaf + 2 * count <= end) count *= 2;
    return (uint32_t)count;
}

/* The same of any number: at the end of the tree it may have fewer leaves than a full one in its place. */
static uint32_t subtree_at(uint32_t leaf, uint32_t end, uint32_t leaves) {
    uint64_t full = 1;
    while (full < end - leaf) full *= 2;
    return end == leaves && leaf % full == 0 ? end - leaf : aligned_at(leaf, end);
}

/* How many leaves from `leaf` on, all inside the piece, one call joins. In one piece a range needs as many calls and
 * buffers as it has contributions. A plan of all groups is one call or calls of powers of two (smaller leaves_max). */
static uint32_t one_call_at(const struct builder *b, uint32_t leaf, uint32_t end) {
    const bool all_groups = b->group_count == b->shape->groups;
    if (b->shape->leaf_calls) return 1;
    if (b->shape->own_chunks) return b->chunks; /* a group */
    return all_groups && leaf > 0 ? aligned_at(leaf, end) : subtree_at(leaf, end, b->plan.leaves);
}

/* Walks through the piece group by group: a group of which it holds a part only, or a run of whole groups. */
static void add_piece(struct builder *b, const struct piece *p) {
    const uint32_t chunks = b->chunks;
    const uint64_t each = tokens_per_group(b->shape);
    b->plan.pieces =
        grow(b->plan.pieces, b->plan.piece_count, &b->piece_capacity, sizeof *b->plan.pieces, &b->no_memory);
    if (b->no_memory) return;
    uint32_t first_call = b->plan.call_count;
    for (uint64_t at = p->begin; at < p->end && !b->no_memory;) {
        uint64_t group = at / each, group_end = (group + 1) * each;
        if (at % each != 0 || group_end > p->end) {
            for (uint32_t q = 0; q < chunks; q++) call_open(b, p, (uint32_t)group * chunks + q, group_end <= p->end);
            at = min64(group_end, p->end);
            continue;
        }
        uint32_t leaf = (uint32_t)group * chunks, end = (uint32_t)(p->end / each) * chunks;
        while (leaf < end) {
            uint32_t count = one_call_at(b, leaf, end);
            call_whole(b, p, leaf, count);
            leaf += count;
        }
        at = p->end / each * each;
    }
    b->plan.pieces[b->plan.piece_count++] = (struct wh_sum_piece){first_call, b->plan.call_count - first_call};
    for (uint32_t i = 0; i < b->buffer_capacity; i++) b->kept[i] |= b->used[i];
}

static void add_pieces(struct builder *b) {
    const struct wh_sum_shape *s = b->shape;
    const uint64_t first = (uint64_t)b->first_group * tokens_per_group(s);
    uint64_t tokens = (uint64_t)b->group_count * tokens_per_group(s), span = s->span_tokens ? s->span_tokens : tokens;
    for (uint64_t begin = 0; begin < tokens && !b->no_memory;) {
        uint64_t end = min64(begin + s->piece_tokens, min64((begin / span + 1) * span, tokens));
        add_piece(b, &(struct piece){first + begin, first + end});
        begin = end;
    }
}

static void swap(uint32_t *at, uint32_t x, uint32_t y) {
    if (*at == x || *at == y) *at = x + y - *at;
}

static void swap_buffers(struct builder *b, uint32_t x, uint32_t y) {
    const bool kept = b->kept[x];
    b->kept[x] = b->kept[y], b->kept[y] = kept;
    for (uint32_t i = 0; i < b->depth; i++) swap(&b->stack[i], x, y);
    for (uint32_t i = 0; i < b->plan.call_count; i++) {
        struct wh_sum_call *c = &b->plan.calls[i];
        swap(&c->buffer, x, y);
        for (uint32_t m = 0; m < c->merges; m++) {
            swap(&c->merge[m].left, x, y);
            swap(&c->merge[m].right, x, y);
        }
    }
}

/* What is left on the stack are the contributions; number j goes to buffer j. */
static void number_roots(struct builder *b) {
    for (uint32_t j = 0; j < b->depth; j++)
        if (b->stack[j] != j) swap_buffers(b, b->stack[j], j);
    b->plan.roots = b->depth;
    for (uint32_t i = 0; i < b->plan.buffers; i++)
        if (b->kept[i]) b->plan.kept = i + 1;
}

enum wh_status wh_sum_plan_new(const struct wh_sum_shape *shape, struct wh_sum_plan *out) {
    WH_ASSERT(shape->groups > 0 && shape->sequences % shape->groups == 0 && shape->piece_tokens > 0);
    WH_ASSERT(shape->chunks == 1 || shape->piece_tokens % shape->positions == 0);
    WH_ASSERT(shape->own_chunks == 0 || shape->groups <= WH_SUM_ROOTS_MAX || shape->group_count <= WH_SUM_ROOTS_MAX);
    WH_ASSERT(shape->own_chunks == 0 || (shape->chunks > 1 && shape->first_chunk % shape->own_chunks == 0 &&
                                         shape->first_chunk + shape->own_chunks <= shape->chunks &&
                                         (shape->own_chunks & (shape->own_chunks - 1)) == 0));
    struct builder b = {.shape = shape,
                        .plan.leaves = shape->own_chunks ? shape->own_chunks : shape->groups * shape->chunks,
                        .chunks = shape->own_chunks ? shape->own_chunks : shape->chunks,
                        .first_group = shape->first_group,
                        .group_count = shape->group_count ? shape->group_count : shape->groups};
    WH_ASSERT((uint64_t)b.first_group + b.group_count <= shape->groups);
    b.buffer_capacity = WH_SUM_ROOTS_MAX + WH_SUM_MERGES_MAX + 1 + shape->chunks;
    b.open = malloc(shape->chunks * sizeof *b.open);
    b.used = calloc(b.buffer_capacity, sizeof *b.used);
    b.kept = calloc(b.buffer_capacity, sizeof *b.kept);
    if (!b.open || !b.used || !b.kept) b.no_memory = true;
    for (uint32_t q = 0; q < shape->chunks && b.open; q++) b.open[q] = UINT32_MAX;
    if (!b.no_memory) add_pieces(&b);
    if (!b.no_memory) number_roots(&b);
    free(b.open);
    free(b.used);
    free(b.kept);
    if (b.no_memory) {
        wh_sum_plan_free(&b.plan);
        return WH_FAIL(WH_NOMEM, "no memory to plan sums over %u leaves", b.plan.leaves);
    }
    *out = b.plan;
    return WH_OK;
}

void wh_sum_plan_free(struct wh_sum_plan *p) {
    free(p->pieces);
    free(p->calls);
    free(p->parts);
    *p = (struct wh_sum_plan){0};
}

enum wh_status wh_sum_joins(uint32_t groups, uint32_t chunks, uint32_t ranks, struct wh_sum_joins *out) {
    if (ranks < 1 || ranks > WH_SUM_RANKS_MAX || groups % ranks != 0)
        return WH_FAIL(WH_CONFIG, "%u ranks: they must share %u groups of samples evenly and be at most %d", ranks,
                       groups, WH_SUM_RANKS_MAX);
    const uint32_t leaves = groups * chunks, each = leaves / ranks;
    *out = (struct wh_sum_joins){.ranks = ranks};
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t leaf = r * each, end = leaf + each, count; leaf < end; leaf += count) {
            count = subtree_at(leaf, end, leaves);
            out->merges[out->count++] = (uint8_t)merges_after(leaf, count, leaves);
            out->inputs[r]++;
        }
    return WH_OK;
}
