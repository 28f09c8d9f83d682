/* For tests of checkpoints of parts: a model with known numbers, layouts of ranks that keep parts of it, and their saves. */
#ifndef WH_TEST_UNIT_CKPT_LAYOUTS_H
#define WH_TEST_UNIT_CKPT_LAYOUTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/owners.h"
#include "arch/part.h"
#include "ckpt/checkpoint.h"
#include "os/file.h"
#include "test/support/folder.h"
#include "test/support/ranks.h"

enum { RANKS_MAX = 16, STAGES_MAX = 4, DP_MAX = 5, CLASSES = 3, SLICES = 4 };

static struct wh_model model;
static struct wh_params params;
static float *values[CLASSES]; /* what one rank holds of weights, m and v */
static char folder[TEST_FOLDER_BYTES];

/* Odd sizes, so that flat buffers have alignment gaps, and the last of SLICES slices are shorter or empty. */
static inline void make(enum wh_family family, uint32_t V, uint32_t C, uint32_t F, uint32_t L) {
    wh_model_defaults(family, &model);
    model.V = V, model.C = C, model.L = L, model.H = 3, model.Hkv = 1, model.D = 2, model.F = F;
    model.max_position = 16;
    assert_int_equal(wh_params_new(&model, &params), WH_OK);
    for (int c = 0; c < CLASSES; c++) {
        values[c] = malloc(4 * params.buffer_elems);
        for (size_t i = 0; i < params.buffer_elems; i++) values[c][i] = (float)(c * 100000000 + (int)i);
    }
}

static inline void unmake(void) {
    for (int c = 0; c < CLASSES; c++) free(values[c]);
    wh_params_free(&params);
}

static inline int setup(void **state) {
    (void)state;
    assert_true(test_folder_make(folder, "parts"));
    make(WH_LLAMA, 13, 6, 7, 5);
    return 0;
}

static inline int teardown(void **state) {
    (void)state;
    unmake();
    return wh_dir_remove(folder) == WH_OK ? 0 : -1;
}

static inline char *in(const char *run, const char *inside) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s/%s", folder, run, inside);
    return p;
}

static inline void expect(enum wh_status got, enum wh_status want, const char *text) {
    if (got != want) fail_msg("status %s: %s", wh_status_name(got), got ? wh_error()->message : "");
    if (want != WH_OK && !strstr(wh_error()->message, text))
        fail_msg("\"%s\" has no \"%s\"", wh_error()->message, text);
}

/* ---- layouts ---- */

/* rank = t + tp * (d + dp * p). Degrees of 0 are 1. */
struct layout {
    uint32_t pp, chunks, dp, tp;
    uint8_t layer_border[STAGES_MAX + 1]; /* of pp * chunks stages; of one: unused */
    bool vee;                             /* the second chunks of the ranks are in the opposite order */
    uint8_t own[DP_MAX][2]; /* ranges of its line that a rank keeps, in hundredths; none for any: all of it, if not */
    bool owners;            /* as arch/owners.h has it */
    bool holes;             /* what a rank alone keeps is not in one piece */
    enum wh_dtype compute;
};

static inline uint32_t or_one(uint32_t degree) { return degree ? degree : 1; }

static inline uint32_t ranks_of(const struct layout *l) { return or_one(l->pp) * or_one(l->dp) * or_one(l->tp); }

/* What everybody keeps. Points into itself. */
struct world {
    uint32_t ranks;
    struct wh_params part[RANKS_MAX];
    struct wh_ckpt_holding holding[RANKS_MAX];
    uint8_t *keeper; /* [params.buffer_elems] the lowest rank that keeps the element */
};

static inline bool stage_holds(const struct layout *l, uint32_t stage, const struct wh_param *p) {
    const uint32_t last = or_one(l->pp) * or_one(l->chunks) - 1;
    if (last == 0) return true;
    if (p->layer >= 0) return l->layer_border[stage] <= p->layer && p->layer < l->layer_border[stage + 1];
    if (p->id == WH_P_EMBED_POSITION || (p->id == WH_P_EMBED_TOKEN && !model.tied)) return stage == 0;
    return stage == last;
}

