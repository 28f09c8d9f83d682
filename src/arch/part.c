#include "arch/part.h"

#include <stdlib.h>

#include "mesh/shard.h"

static size_t aligned(size_t at) { return (at + WH_PARAM_ALIGN - 1) / WH_PARAM_ALIGN * WH_PARAM_ALIGN; }

static struct wh_param cut(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t) {
    static const enum wh_shard_axis axis[] = {
        [WH_CUT_NONE] = WH_SHARD_WHOLE, [WH_CUT_ROWS] = WH_SHARD_ROWS, [WH_CUT_COLS] = WH_SHARD_COLS};
    const struct wh_shard_box box = wh_shard_box(axis[p->cut], p->rows, p->cols ? p->cols : 1, S, tp, t);
    struct wh_param q = *p;
    q.rows = box.rows, q.cols = p->cols ? box.cols : 0;
    q.elems = box.rows * box.cols;
    q.first_row = box.row, q.first_col = box.col;
    return q;
}

size_t wh_param_held_elems(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t) {
    return cut(p, S, tp, t).elems;
}

enum wh_status wh_params_part(const struct wh_params *whole, const bool *held, uint32_t S, uint32_t tp, uint32_t t,
                              struct wh_params *out) {
    struct wh_params p = {.whole = whole, .tp = tp, .t = t, .list = calloc(whole->count, sizeof *p.list)};
    if (!p.list) return WH_FAIL(WH_NOMEM, "no memory for a table of %zu tensors", whole->count);
    WH_ASSERT(!whole->whole);
    for (size_t i = 0; i < whole->count; i++) {
        struct wh_param q = cut(&whole->list[i], S, tp, t);
        if ((held && !held[i]) || q.elems == 0) continue;
        if (!q.joined) p.buffer_elems = aligned(p.buffer_elems);
        q.offset = p.buffer_elems;
        p.buffer_elems += q.elems;
        p.elems += q.elems;
        p.list[p.count++] = q;
    }
    p.buffer_elems = aligned(p.buffer_elems);
    *out = p;
    return WH_OK;
}

size_t wh_param_logical(const struct wh_param *p, size_t e, size_t *run) {
    const size_t cols = p->cols ? p->cols : 1, whole = p->whole_cols ? p->whole_cols : 1;
    const size_t row = e / cols, col = e % cols;
    *run = cols == whole ? p->elems - e : cols - col;
    return (p->first_row + row) * whole + p->first_col + col;
}
