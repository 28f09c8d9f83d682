#include "arch/norm_blocks.h"

/* A tensor as rows x cols, and which of the two is cut in slices. A vector is one row. */
struct view {
    size_t rows, cols;
    bool by_rows, by_cols;
};

static struct view view_of(const struct wh_param *p) {
    struct view v = {.rows = p->cols ? p->rows : 1, .cols = p->cols ? p->cols : p->rows};
    v.by_rows = p->cols && p->cut == WH_CUT_ROWS;
    v.by_cols = p->cut == WH_CUT_COLS || (!p->cols && p->cut == WH_CUT_ROWS);
    return v;
}

static size_t rows_per_block(size_t width) {
    return width && width < WH_NORM_BLOCK_ELEMS ? WH_NORM_BLOCK_ELEMS / width : 1;
}

size_t wh_norm_blocks(const struct wh_param *p, uint32_t S, struct wh_norm_block *out) {
    const struct view v = view_of(p);
    size_t count = 0;
    for (uint32_t s = 0; s < (v.by_rows || v.by_cols ? S : 1); s++) {
        const struct wh_range r = v.by_rows ? wh_grain_slice(v.rows, S, s) : (struct wh_range){0, v.rows};
        const struct wh_range c = v.by_cols ? wh_grain_slice(v.cols, S, s) : (struct wh_range){0, v.cols};
        const size_t width = c.end - c.begin, step = rows_per_block(width);
        for (size_t row = r.begin; row < r.end && width; row += step, count++)
            if (out)
                out[count] = (struct wh_norm_block){.offset = p->offset + row * v.cols + c.begin,
                                                    .rows = (uint32_t)(r.end - row < step ? r.end - row : step),
                                                    .cols = (uint32_t)width,
                                                    .ld = v.cols};
    }
    return count;
}

size_t wh_norm_block_count(const struct wh_params *params, uint32_t S) {
    size_t count = 0;
    for (size_t i = 0; i < params->count; i++) count += wh_norm_blocks(&params->list[i], S, NULL);
    return count;
}

/* Slices of columns lie beside each other in every row, so a cut between rows must suit all of them. In a matrix it does:
 * its slices are equally wide (grain.tensor divides what is cut), their blocks equally high. A slice of a vector is one
 * block. */
static size_t cuts_of_columns(const struct view *v, uint32_t S, uint32_t first_slice, uint32_t slices, size_t first,
                              size_t *out) {
    size_t count = 0, width = 0;
    for (uint32_t s = first_slice; s < first_slice + slices; s++) {
        const struct wh_range c = wh_grain_slice(v->cols, S, s);
        if (v->rows == 1 && c.end > c.begin) {
            if (out) out[count] = first + width;
            count++;
        }
        width += c.end - c.begin;
    }
    if (v->rows == 1 || width == 0) return count;
    for (size_t row = 0, step = rows_per_block(width / slices); row < v->rows; row += step, count++)
        if (out) out[count] = first + row * width;
    return count;
}

size_t wh_norm_cuts(const struct wh_param *p, uint32_t S, uint32_t tp, uint32_t t, size_t first, size_t *out) {
    const struct view v = view_of(p);
    const uint32_t slices = S / tp, first_slice = t * slices;
    if (v.by_cols) return cuts_of_columns(&v, S, first_slice, slices, first, out);
    size_t count = 0, begin = v.by_rows ? wh_grain_slice(v.rows, S, first_slice).begin : 0;
    for (uint32_t s = 0; s < (v.by_rows ? slices : 1); s++) {
        const struct wh_range r = v.by_rows ? wh_grain_slice(v.rows, S, first_slice + s) : (struct wh_range){0, v.rows};
        for (size_t row = r.begin; row < r.end; row += rows_per_block(v.cols), count++)
            if (out) out[count] = first + (row - begin) * v.cols;
    }
    return count;
}
