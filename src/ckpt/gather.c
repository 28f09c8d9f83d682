#include "ckpt/gather.h"

#include <stdlib.h>
#include <string.h>

#include "arch/part.h"
#include "comm/comm.h"

enum { PIECE_ELEMS = 1 << 18 };

/* Words of an ask; no elements: only a sign of life; class WH_CKPT_CLASSES: the end. */
enum { ASK_CLASS, ASK_FIRST, ASK_ELEMS, ASK_WORDS };

/* What rank 0 tells at the end: its error record, without the pointer in it. */
struct ending {
    int32_t code, frames;
    char message[WH_ERROR_MESSAGE_BYTES];
    char frame[WH_ERROR_FRAMES][WH_ERROR_FRAME_BYTES];
};

void wh_ckpt_gather_begin(const struct wh_ckpt_view *view, struct wh_ckpt_gather *out) {
    *out = (struct wh_ckpt_gather){.view = view};
    if (!view->holding) return;
    out->piece = malloc(PIECE_ELEMS * sizeof *out->piece);
    out->answer = malloc(PIECE_ELEMS * sizeof *out->answer);
    out->filled = malloc(PIECE_ELEMS * sizeof *out->filled);
    WH_ASSERT(out->piece && out->answer && out->filled);
}

void wh_ckpt_gather_free(struct wh_ckpt_gather *g) {
    free(g->piece);
    free(g->answer);
    free(g->filled);
    *g = (struct wh_ckpt_gather){0};
}

static enum wh_status message(struct wh_comm *comm, enum wh_comm_op op, uint32_t other, const char *row,
                              enum wh_dtype dtype, const void *in, void *out, size_t count) {
    const struct wh_comm_call call = {
        .op = op, .in = in, .out = out, .count = count, .dtype = dtype, .root = other, .row = row};
    return wh_comm_run(comm, &call);
}

static enum wh_status ask(struct wh_comm *comm, uint32_t other, enum wh_ckpt_class class, size_t first, size_t elems) {
    const int64_t words[ASK_WORDS] = {[ASK_CLASS] = class, [ASK_FIRST] = (int64_t)first, [ASK_ELEMS] = (int64_t)elems};
    return message(comm, WH_SEND, other, "ckpt.ask", WH_I64, words, NULL, ASK_WORDS);
}

static enum wh_status ask_all(struct wh_comm *comm, enum wh_ckpt_class class) {
    for (uint32_t r = 1; comm && r < wh_comm_size(comm); r++) WH_TRY(ask(comm, r, class, 0, 0));
    return WH_OK;
}

enum wh_status wh_ckpt_gather_sign(const struct wh_ckpt_gather *g) { return ask_all(g->view->comm, WH_CKPT_WEIGHTS); }

static const float *in_slab(const struct wh_ckpt_view *v, enum wh_ckpt_class class, size_t first, size_t elems) {
    const struct wh_ckpt_slab *const slabs[WH_CKPT_CLASSES] = {&v->weights, &v->m, &v->v}, *s = slabs[class];
    WH_ASSERT(s->data && first >= s->first && first - s->first + elems <= s->elems);
    return s->data + (first - s->first);
}

/* ---- who keeps what of a tensor ---- */

/* What a rank holds of tensor `index` of the model; NULL: nothing. Tables are in the model's order. */
static const struct wh_param *find(const struct wh_params *p, size_t index) {
    size_t begin = 0, end = p->count;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (p->list[middle].index < index)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin < p->count && p->list[begin].index == index ? &p->list[begin] : NULL;
}

/* How many of the rectangle's elements come before element `at` of the logical tensor. */
static size_t before(const struct wh_param *p, size_t at) {
    const size_t whole = p->whole_cols ? p->whole_cols : 1, cols = p->cols ? p->cols : 1;
    const size_t row = at / whole, col = at % whole;
    if (row < p->first_row) return 0;
    if (row >= p->first_row + p->rows) return p->elems;
    const size_t left = col > p->first_col ? col - p->first_col : 0;
    return (row - p->first_row) * cols + (left < cols ? left : cols);
}

