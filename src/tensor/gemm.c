/* The blocked product: five loops around a micro-kernel (Goto & van de Geijn 2008; van Zee & van de Geijn 2015).
 *
 *   threads    a grid of ranges of C, nothing shared but the inputs
 *     region     columns (nc), then rows; bounded where pending subtrees need scratch
 *       block      k: at most kc steps, whole grains where they fit, else an even share of one grain
 *         rows       mc: A's block is packed
 *           columns    nr: B's panel is packed when the region's first rows meet it
 *             rows       mr: one micro-tile, one packed block
 *
 * Invariant: between blocks an element is one unfinished chain, which lives in C ("direct") or on top of its stack, and
 * the finished subtrees below it (base/tree.h). A subtree that is born and joined within one block lives on a stack
 * that serves all micro-tiles (it stays in L1); one that outlives its block has a place in the arena, by height:
 * [column panel][row panel][height][mr][nr].
 *
 * Packing is hidden where it can be: while a tile multiplies it asks for the memory that comes next (struct
 * wh_gemm_ahead), and where few rows would use a panel of B the tile reads it unpacked. bench/notes/gemm.md has the
 * measurements behind the constants. */
#include "tensor/gemm_int.h"
#include "base/status.h"
#include "base/tree.h"

enum {
    CHAINS_MAX = 64,          /* in one packed block */
    ARENA_ELEMS = 512 * 1024, /* scratch for pending subtrees, a level: repacking B costs 1/512 of a region's work */
    SQUARE = 768,             /* a side of its square: a multiple of every nr */
    CROWDED_BYTES = 4096, /* addresses this far apart share a set of L1, and few sets of L2; half as far: two of L1 */
    LINE_ELEMS = 16
};

/* Where in the list of parts the next block begins. */
struct cursor {
    size_t part, offset; /* steps of `part` already taken */
    uint32_t grain;
    unsigned height;
    bool inside; /* in the midst of a grain */
};

struct block {
    struct cursor from;
    size_t length;
    unsigned chain_count;
    bool last;
    bool in_row; /* its steps are begin, begin+1, ... */
    size_t begin;
    struct wh_gemm_chain chains[CHAINS_MAX];
};

/* What one thread works with. Ranges are in elements of C. */
struct work {
    const struct wh_gemm *g;
    const struct wh_gemm_kernel *kernel;
    const struct wh_vec *vec;
    struct wh_gemm_source a, b;
    const struct wh_gemm_part *parts;
    struct wh_gemm_part whole; /* stands for a missing list */
    size_t part_count;
    uint32_t grains;
    size_t kc;
    unsigned levels; /* heights in the arena */
    bool direct;     /* C holds unfinished chains */
    bool plain;      /* no epilogue: a finished fp32 tile is C */
    float *a_panels, *b_panels, *arena, *stack, *edge;
    size_t arena_elems;
};

struct region {
    size_t i0, i1, j0, j1;
};

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* ------------------------------------------------------------------------------------------------- blocks of k */

/* Steps from the cursor to the end of its grain. */
static size_t grain_rest(const struct work *w, const struct cursor *at) {
    size_t rest = 0;
    for (size_t p = at->part; p < w->part_count; p++) {
        rest += w->parts[p].length - (p == at->part ? at->offset : 0);
        if (w->parts[p].ends_grain) break;
    }
    return rest;
}

/* Moves over `steps` steps of one grain; `ends`: and over its end, empty parts included. */
static void cursor_move(const struct work *w, struct cursor *at, size_t steps, bool ends) {
    for (;;) {
        size_t here = min_size(w->parts[at->part].length - at->offset, steps);
        at->offset += here, steps -= here;
        if (at->offset < w->parts[at->part].length || (steps == 0 && !ends)) break;
        bool done = w->parts[at->part].ends_grain;
        at->part++, at->offset = 0;
        if (done) break;
    }
}

static struct wh_gemm_chain take_chain(const struct work *w, struct cursor *at, size_t length, bool ends) {
    struct wh_gemm_chain c = {.k = length, .height = at->height, .begins = !at->inside, .ends = ends};
    c.begins_first = c.begins && at->grain == 0;
    cursor_move(w, at, length, ends);
    at->inside = !ends;
    if (!ends) return c;
    c.merges = wh_tree_merges(at->grain, w->grains);
    c.is_last = ++at->grain == w->grains;
    at->height += 1 - c.merges;
    return c;
}

