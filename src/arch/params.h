/* The parameter table of a model: every logical tensor once, in one fixed order. Allocation, optimizer, checkpoint,
 * import and export, counting, sharding and planning all read it; nobody else writes a shape.
 *
 *     struct wh_params p;
 *     WH_TRY(wh_params_new(&model, &p));
 *     const struct wh_param *q = wh_params_find(&p, WH_P_ATTN_Q, layer);    // NULL if the model has none
 *     float *w = (float *)weights + q->offset;
 *
 * Offsets are in elements of one flat buffer that each class of state (weights, gradients, master, m, v) repeats with
 * its own dtype. A tensor starts on a multiple of WH_PARAM_ALIGN elements, except a joined one, which lies directly
 * behind the tensor before it (q,k,v and gate,up are one matrix to the GEMM). */
#ifndef WH_ARCH_PARAMS_H
#define WH_ARCH_PARAMS_H

#include <stddef.h>

#include "arch/model.h"

enum wh_param_id {
#define X(id, ...) WH_P_##id,
#define J(id, ...) WH_P_##id,
#include "arch/params.def"
#undef X
#undef J
    WH_P_COUNT
};

enum wh_param_cut { WH_CUT_NONE, WH_CUT_ROWS, WH_CUT_COLS };
enum wh_param_init { WH_INIT_NORMAL, WH_INIT_RESIDUAL, WH_INIT_ZEROS, WH_INIT_ONES };

enum { WH_PARAM_ALIGN = 32, WH_PARAM_NAME_BYTES = 48 };

struct wh_param {
    enum wh_param_id id;
    int layer; /* -1: not in a layer */
    char name[WH_PARAM_NAME_BYTES];
    size_t rows, cols; /* cols 0: a vector of `rows` */
    size_t elems;      /* rows * max(cols, 1) */
    size_t offset;     /* in elements */
    enum wh_param_cut cut;
    bool decay, joined;
    enum wh_param_init init;
    size_t index; /* in the model's own table */
    /* Of a part (arch/part.h): the rectangle's place in the logical tensor, and that one's shape. */
    size_t first_row, first_col, whole_rows, whole_cols;
};

struct wh_params {
    struct wh_param *list; /* owned */
    size_t count;
    size_t elems;                  /* parameters of the model: the sum of all `elems` */
    size_t buffer_elems;           /* length of a flat buffer, alignment included */
    size_t first_layer;            /* index of layer 0's first tensor; of a part: 0 */
    size_t per_layer;              /* tensors per layer; of a part: 0 */
    const struct wh_params *whole; /* of a part: the model's table, borrowed; else NULL */
    uint32_t tp, t;                /* of a part: tensor rank t of tp; else 1, 0 */
};

/* The model's own table. */
static inline const struct wh_params *wh_params_whole(const struct wh_params *p) { return p->whole ? p->whole : p; }

/* Start-up only (allocates). The model must have passed wh_model_check. Errors: NOMEM. */
enum wh_status wh_params_new(const struct wh_model *m, struct wh_params *out);
void wh_params_free(struct wh_params *p);

/* Borders of the units of the flat line, border[layers + 3]: [0, 1) what lies before the layers, [l + 1, l + 2) layer l, the
 * last one what lies behind them. Units that a part doesn't hold are empty. */
void wh_params_units(const struct wh_params *p, uint32_t layers, size_t *border);
/* Is a table of embeddings among these, whose gradient is summed from that of the embedded tokens? */
bool wh_params_have_embedding(const struct wh_params *p);

/* The unit of a tensor. */
uint32_t wh_params_unit(const struct wh_param *p, uint32_t layers);

/* layer is -1 for tensors outside the layers. NULL: this model has no such tensor. */
const struct wh_param *wh_params_find(const struct wh_params *p, enum wh_param_id id, int layer);
const struct wh_param *wh_params_find_name(const struct wh_params *p, const char *name);

#endif
