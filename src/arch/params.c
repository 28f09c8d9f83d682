#include "arch/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum scope { E, L, F };

/* One row of the table, evaluated for a model. */
struct row {
    enum wh_param_id id;
    const char *name;
    enum scope scope;
    size_t rows, cols;
    enum wh_param_cut cut;
    bool decay, present, joined;
    enum wh_param_init init;
};

static void fill_rows(const struct wh_model *m, struct row rows[WH_P_COUNT]) {
    const struct row table[WH_P_COUNT] = {
#define ROW(id, name, scope, rows, cols, cut, decay, init, present, joined) \
    {WH_P_##id, name, scope, rows, cols, WH_CUT_##cut, decay, present, joined, WH_INIT_##init},
#define X(id, name, scope, rows, cols, cut, decay, init, present) \
    ROW(id, name, scope, (size_t)(rows), (size_t)(cols), cut, decay, init, present, false)
#define J(id, name, scope, rows, cols, cut, decay, init, present) \
    ROW(id, name, scope, (size_t)(rows), (size_t)(cols), cut, decay, init, present, true)
#include "arch/params.def"
#undef X
#undef J
#undef ROW
    };
    memcpy(rows, table, sizeof table);
}

static void append(struct wh_params *p, const struct row *r, int layer) {
    struct wh_param *q = &p->list[p->count++];
    *q = (struct wh_param){.id = r->id,
                           .layer = layer,
                           .rows = r->rows,
                           .cols = r->cols,
                           .cut = r->cut,
                           .decay = r->decay,
                           .init = r->init};
    q->index = p->count - 1, q->whole_rows = q->rows, q->whole_cols = q->cols;
    q->elems = r->rows * (r->cols ? r->cols : 1);
    if (layer >= 0)
        snprintf(q->name, sizeof q->name, "layer.%d.%s", layer, r->name);
    else
        snprintf(q->name, sizeof q->name, "%s", r->name);
    /* joined only makes sense to a tensor that is there: mlp.up stands alone when there is no gate */
    q->joined = r->joined && p->count > 1 && p->list[p->count - 2].id == r->id - 1;
    if (!q->joined) p->buffer_elems = (p->buffer_elems + WH_PARAM_ALIGN - 1) / WH_PARAM_ALIGN * WH_PARAM_ALIGN;
    q->offset = p->buffer_elems;
    p->buffer_elems += q->elems;
    p->elems += q->elems;
}

static void append_scope(struct wh_params *p, const struct row *rows, enum scope scope, int layer) {
    for (int i = 0; i < WH_P_COUNT; i++)
        if (rows[i].scope == scope && rows[i].present) append(p, &rows[i], layer);
}

enum wh_status wh_params_new(const struct wh_model *m, struct wh_params *out) {
    struct row rows[WH_P_COUNT];
    struct wh_params p = {.tp = 1};
    p.list = calloc((size_t)WH_P_COUNT * (m->L + 1), sizeof *p.list);
    if (!p.list) return WH_FAIL(WH_NOMEM, "no memory for a table of %u layers", m->L);
    fill_rows(m, rows);
    append_scope(&p, rows, E, -1);
    p.first_layer = p.count;
    for (uint32_t layer = 0; layer < m->L; layer++) append_scope(&p, rows, L, (int)layer);
    p.per_layer = m->L ? (p.count - p.first_layer) / m->L : 0;
    append_scope(&p, rows, F, -1);
    p.buffer_elems = (p.buffer_elems + WH_PARAM_ALIGN - 1) / WH_PARAM_ALIGN * WH_PARAM_ALIGN;
    *out = p;
    return WH_OK;
}

void wh_params_free(struct wh_params *p) {
    free(p->list);
    *p = (struct wh_params){0};
}

uint32_t wh_params_unit(const struct wh_param *p, uint32_t layers) {
    if (p->layer >= 0) return (uint32_t)p->layer + 1;
    return p->id == WH_P_EMBED_TOKEN || p->id == WH_P_EMBED_POSITION ? 0 : layers + 1;
}

void wh_params_units(const struct wh_params *p, uint32_t layers, size_t *border) {
    uint32_t unit = 0;
    border[0] = 0;
    for (size_t i = 0; i < p->count; i++)
        while (unit < wh_params_unit(&p->list[i], layers)) border[++unit] = p->list[i].offset;
    while (unit < layers + 2) border[++unit] = p->buffer_elems;
}

const struct wh_param *wh_params_find(const struct wh_params *p, enum wh_param_id id, int layer) {
    size_t begin = 0, end = p->count;
    if (layer >= 0 && !p->whole) begin = p->first_layer + (size_t)layer * p->per_layer, end = begin + p->per_layer;
    for (size_t i = begin; i < end; i++)
        if (p->list[i].id == id && p->list[i].layer == layer) return &p->list[i];
    return NULL;
}

bool wh_params_have_embedding(const struct wh_params *p) {
    return wh_params_find(p, WH_P_EMBED_TOKEN, -1) || wh_params_find(p, WH_P_EMBED_POSITION, -1);
}

const struct wh_param *wh_params_find_name(const struct wh_params *p, const char *name) {
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->list[i].name, name) == 0) return &p->list[i];
    return NULL;
}