/* Whether the steps of a block follow each other in k, and where they begin. */
static void find_begin(const struct work *w, struct block *b) {
    size_t offset = b->from.offset, left = b->length, k = 0;
    b->in_row = true;
    b->begin = 0;
    for (size_t part = b->from.part; left > 0; part++, offset = 0) {
        size_t count = min_size(w->parts[part].length - offset, left), begin = w->parts[part].begin + offset;
        if (count == 0) continue;
        if (left == b->length)
            b->begin = begin;
        else if (begin != k)
            b->in_row = false;
        k = begin + count;
        left -= count;
    }
}

/* Which sums outlive the block, and below which height the stack is older than it. */
static void find_places(struct block *b) {
    unsigned lowest = WH_TREE_DEPTH_MAX;
    for (unsigned n = b->chain_count; n-- > 0;) {
        struct wh_gemm_chain *c = &b->chains[n];
        c->outlives = !c->is_last && wh_gemm_chain_out(c) < lowest;
        if (wh_gemm_chain_out(c) < lowest) lowest = wh_gemm_chain_out(c);
    }
    unsigned old = b->chains[0].height;
    for (unsigned n = 0; n < b->chain_count; n++) {
        b->chains[n].old = old;
        if (wh_gemm_chain_out(&b->chains[n]) < old) old = wh_gemm_chain_out(&b->chains[n]);
    }
}

/* The next block: an even share of a grain longer than kc, or as many whole grains (or the end of one) as fit. */
static void next_block(const struct work *w, struct cursor *at, struct block *b) {
    size_t kc = w->kc;
    b->from = *at;
    b->length = 0;
    b->chain_count = 0;
    do {
        size_t rest = grain_rest(w, at), take = rest;
        if (b->length + rest > kc) {
            if (b->length > 0) break;
            size_t shares = (rest + kc - 1) / kc;
            take = min_size(up((rest + shares - 1) / shares, 8), kc);
        }
        b->chains[b->chain_count++] = take_chain(w, at, take, take == rest);
        b->length += take;
    } while (!at->inside && at->grain < w->grains && b->chain_count < CHAINS_MAX);
    b->last = at->grain == w->grains;
    find_begin(w, b);
    find_places(b);
}

/* ------------------------------------------------------------------------------------------------- packing */

/* Rows r.. of X for the steps of the block, part by part. */
static void pack(const struct work *w, const struct block *b, const struct wh_gemm_source *x, float *out, size_t width,
                 size_t panel_stride, size_t r, size_t rows) {
    struct wh_gemm_pack p = {.out = out, .width = width, .panel_stride = panel_stride, .r = r, .rows = rows};
    if (b->in_row) {
        p.k = b->begin, p.count = b->length;
        w->kernel->pack(x, &p);
        return;
    }
    size_t offset = b->from.offset, left = b->length;
    for (size_t part = b->from.part; left > 0; part++, offset = 0) {
        p.k = w->parts[part].begin + offset;
        p.count = min_size(w->parts[part].length - offset, left);
        if (p.count > 0) w->kernel->pack(x, &p);
        p.out += p.count * width;
        left -= p.count;
    }
}

/* Where the kernel's width is no multiple of a vector, a panel's last store spills over its end. */
static size_t a_panel_stride(const struct wh_gemm_kernel *kernel, size_t length) {
    return up(length * kernel->mr, LINE_ELEMS) + WH_GEMM_SLACK;
}

/* ------------------------------------------------------------------------------------------------- fetching ahead */

/* rows x chunks pieces, fetched in the course of `tiles` micro-tiles. */
static struct wh_gemm_ahead ahead_of(const void *at, size_t row_bytes, size_t rows, size_t piece_bytes, size_t chunks,
                                     size_t tiles) {
    return (struct wh_gemm_ahead){.at = at,
                                  .step = piece_bytes,
                                  .row_step = row_bytes - chunks * piece_bytes,
                                  .chunks = chunks,
                                  .chunks_left = chunks,
                                  .pieces_left = rows * chunks,
                                  .share = (rows * chunks + tiles - 1) / tiles};
}