static inline bool rank_holds(const struct layout *l, uint32_t pp, const struct wh_param *p) {
    for (uint32_t k = 0; k < or_one(l->chunks); k++) {
        const uint32_t place = l->vee && k % 2 ? or_one(l->pp) - 1 - pp : pp;
        if (stage_holds(l, k * or_one(l->pp) + place, p)) return true;
    }
    return false;
}

static inline bool gives_own(const struct layout *l) {
    for (int d = 0; d < DP_MAX; d++)
        if (l->own[d][1]) return true;
    return false;
}

static inline struct wh_range own_of(const struct layout *l, const struct wh_params *part, uint32_t d) {
    const size_t line = part->buffer_elems;
    size_t border[RANKS_MAX + 1];
    if (gives_own(l)) return (struct wh_range){line * l->own[d][0] / 100, line * l->own[d][1] / 100};
    if (!l->owners) return (struct wh_range){0, line};
    assert_int_equal(wh_owners(part, SLICES, or_one(l->dp), border), WH_OK);
    return (struct wh_range){border[d], border[d + 1]};
}

/* Where element `e` of a part's tensor lies in the model's line. */
static inline size_t model_elem(const struct wh_param *p, size_t e) {
    const size_t cols = p->cols ? p->cols : 1, whole = p->whole_cols ? p->whole_cols : 1;
    return params.list[p->index].offset + (p->first_row + e / cols) * whole + p->first_col + e % cols;
}

/* Does this rank keep element `e` of its tensor p? */
static inline bool keeps(const struct wh_ckpt_holding *h, const struct wh_param *p, size_t e) {
    return p->offset + e >= h->own.begin && p->offset + e < h->own.end;
}

static inline void make_world(const struct layout *l, struct world *w) {
    bool held[256];
    *w = (struct world){.ranks = ranks_of(l), .keeper = malloc(params.buffer_elems)};
    assert_true(w->ranks <= RANKS_MAX && params.count <= sizeof held / sizeof *held);
    memset(w->keeper, UINT8_MAX, params.buffer_elems);
    for (uint32_t r = w->ranks; r-- > 0;) {
        const uint32_t t = r % or_one(l->tp), d = r / or_one(l->tp) % or_one(l->dp),
                       p = r / or_one(l->tp) / or_one(l->dp);
        struct wh_params *part = &w->part[r];
        for (size_t i = 0; i < params.count; i++) held[i] = rank_holds(l, p, &params.list[i]);
        assert_int_equal(wh_params_part(&params, held, SLICES, or_one(l->tp), t, part), WH_OK);
        w->holding[r] = (struct wh_ckpt_holding){part, own_of(l, part, d)};
        for (size_t i = 0; i < part->count; i++)
            for (size_t e = 0; e < part->list[i].elems; e++)
                if (keeps(&w->holding[r], &part->list[i], e)) w->keeper[model_elem(&part->list[i], e)] = (uint8_t)r;
    }
}

static inline void free_world(struct world *w) {
    for (uint32_t r = 0; r < w->ranks; r++) wh_params_free(&w->part[r]);
    free(w->keeper);
}

/* ---- saving ---- */

/* A copy of just what the rank keeps, so that sanitizers see every step beyond it. `only`: what a lower rank keeps too, and
 * gaps, are wrong. */
static inline struct wh_ckpt_slab slab_of(const struct world *w, int class, uint32_t rank, bool only) {
    const struct wh_ckpt_holding *h = &w->holding[rank];
    struct wh_ckpt_slab s = {NULL, h->own.begin, h->own.end - h->own.begin};
    s.data = malloc(4 * s.elems + 1);
    for (size_t i = 0; i < s.elems; i++) s.data[i] = -1.0f;
    for (size_t i = 0; i < h->params->count; i++) {
        const struct wh_param *p = &h->params->list[i];
        for (size_t e = 0; e < p->elems; e++)
            if (keeps(h, p, e) && (!only || w->keeper[model_elem(p, e)] == rank))
                s.data[p->offset + e - s.first] = values[class][model_elem(p, e)];
    }
    return s;
}

