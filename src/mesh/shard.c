#include "mesh/shard.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void wh_shard_even(size_t n, uint32_t parts, size_t *border) {
    const size_t each = n / parts, longer = n % parts;
    WH_ASSERT(parts > 0);
    for (size_t k = 0; k <= parts; k++) border[k] = k * each + (k < longer ? k : longer);
}

/* A line of `n` in parts of `each`, the last ones shorter or empty. */
static void cut_every(size_t n, size_t each, uint32_t parts, size_t *border) {
    for (size_t k = 0; k <= parts; k++) border[k] = k * each < n ? k * each : n;
}

void wh_shard_slices(size_t n, uint32_t S, uint32_t parts, size_t *border) {
    WH_ASSERT(parts > 0 && S % parts == 0);
    cut_every(n, (n + S - 1) / S * (S / parts), parts, border);
}

static size_t greatest_common_divisor(size_t a, size_t b) {
    while (b) {
        const size_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

void wh_shard_padded(size_t n, size_t alignment, uint32_t parts, size_t *border) {
    WH_ASSERT(alignment > 0 && parts > 0);
    const size_t step = alignment / greatest_common_divisor(alignment, parts) * parts; /* least common multiple */
    cut_every(n, (n + step - 1) / step * step / parts, parts, border);
}

void wh_shard_owners(const size_t *cut, size_t cuts, uint32_t parts, size_t *border) {
    WH_ASSERT(cuts > 0 && cut[0] == 0 && parts > 0);
    const size_t n = cut[cuts - 1], each = n / parts, rest = n % parts;
    size_t at = 0;
    border[0] = 0;
    for (size_t k = 1; k < parts; k++) {
        /* the even place, k * n / parts without the product; places ascend, so `at` never goes back */
        const size_t want = k * each + k * rest / parts;
        while (at + 1 < cuts && cut[at + 1] <= want) at++;
        const size_t above = at + 1 < cuts ? cut[at + 1] : n;
        border[k] = above - want < want - cut[at] ? above : cut[at];
    }
    border[parts] = n;
}

uint32_t wh_shard_owner(const size_t *border, uint32_t parts, size_t i) {
    uint32_t low = 0, high = parts; /* border[low] <= i < border[high] */
    WH_ASSERT(i < border[parts]);
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (border[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* --- layers per stage --- */

struct layer_costs {
    const uint64_t *cost; /* NULL: 1 each */
    uint64_t before, after;
    uint32_t layers, stages;
    uint64_t *sum; /* [layers + 1]: of the layers below */
};

/* Cost of a stage that holds layers [begin, end), ends of the line included. */
static uint64_t stage_cost(const struct layer_costs *c, size_t begin, size_t end) {
    return c->sum[end] - c->sum[begin] + (begin == 0 ? c->before : 0) + (end == c->layers ? c->after : 0);
}

/* Whether no stage need cost more than `most`: each takes what fits, leaving a layer for every stage behind it. The last
 * stage may not take less than all that is left. */
static bool fits(const struct layer_costs *c, uint64_t most) {
    size_t begin = 0;
    for (uint32_t s = 0; s < c->stages; s++) {
        const size_t limit = c->layers - (c->stages - 1 - s); /* the layers behind it need a place each */
        size_t end = begin + 1;
        if (stage_cost(c, begin, end) > most) return false;
        while (end < limit && stage_cost(c, begin, end + 1) <= most) end++;
        begin = end;
    }
    return begin == c->layers;
}

static uint64_t least_dearest(const struct layer_costs *c) {
    uint64_t low = 0, high = stage_cost(c, 0, c->layers);
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (fits(c, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* best[s][b]: least sum of squares when stages s.. hold layers b..; next[s][b]: where stage s then ends. Filled from the
 * last stage; of equal sums the longest stage s is kept, so that earlier stages hold more. */
static void fill_best(const struct layer_costs *c, uint64_t most, double *best, uint32_t *next) {
    const size_t width = (size_t)c->layers + 1;
    for (size_t i = 0; i < (c->stages + 1) * width; i++) best[i] = INFINITY;
    best[c->stages * width + c->layers] = 0;
    for (uint32_t s = c->stages; s-- > 0;)
        for (size_t begin = s; begin < c->layers; begin++)
            for (size_t end = begin + 1; end <= c->layers; end++) {
                const uint64_t cost = stage_cost(c, begin, end);
                if (cost > most) break; /* longer ones cost no less */
                const double square = (double)cost * (double)cost + best[(s + 1) * width + end];
                if (square > best[s * width + begin] || square == INFINITY) continue;
                best[s * width + begin] = square;
                next[s * width + begin] = (uint32_t)end;
            }
}

static enum wh_status share_layers(struct layer_costs *c, size_t *border) {
    const size_t entries = ((size_t)c->stages + 1) * ((size_t)c->layers + 1);
    double *best = malloc(entries * sizeof *best);
    uint32_t *next = calloc(entries, sizeof *next);
    if (!best || !next) {
        free(best);
        free(next);
        return WH_FAIL(WH_NOMEM, "no memory to share %u layers out to %u stages", c->layers, c->stages);
    }
    fill_best(c, least_dearest(c), best, next);
    border[0] = 0;
    for (uint32_t s = 0; s < c->stages; s++) border[s + 1] = next[s * ((size_t)c->layers + 1) + border[s]];
    WH_ASSERT(border[c->stages] == c->layers);
    free(best);
    free(next);
    return WH_OK;
}

enum wh_status wh_shard_layers(const uint64_t *cost, uint32_t layers, uint64_t before, uint64_t after, uint32_t stages,
                               size_t *border) {
    WH_ASSERT(stages > 0);
    if (layers < stages)
        return WH_FAIL(WH_CONFIG, "%u layers can't fill %u pipeline stages, one layer is the least; nearest legal: %u",
                       layers, stages, layers);
    struct layer_costs c = {cost, before, after, layers, stages, calloc((size_t)layers + 1, sizeof *c.sum)};
    if (!c.sum) return WH_FAIL(WH_NOMEM, "no memory for the costs of %u layers", layers);
    for (uint32_t l = 0; l < layers; l++) c.sum[l + 1] = c.sum[l] + (cost ? cost[l] : 1);
    const enum wh_status status = share_layers(&c, border);
    free(c.sum);
    return status;
}

/* --- from one partition to another --- */

size_t wh_shard_moves(const size_t *from, uint32_t from_parts, const size_t *to, uint32_t to_parts,
                      struct wh_shard_move *out) {
    size_t count = 0, at = 0;
    WH_ASSERT(from[from_parts] == to[to_parts]);
    for (uint32_t f = 0, t = 0; at < from[from_parts];) {
        while (from[f + 1] <= at) f++; /* over empty parts too */
        while (to[t + 1] <= at) t++;
        const size_t end = from[f + 1] < to[t + 1] ? from[f + 1] : to[t + 1];
        out[count++] = (struct wh_shard_move){f, t, at, end};
        at = end;
    }
    return count;
}

struct wh_shard_box wh_shard_box(enum wh_shard_axis axis, size_t rows, size_t cols, uint32_t S, uint32_t parts,
                                 uint32_t part) {
    struct wh_shard_box box = {0, rows, 0, cols};
    const size_t n = axis == WH_SHARD_COLS ? cols : rows;
    WH_ASSERT(part < parts && S % parts == 0);
    if (axis == WH_SHARD_WHOLE) return box;
    const size_t each = (n + S - 1) / S * (S / parts), begin = part * each < n ? part * each : n;
    const size_t length = n - begin < each ? n - begin : each;
    if (axis == WH_SHARD_ROWS)
        box.row = begin, box.rows = length;
    else
        box.col = begin, box.cols = length;
    return box;
}

/* Shared part of [a, a + a_n) and [b, b + b_n); its length in *n. */
static size_t shared(size_t a, size_t a_n, size_t b, size_t b_n, size_t *n) {
    const size_t begin = a > b ? a : b, end = a + a_n < b + b_n ? a + a_n : b + b_n;
    *n = end > begin ? end - begin : 0;
    return begin;
}

struct wh_shard_box wh_shard_box_shared(const struct wh_shard_box *a, const struct wh_shard_box *b) {
    struct wh_shard_box both;
    both.row = shared(a->row, a->rows, b->row, b->rows, &both.rows);
    both.col = shared(a->col, a->cols, b->col, b->cols, &both.cols);
    if (both.rows == 0 || both.cols == 0) both.rows = both.cols = 0;
    return both;
}

int wh_shard_boxes_of_run(size_t cols, size_t begin, size_t end, struct wh_shard_box out[3]) {
    int count = 0;
    WH_ASSERT(cols > 0 && begin <= end);
    if (begin % cols && begin < end) {
        const size_t row = begin / cols, stop = end < (row + 1) * cols ? end : (row + 1) * cols;
        out[count++] = (struct wh_shard_box){row, 1, begin % cols, stop - begin};
        begin = stop;
    }
    const size_t rows = (end - begin) / cols;
    if (rows > 0) out[count++] = (struct wh_shard_box){begin / cols, rows, 0, cols};
    begin += rows * cols;
    if (begin < end) out[count++] = (struct wh_shard_box){begin / cols, 1, 0, end - begin};
    return count;
}