/* Whether consecutive steps of k are a multiple of `bytes` apart. */
static bool spaced(const struct wh_gemm_source *x, size_t bytes) {
    return x->along && x->ld * wh_dtype_bytes(x->dtype) % bytes == 0;
}

/* X for r.. and the steps of the block, unpacked; nothing where L2 would lose most of it before it is used. */
static struct wh_gemm_ahead ahead_source(const struct work *w, const struct block *b, const struct wh_gemm_source *x,
                                         size_t r, size_t rows, size_t tiles) {
    if (!b->in_row || rows == 0 || spaced(x, 2 * CROWDED_BYTES)) return (struct wh_gemm_ahead){0};
    size_t elem = wh_dtype_bytes(x->dtype), piece = w->kernel->nr * sizeof(float) / elem;
    size_t height = x->along ? b->length : rows, width = x->along ? rows : b->length;
    const char *at = (const char *)x->data + (x->along ? b->begin * x->ld + r : r * x->ld + b->begin) * elem;
    return ahead_of(at, x->ld * elem, height, piece * elem, (width + piece - 1) / piece, tiles);
}

/* ------------------------------------------------------------------------------------------------- micro-tiles */

static float *c_at(const struct work *w, size_t i, size_t j) { return (float *)w->g->c.data + i * w->g->c.ld + j; }

static void copy_tile(float *out, size_t out_ld, const float *in, size_t in_ld, size_t rows, size_t cols) {
    for (size_t i = 0; i < rows; i++) memcpy(out + i * out_ld, in + i * in_ld, cols * sizeof(float));
}

/* What all micro-tiles of a panel share. */
struct panel {
    const struct block *block;
    const float *b;
    size_t b_ld;
    struct region c; /* rows of the packed block of A, columns from the panel's first to the region's end */
    struct wh_gemm_ahead next_a, next_b;
};

/* One block's steps of the micro-tile at (i, j). A tile cut by the border of C goes through `edge`, as does a finished
 * one that has an epilogue before it. */
static void run_tile(const struct work *w, const struct panel *p, struct wh_gemm_tile *t, size_t i, size_t j) {
    size_t mr = w->kernel->mr, nr = w->kernel->nr, c_ld = w->g->c.ld;
    size_t rows = min_size(p->c.i1 - i, mr);
    bool full = rows == mr && t->cols == nr;
    const struct wh_gemm_chain *first = p->block->chains, *last = &first[p->block->chain_count - 1];
    bool start_in_c = first->begins_first ? w->g->accumulate : w->direct && !first->begins;
    bool end_in_c = last->ends ? last->is_last : w->direct, to_c = end_in_c && full && (w->plain || !last->ends);
    if (start_in_c && !full) copy_tile(w->edge, nr, c_at(w, i, j), c_ld, rows, t->cols);
    t->start = start_in_c      ? (full ? c_at(w, i, j) : w->edge)
               : first->begins ? NULL
                               : t->arena + first->height * mr * nr;
    t->start_ld = start_in_c && full ? c_ld : nr;
    t->out = to_c ? c_at(w, i, j) : end_in_c ? w->edge : t->arena + wh_gemm_chain_out(last) * mr * nr;
    t->out_ld = to_c ? c_ld : nr;
    w->kernel->tile(t);
    if (!end_in_c || to_c) return;
    if (last->ends)
        w->kernel->finish(w->g, w->vec, w->edge, nr, i, j, rows, t->cols);
    else
        copy_tile(c_at(w, i, j), c_ld, w->edge, nr, rows, t->cols);
}

