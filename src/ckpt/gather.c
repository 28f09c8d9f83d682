#include "ckpt/gather.h"

#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "mesh/shard.h"

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
    if (!view->weights_shared && !view->moments_shared) return;
    out->piece = malloc(PIECE_ELEMS * sizeof *out->piece);
    WH_ASSERT(out->piece != NULL);
}

void wh_ckpt_gather_free(struct wh_ckpt_gather *g) {
    free(g->piece);
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

enum wh_status wh_ckpt_gather_piece(const struct wh_ckpt_gather *g, enum wh_ckpt_class class, size_t at, size_t end,
                                    const float **data, size_t *elems) {
    const struct wh_ckpt_view *v = g->view;
    const bool shared = class == WH_CKPT_WEIGHTS ? v->weights_shared : v->moments_shared;
    uint32_t owner = 0;
    size_t n = end - at;
    if (shared) {
        owner = wh_shard_owner(v->border, wh_comm_size(v->comm), at);
        if (n > v->border[owner + 1] - at) n = v->border[owner + 1] - at;
    }
    *data = owner == 0 ? in_slab(v, class, at, n) : g->piece;
    if (owner != 0) {
        if (n > PIECE_ELEMS) n = PIECE_ELEMS;
        WH_TRY(ask(v->comm, owner, class, at, n));
        WH_TRY(message(v->comm, WH_RECV, owner, "ckpt.send", WH_F32, NULL, g->piece, n));
    }
    *elems = n;
    return WH_OK;
}

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