/* What a rank keeps of elements [at, end) of the logical tensor, as a range of its own elements of the tensor. */
static struct wh_range kept(const struct wh_ckpt_holding *h, const struct wh_param *p, size_t at, size_t end) {
    struct wh_range r = {before(p, at), before(p, end)};
    if (p->offset + r.begin < h->own.begin) r.begin = h->own.begin - p->offset;
    if (p->offset + r.end > h->own.end) r.end = h->own.end > p->offset ? h->own.end - p->offset : 0;
    if (r.end < r.begin) r.end = r.begin;
    return r;
}

/* A run of a range of a rectangle's elements: `n` of them from `e` on lie at `at` and behind it in the logical tensor. */
struct run {
    size_t e, at, n;
};

static struct run run_from(const struct wh_param *p, size_t e, size_t end) {
    struct run r = {.e = e};
    r.at = wh_param_logical(p, e, &r.n);
    if (r.n > end - e) r.n = end - e;
    return r;
}

/* ---- pieces ---- */

/* `range` without what is already there at its ends. `first` is the piece's place in the tensor. */
static struct wh_range missing(const struct wh_ckpt_gather *g, const struct wh_param *p, struct wh_range range,
                               size_t first) {
    struct wh_range m = {range.end, range.end};
    for (struct run r = {.e = range.begin}; r.e < range.end; r.e += r.n) {
        r = run_from(p, r.e, range.end);
        const bool *const filled = g->filled + (r.at - first);
        const bool *const low = memchr(filled, false, r.n), *const high = memrchr(filled, false, r.n);
        if (!low) continue;
        if (m.begin == range.end) m.begin = r.e + (size_t)(low - filled);
        m.end = r.e + (size_t)(high - filled) + 1;
    }
    return m;
}

/* Puts a rank's elements where nothing is yet; returns how many. */
static size_t put(const struct wh_ckpt_gather *g, const struct wh_param *p, struct wh_range range, const float *data,
                  size_t first) {
    size_t count = 0;
    for (struct run r = {.e = range.begin}; r.e < range.end; r.e += r.n) {
        r = run_from(p, r.e, range.end);
        bool *const filled = g->filled + (r.at - first);
        for (size_t i = 0, n; i < r.n; i += n) {
            const bool *const other = memchr(filled + i, !filled[i], r.n - i);
            n = (other ? (size_t)(other - filled) : r.n) - i;
            if (filled[i]) continue;
            memcpy(g->piece + (r.at - first + i), data + (r.e - range.begin + i), n * sizeof *data);
            memset(filled + i, true, n * sizeof *filled);
            count += n;
        }
    }
    return count;
}

/* `elems` of a rank's line from `first` on. */
static enum wh_status get(const struct wh_ckpt_gather *g, enum wh_ckpt_class class, uint32_t rank, size_t first,
                          size_t elems, const float **data) {
    struct wh_comm *comm = g->view->comm;
    *data = rank == 0 ? in_slab(g->view, class, first, elems) : g->answer;
    if (rank == 0) return WH_OK;
    WH_TRY(ask(comm, rank, class, first, elems));
    return message(comm, WH_RECV, rank, "ckpt.send", WH_F32, NULL, g->answer, elems);
}

/* The lowest rank that keeps an element gives it. */
static enum wh_status fill(const struct wh_ckpt_gather *g, enum wh_ckpt_class class, size_t tensor, size_t at,
                           size_t elems) {
    const struct wh_ckpt_view *v = g->view;
    size_t left = elems;
    memset(g->filled, false, elems * sizeof *g->filled);
    for (uint32_t r = 0; left > 0 && r < wh_comm_size(v->comm); r++) {
        const struct wh_param *p = find(v->holding[r].params, tensor);
        if (!p) continue;
        const struct wh_range range = missing(g, p, kept(&v->holding[r], p, at, at + elems), at);
        const float *data;
        if (range.begin == range.end) continue;
        WH_TRY(get(g, class, r, p->offset + range.begin, range.end - range.begin, &data));
        left -= put(g, p, range, data, at);
    }
    if (left == 0) return WH_OK;
    return WH_FAIL(WH_INTERNAL, "no rank keeps %zu of the elements [%zu, %zu) of tensor %s", left, at, at + elems,
                   v->params->list[tensor].name);
}