/* The rows of A's block times one panel of B. Meanwhile the next C, and B and A in turn, are fetched. */
static void run_panel(const struct work *w, struct panel *p, const struct region *r) {
    size_t mr = w->kernel->mr, nr = w->kernel->nr, stride = a_panel_stride(w->kernel, p->block->length), j = p->c.j0;
    size_t high = (r->i1 - r->i0 + mr - 1) / mr, arena_elems = w->levels * mr * nr;
    const struct wh_gemm_chain *last = &p->block->chains[p->block->chain_count - 1];
    bool next_in_c = w->g->c.dtype == WH_F32 && (last->is_last || (w->direct && !last->ends)), for_a = false;
    struct wh_gemm_tile t = {.chains = p->block->chains, .chain_count = p->block->chain_count};
    t.a = w->a_panels, t.b = p->b, t.b_ld = p->b_ld, t.cols = min_size(p->c.j1 - j, nr);
    t.next_ld = next_in_c ? w->g->c.ld : nr;
    t.stack = w->stack;
    t.arena = w->arena + ((j - r->j0) / nr * high + (p->c.i0 - r->i0) / mr) * arena_elems;
    for (size_t i = p->c.i0; i < p->c.i1; i += mr, t.a += stride, t.arena += arena_elems, for_a = !for_a) {
        if (next_in_c)
            t.next_out = i + mr < p->c.i1 ? c_at(w, i + mr, j) : c_at(w, p->c.i0, j + nr);
        else if (!last->is_last)
            t.next_out = t.arena + arena_elems + wh_gemm_chain_out(last) * mr * nr;
        t.ahead = p->next_b.pieces_left == 0 || (for_a && p->next_a.pieces_left > 0) ? &p->next_a : &p->next_b;
        run_tile(w, p, &t, i, j);
    }
}

/* ------------------------------------------------------------------------------------------------- regions */

/* Whether the kernel may read a panel of B where it lies: so few rows that packing would cost more, and rows of B that
 * don't crowd into few cache sets. */
static bool reads_in_place(const struct work *w, const struct block *b, size_t rows, size_t cols) {
    return w->b.along && w->b.dtype == WH_F32 && b->in_row && rows <= w->kernel->in_place_rows &&
           cols == w->kernel->nr && !spaced(&w->b, CROWDED_BYTES / 2);
}

static void run_block(const struct work *w, const struct block *b, const struct region *r) {
    const struct wh_gemm_kernel *kernel = w->kernel;
    size_t nr = kernel->nr, height = r->i1 - r->i0,
           blocks = height <= kernel->mc_most ? 1 : (height + kernel->mc - 1) / kernel->mc;
    size_t mc = up((height + blocks - 1) / blocks, kernel->mr), panels = (r->j1 - r->j0 + nr - 1) / nr;
    struct panel p = {.block = b, .c = *r};
    for (size_t i = r->i0; i < r->i1; i += mc) {
        size_t rows = min_size(mc, r->i1 - i), tiles = (rows + kernel->mr - 1) / kernel->mr;
        p.c.i0 = i, p.c.i1 = i + rows;
        p.next_a = ahead_source(w, b, &w->a, i + rows, min_size(mc, r->i1 - i - rows), (tiles * panels + 1) / 2);
        pack(w, b, &w->a, w->a_panels, kernel->mr, a_panel_stride(kernel, b->length), i, rows);
        for (size_t j = r->j0; j < r->j1; j += nr) {
            size_t cols = min_size(nr, r->j1 - j), next_cols = min_size(nr, r->j1 - j - cols);
            /* rows that fit one block of A meet a panel of B once: it need not be kept */
            float *panel = w->b_panels + (blocks > 1 ? (j - r->j0) * b->length : 0);
            size_t turns = p.next_a.pieces_left > 0 && tiles > 1 ? tiles / 2 : tiles;
            bool in_place = reads_in_place(w, b, height, cols);
            if (i == r->i0 || in_place)
                p.next_b = ahead_source(w, b, &w->b, j + nr, next_cols, turns);
            else
                p.next_b = ahead_of(panel + nr * b->length, nr * sizeof(float), next_cols ? b->length : 0,
                                    nr * sizeof(float), 1, turns);
            if (i == r->i0 && !in_place) pack(w, b, &w->b, panel, nr, 0, j, cols);
            p.b = in_place ? (const float *)w->b.data + b->begin * w->b.ld + j : panel;
            p.b_ld = in_place ? w->b.ld : nr;
            p.c.j0 = j;
            run_panel(w, &p, r);
        }
    }
}

/* The largest region: B's panels fit their buffer, pending subtrees the arena. Even shares. Repacking costs 1/columns
 * of the work for A, 1/rows for B, so an arena too small for all is cut about square. */