struct saving {
    const struct layout *layout;
    const char *run;
    uint64_t step;
};

static inline struct wh_ckpt_view view_of(const struct saving *s, const struct world *w, uint32_t rank) {
    return (struct wh_ckpt_view){.model = &model,
                                 .params = &params,
                                 .grain = {1, 4, 1},
                                 .compute = s->layout->compute,
                                 .state = {s->step, 12 * s->step, 3000 * s->step, 12 * s->step, s->step, 7},
                                 .weights = slab_of(w, 0, rank, true),
                                 .m = slab_of(w, 1, rank, true),
                                 .v = slab_of(w, 2, rank, true)};
}

static inline void free_view(struct wh_ckpt_view *v) { free(v->weights.data), free(v->m.data), free(v->v.data); }

static inline enum wh_status open_all(struct wh_comm_job *job, struct wh_comm **comm) {
    uint32_t members[RANKS_MAX];
    for (uint32_t r = 0; r < RANKS_MAX; r++) members[r] = r;
    return wh_comm_open(job, 0, "world", members, wh_comm_job_ranks(job), comm);
}

static inline enum wh_status save(struct wh_comm *comm, const struct saving *s) {
    struct world w;
    make_world(s->layout, &w);
    struct wh_ckpt_view v = view_of(s, &w, wh_comm_rank(comm));
    v.comm = comm, v.holding = w.holding;
    enum wh_status status = wh_ckpt_save(in(s->run, ""), &v, 0, NULL);
    free_view(&v);
    free_world(&w);
    return status;
}

static inline struct test_ranks job_of(uint32_t ranks, const void *context,
                                       enum wh_status (*body)(struct wh_comm_job *, uint32_t,
                                                              const struct test_ranks *)) {
    return (struct test_ranks){
        .config = {.ranks = ranks, .deadline_ns = 60000000000u}, .body = body, .context = context, .limit_s = 150};
}

/* Saved by one process without a job. */
static inline void save_alone(const char *run, enum wh_dtype compute, uint64_t step) {
    const struct layout l = {.compute = compute};
    const struct saving s = {&l, run, step};
    struct world w;
    make_world(&l, &w);
    struct wh_ckpt_view v = view_of(&s, &w, 0);
    expect(wh_ckpt_save(in(run, ""), &v, 0, NULL), WH_OK, "");
    free_view(&v);
    free_world(&w);
}

/* Loads part `rank` of a layout into exactly its room; right: all that it must have, nothing after a failure. */
static inline enum wh_status load_part(const char *path, const struct layout *l, uint32_t rank, bool *right) {
    struct world w;
    struct wh_ckpt_slab slabs[CLASSES];
    make_world(l, &w);
    for (int c = 0; c < CLASSES; c++) {
        slabs[c] = slab_of(&w, c, rank, false);
        for (size_t i = 0; i < slabs[c].elems; i++) slabs[c].data[i] = -1.0f;
    }
    enum wh_status status = wh_ckpt_load(path, w.holding[rank].params, slabs[0], slabs[1], slabs[2]);
    *right = true;
    for (int c = 0; c < CLASSES; c++) {
        struct wh_ckpt_slab wanted = slab_of(&w, c, rank, false);
        for (size_t i = 0; i < wanted.elems && status != WH_OK; i++) wanted.data[i] = -1.0f;
        *right &= memcmp(wanted.data, slabs[c].data, 4 * slabs[c].elems) == 0;
        free(wanted.data);
        free(slabs[c].data);
    }
    free_world(&w);
    return status;
}

#endif