/* How many elements from `at` on this rank keeps side by side. */
static size_t in_place(const struct wh_ckpt_gather *g, enum wh_ckpt_class class, size_t tensor, size_t at, size_t end,
                       const float **data) {
    const struct wh_ckpt_holding whole = {g->view->params, {0, g->view->params->buffer_elems}},
                                 *h = g->view->holding ? &g->view->holding[0] : &whole;
    const struct wh_param *p = find(h->params, tensor);
    const struct wh_range range = p ? kept(h, p, at, end) : (struct wh_range){0};
    if (range.begin == range.end) return 0;
    const struct run r = run_from(p, range.begin, range.end);
    if (r.at != at) return 0;
    *data = in_slab(g->view, class, p->offset + r.e, r.n);
    return r.n;
}

enum wh_status wh_ckpt_gather_piece(const struct wh_ckpt_gather *g, enum wh_ckpt_class class, size_t tensor, size_t at,
                                    const float **data, size_t *elems) {
    const size_t end = g->view->params->list[tensor].elems;
    size_t n = in_place(g, class, tensor, at, end, data);
    if (n == 0) {
        n = end - at < PIECE_ELEMS ? end - at : PIECE_ELEMS;
        WH_TRY(fill(g, class, tensor, at, n));
        *data = g->piece;
    }
    *elems = n;
    return WH_OK;
}

/* ---- the end, and the other side ---- */

static enum wh_status tell(struct wh_comm *comm, struct ending *e) {
    WH_TRY(ask_all(comm, WH_CKPT_CLASSES));
    return message(comm, WH_BROADCAST, 0, "ckpt.end", WH_U8, NULL, e, sizeof *e);
}

enum wh_status wh_ckpt_gather_end(const struct wh_ckpt_view *view, enum wh_status status) {
    if (!view->comm) return status;
    const struct wh_error first = *wh_error();
    struct ending e = {.code = (int32_t)status};
    if (status != WH_OK) {
        e.frames = first.frames;
        memcpy(e.message, first.message, sizeof e.message);
        memcpy(e.frame, first.frame, sizeof e.frame);
    }
    const enum wh_status told = tell(view->comm, &e);
    if (status == WH_OK) return told;
    *wh_error() = first;
    return status;
}

static enum wh_status hear_end(struct wh_comm *comm) {
    struct ending e;
    WH_TRY(message(comm, WH_BROADCAST, 0, "ckpt.end", WH_U8, NULL, &e, sizeof e));
    if (e.code == WH_OK) return WH_OK;
    enum wh_status status = WH_FAIL(WH_PEER, "rank 0, which saves, failed: %s", e.message);
    for (int32_t i = 0; i < e.frames; i++) wh_while(status, "%s", e.frame[i]);
    return status;
}

enum wh_status wh_ckpt_gather_serve(const struct wh_ckpt_view *view) {
    for (;;) {
        int64_t words[ASK_WORDS];
        WH_TRY(message(view->comm, WH_RECV, 0, "ckpt.ask", WH_I64, NULL, words, ASK_WORDS));
        const enum wh_ckpt_class class = (enum wh_ckpt_class)words[ASK_CLASS];
        const size_t elems = (size_t)words[ASK_ELEMS];
        if (class == WH_CKPT_CLASSES) return hear_end(view->comm);
        if (!elems) continue;
        const float *data = in_slab(view, class, (size_t)words[ASK_FIRST], elems);
        WH_TRY(message(view->comm, WH_SEND, 0, "ckpt.send", WH_F32, data, NULL, elems));
    }
}