static void region_size(const struct work *w, size_t m, size_t n, size_t *rows, size_t *cols) {
    const struct wh_gemm_kernel *kernel = w->kernel;
    size_t mr = kernel->mr, nr = kernel->nr, high = up(m, mr), wide = up(n, nr);
    size_t n_max = m <= kernel->mc_most ? wide : min_size(kernel->nc, wide), m_max = high;
    if (w->levels > 0) {
        size_t area = w->arena_elems / w->levels, beside = area / high / nr * nr;
        n_max = min_size(n_max, beside > SQUARE ? beside : SQUARE);
        m_max = min_size(m_max, area / n_max / mr * mr);
    }
    size_t parts_n = (n + n_max - 1) / n_max, parts_m = (m + m_max - 1) / m_max;
    *cols = up((n + parts_n - 1) / parts_n, nr);
    *rows = up((m + parts_m - 1) / parts_m, mr);
}

static void run_range(const struct work *w, const struct region *range) {
    size_t rows, cols;
    if (range->i0 >= range->i1 || range->j0 >= range->j1) return;
    region_size(w, range->i1 - range->i0, range->j1 - range->j0, &rows, &cols);
    for (size_t j = range->j0; j < range->j1; j += cols)
        for (size_t i = range->i0; i < range->i1; i += rows) {
            struct region r = {i, min_size(i + rows, range->i1), j, min_size(j + cols, range->j1)};
            struct cursor at = {0};
            struct block b;
            do {
                next_block(w, &at, &b);
                run_block(w, &b, &r);
            } while (!b.last);
        }
}

/* ------------------------------------------------------------------------------------------------- threads */

/* Workspace of one thread, in floats. */
static size_t a_elems(const struct wh_gemm_kernel *k) {
    return up(k->mc_most, k->mr) / k->mr * a_panel_stride(k, k->kc);
}
static size_t b_elems(const struct wh_gemm_kernel *k) { return up(k->nc * k->kc, LINE_ELEMS) + WH_GEMM_SLACK; }
static size_t edge_elems(const struct wh_gemm_kernel *k) { return up(k->mr * k->nr, LINE_ELEMS); }
static size_t levels_max(unsigned grain_depth) { return grain_depth > 0 ? grain_depth : 1; }
static size_t stack_elems(const struct wh_gemm_kernel *k, unsigned grain_depth) {
    return edge_elems(k) * levels_max(grain_depth);
}
static size_t arena_elems(unsigned grain_depth) { return ARENA_ELEMS * levels_max(grain_depth); }

static const struct wh_gemm_kernel *const kernels[] = {&wh_gemm_kernel_avx512, &wh_gemm_kernel_avx2,
                                                       &wh_gemm_kernel_reference};

static size_t thread_elems(unsigned grain_depth) {
    size_t most = 0;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        size_t elems =
            a_elems(kernels[i]) + b_elems(kernels[i]) + edge_elems(kernels[i]) + stack_elems(kernels[i], grain_depth);
        if (elems > most) most = elems;
    }
    return most + arena_elems(grain_depth);
}

size_t wh_gemm_workspace_bytes(int threads, unsigned grain_depth) {
    return (size_t)threads * thread_elems(grain_depth) * sizeof(float);
}

static bool runs_here(const struct wh_gemm_kernel *kernel) {
    if (kernel == &wh_gemm_kernel_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (kernel == &wh_gemm_kernel_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return true;
}

const struct wh_gemm_kernel *wh_gemm_select(const char *name) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if ((!name || strcmp(name, kernels[i]->name) == 0) && runs_here(kernels[i])) return kernels[i];
    return NULL;
}

/* The grid of rows x columns of threads with the least work for the busiest: its tiles, and what it packs (a packed
 * element costs about as much as PACK_COST multiply-adds of it). */
static void grid_choose(const struct work *w, int threads, int *grid_m, int *grid_n) {
    enum { PACK_COST = 24 };
    size_t mr = w->kernel->mr, nr = w->kernel->nr, least = SIZE_MAX;
    for (int t = 1; t <= threads; t++) {
        if (threads % t != 0) continue;
        size_t rows = up(w->g->m, mr * (size_t)t) / (size_t)t,
               cols = up(w->g->n, nr * (size_t)(threads / t)) / (size_t)(threads / t);
        size_t cost = rows * cols + PACK_COST * (rows + cols);
        if (cost < least) least = cost, *grid_m = t, *grid_n = threads / t;
    }
}

/* The t-th of `count` even shares of n, in whole units. */
static size_t share(size_t n, size_t unit, int t, int count) {
    size_t units = (n + unit - 1) / unit;
    return min_size(n, units * (size_t)t / (size_t)count * unit);
}

static void run_thread(const struct work *shared, void *workspace, size_t elems, int t, int grid_m, int grid_n) {
    struct work w = *shared;
    const struct wh_gemm_kernel *k = w.kernel;
    size_t m = w.g->m, n = w.g->n;
    w.a_panels = (float *)workspace + (size_t)t * elems;
    w.b_panels = w.a_panels + a_elems(k);
    w.edge = w.b_panels + b_elems(k);
    w.stack = w.edge + edge_elems(k);
    w.arena = (float *)workspace + (size_t)(t + 1) * elems - w.arena_elems;
    int tm = t % grid_m, tn = t / grid_m;
    run_range(&w, &(struct region){share(m, k->mr, tm, grid_m), share(m, k->mr, tm + 1, grid_m),
                                   share(n, k->nr, tn, grid_n), share(n, k->nr, tn + 1, grid_n)});
}

/* Walks the blocks once to learn how many heights of the stack outlive a block. Returns how high it grows at most. */
static unsigned plan(struct work *w) {
    struct cursor at = {0};
    struct block b;
    unsigned most = 0;
    do {
        next_block(w, &at, &b);
        for (unsigned n = 0; n < b.chain_count; n++) {
            const struct wh_gemm_chain *c = &b.chains[n];
            unsigned top = wh_gemm_chain_out(c) + 1;
            if (c->ends ? c->is_last : w->direct) continue;
            if (top > most) most = top;
            if (c->outlives && top > w->levels) w->levels = top;
        }
    } while (!b.last);
    return most;
}

static void check(const struct wh_gemm *g) {
    WH_ASSERT(g->k <= UINT32_MAX && (!g->parts || (g->part_count > 0 && g->parts[g->part_count - 1].ends_grain)));
    WH_ASSERT(!g->accumulate || g->c.dtype == WH_F32);
    WH_ASSERT((g->a.dtype == WH_F32 || g->a.dtype == WH_BF16) && (g->b.dtype == WH_F32 || g->b.dtype == WH_BF16));
    WH_ASSERT(g->c.dtype == WH_F32 || g->c.dtype == WH_BF16);
}

void wh_gemm_run(const struct wh_gemm *g, const struct wh_gemm_pool *pool) {
    check(g);
    if (g->m == 0 || g->n == 0) return;
    struct work w = {.g = g, .kernel = pool->kernel ? pool->kernel : wh_gemm_select(NULL)};
    w.a = (struct wh_gemm_source){g->a.data, g->a.dtype, g->a.ld, g->a.transposed};
    w.b = (struct wh_gemm_source){g->b.data, g->b.dtype, g->b.ld, !g->b.transposed};
    w.whole = (struct wh_gemm_part){0, (uint32_t)g->k, true};
    w.parts = g->parts ? g->parts : &w.whole;
    w.part_count = g->parts ? g->part_count : 1;
    for (size_t p = 0; p < w.part_count; p++) w.grains += w.parts[p].ends_grain;
    if (g->activation != WH_GEMM_NONE) w.vec = wh_vec_select(NULL);
    w.direct = g->c.dtype == WH_F32 && g->residual.data != g->c.data;
    w.plain = g->c.dtype == WH_F32 && !g->bias && !g->pre.data && !g->residual.data && g->activation == WH_GEMM_NONE;
    /* a second block would cost pending subtrees more than crowding costs */
    w.kc = spaced(&w.b, CROWDED_BYTES) && w.grains == 1 ? w.kernel->crowded_kc : w.kernel->kc;
    unsigned depth = plan(&w);
    WH_ASSERT(depth <= (pool->grain_depth > 0 ? pool->grain_depth : 1));
    w.arena_elems = arena_elems(pool->grain_depth);

    int threads = pool->threads, grid_m = 1, grid_n = 1;
    size_t elems = thread_elems(pool->grain_depth);
    grid_choose(&w, threads, &grid_m, &grid_n);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) run_thread(&w, pool->workspace, elems, t, grid_m, grid_n);
}
