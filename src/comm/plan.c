/* Plans: checking a call, choosing its path, running it, booking it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/faults.h"
#include "coll/plan.h"
#include "comm/comm_int.h"
#include "os/clock.h"

_Static_assert((int)WH_ALL_REDUCE == (int)WH_COLL_ALL_REDUCE && (int)WH_REDUCE_SCATTER == (int)WH_COLL_REDUCE_SCATTER &&
                   (int)WH_ALL_GATHER == (int)WH_COLL_ALL_GATHER && (int)WH_BROADCAST == (int)WH_COLL_BROADCAST &&
                   (int)WH_REDUCE == (int)WH_COLL_REDUCE && (int)WH_ALL_TO_ALL == (int)WH_COLL_ALL_TO_ALL &&
                   (int)WH_BARRIER == (int)WH_COLL_BARRIER,
               "one order");

enum { TEST_CHUNKS = 4 }; /* what wh_comm_test and wh_comm_progress do at most before they return */

const char *wh_comm_op_name(enum wh_comm_op op) {
    static const char *const name[WH_COMM_OP_COUNT] = {
        "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "barrier", "send", "recv"};
    return op < WH_COMM_OP_COUNT ? name[op] : "unknown operation";
}

static size_t block_elems(const struct wh_comm_call *c) { return c->count / wh_comm_blocks(c); }

/* Of each block. */
static struct wh_coll_range slice(const struct wh_comm_call *c, uint32_t rank, uint32_t size) {
    if (c->border) return (struct wh_coll_range){c->border[rank], c->border[rank + 1] - c->border[rank]};
    return wh_coll_cut((struct wh_coll_range){0, block_elems(c)}, c->dtype, size, rank);
}

/* From the begin of a slice in the first block to its end in the last one. */
static uint64_t slice_span(const struct wh_comm_call *c, uint32_t rank, uint32_t size) {
    const uint64_t own = slice(c, rank, size).count;
    return own ? own + (wh_comm_blocks(c) - 1) * block_elems(c) : 0;
}

/* Elements of this rank's buffers. */
static uint64_t in_elems(const struct wh_comm_call *c, uint32_t rank, uint32_t size) {
    if (c->op == WH_BARRIER || c->op == WH_BROADCAST || c->op == WH_RECV) return 0;
    if (c->sum) return c->count ? (wh_comm_inputs(c, rank) - 1) * c->sum->stride + c->count : 0;
    return c->op == WH_ALL_GATHER ? slice_span(c, rank, size) : c->count;
}

static uint64_t out_elems(const struct wh_comm_call *c, uint32_t rank, uint32_t size) {
    if (c->op == WH_BARRIER || c->op == WH_SEND || (c->op == WH_REDUCE && rank != c->root)) return 0;
    return c->op == WH_REDUCE_SCATTER ? slice_span(c, rank, size) : c->count;
}

uint64_t wh_comm_call_bytes(const struct wh_comm_call *c, uint32_t rank, uint32_t size) {
    uint64_t elem = wh_dtype_bytes(c->dtype), all = c->count, others = size - 1;
    uint64_t inputs = wh_comm_inputs(c, rank), own = slice(c, rank, size).count * wh_comm_blocks(c);
    if (size == 1) return 0;
    switch (c->op) {
    case WH_ALL_REDUCE:
        return (inputs * (all - own) + others * own) * elem;
    case WH_REDUCE_SCATTER:
    case WH_ALL_TO_ALL:
        return inputs * (all - own) * elem;
    case WH_ALL_GATHER:
        return others * own * elem;
    case WH_BROADCAST:
        return rank == c->root ? others * all * elem : 0;
    case WH_REDUCE:
        return rank == c->root ? 0 : inputs * all * elem;
    case WH_SEND:
        return all * elem;
    default:
        return 0;
    }
}

/* ---- checking ---- */

static bool is_in_place(const struct wh_comm_call *c, uint32_t rank, uint32_t size) {
    size_t first = c->op == WH_BARRIER ? 0 : slice(c, rank, size).first * wh_dtype_bytes(c->dtype);
    switch (c->op) {
    case WH_ALL_REDUCE:
        return c->in == c->out;
    case WH_REDUCE:
        return rank == c->root && c->in == c->out;
    case WH_BROADCAST:
        return true;
    case WH_REDUCE_SCATTER:
        return (uintptr_t)c->in + first == (uintptr_t)c->out;
    case WH_ALL_GATHER:
        return (uintptr_t)c->in == (uintptr_t)c->out + first;
    default:
        return false;
    }
}

static void check_buffer(struct wh_faults *f, const char *op, const char *which, const void *p, uint64_t elems,
                         size_t elem) {
    if (elems == 0) return;
    if (!p) wh_faults_add(f, NULL, 0, "%s: no %s buffer", op, which);
    if ((uintptr_t)p % elem)
        wh_faults_add(f, NULL, 0, "%s: the %s buffer is not aligned to its elements (%zu)", op, which, elem);
}

static void check_border(struct wh_faults *f, const struct wh_comm_call *c, uint32_t size) {
    const char *op = wh_comm_op_name(c->op);
    if (c->op != WH_REDUCE_SCATTER && c->op != WH_ALL_GATHER) {
        wh_faults_add(f, NULL, 0, "%s: borders; only reduce_scatter and all_gather have them", op);
        return;
    }
    if (c->border[0] != 0) wh_faults_add(f, NULL, 0, "%s: the first border is %zu, not 0", op, c->border[0]);
    for (uint32_t i = 0; i < size; i++)
        if (c->border[i + 1] < c->border[i])
            wh_faults_add(f, NULL, 0, "%s: border %u is %zu, below the one before, %zu", op, i + 1, c->border[i + 1],
                          c->border[i]);
    if (c->border[size] != block_elems(c))
        wh_faults_add(f, NULL, 0, "%s: border %u, the last, is %zu; there are %zu elements", op, size, c->border[size],
                      block_elems(c));
}

static void check_blocks(struct wh_faults *f, const struct wh_comm_call *c) {
    const char *op = wh_comm_op_name(c->op);
    if (c->op != WH_REDUCE_SCATTER && c->op != WH_ALL_GATHER)
        wh_faults_add(f, NULL, 0, "%s: %u blocks; only reduce_scatter and all_gather have them", op, c->blocks);
    if (c->count % c->blocks)
        wh_faults_add(f, NULL, 0, "%s: %zu elements are no multiple of %u blocks", op, c->count, c->blocks);
}

/* Joins that the stack doesn't hold, or that leave more than one value. */
static void check_merges(struct wh_faults *f, const char *op, const struct wh_comm_sum *s, uint32_t inputs) {
    uint32_t depth = 0;
    for (uint32_t i = 0; i < inputs; i++) {
        if (++depth > WH_COMM_STACK_MAX) {
            wh_faults_add(f, NULL, 0, "%s: contribution %u is number %u on the stack; it holds %d", op, i, depth,
                          (int)WH_COMM_STACK_MAX);
            return;
        }
        if (s->merges[i] >= depth) {
            wh_faults_add(f, NULL, 0, "%s: %u joins after contribution %u; there are %u values on the stack", op,
                          s->merges[i], i, depth);
            return;
        }
        depth -= s->merges[i];
    }
    if (depth > 1)
        wh_faults_add(f, NULL, 0, "%s: %u contributions are joined to %u values, not to one", op, inputs, depth);
}

static void check_sum(struct wh_faults *f, const struct wh_comm_call *c, uint32_t size) {
    const char *op = wh_comm_op_name(c->op);
    const struct wh_comm_sum *s = c->sum;
    size_t before = f->count;
    if (!wh_comm_op_reduces(c->op) || !wh_redop_sums(c->redop))
        wh_faults_add(f, NULL, 0, "%s: contributions in a given order; only sums have them", op);
    if (!s->inputs || !s->merges) {
        wh_faults_add(f, NULL, 0, "%s: no inputs or no merges of contributions", op);
        return;
    }
    for (uint32_t r = 0; r < size; r++)
        if (s->inputs[r] < 1 || s->inputs[r] > WH_COMM_INPUTS_MAX)
            wh_faults_add(f, NULL, 0, "%s: %u contributions of rank %u; 1 to %d are possible", op, s->inputs[r], r,
                          (int)WH_COMM_INPUTS_MAX);
    if (s->stride > (uint64_t)1 << 57 || (wh_comm_inputs_most(c, size) > 1 && s->stride < c->count))
        wh_faults_add(f, NULL, 0, "%s: contributions of %zu elements lie %zu apart", op, c->count, s->stride);
    if (f->count == before) check_merges(f, op, s, wh_comm_inputs_all(c, size));
}

static bool in_arena(const struct wh_comm_job *job, const void *p, uint64_t bytes) {
    uintptr_t begin = (uintptr_t)job->segment[job->rank] + job->arena_offset, at = (uintptr_t)p;
    return at >= begin && at <= begin + job->arena_bytes && bytes <= begin + job->arena_bytes - at;
}

static void check_buffers(struct wh_faults *f, const struct wh_comm *comm, const struct wh_comm_call *c) {
    const char *op = wh_comm_op_name(c->op);
    size_t elem = wh_dtype_bytes(c->dtype);
    uint64_t in = in_elems(c, comm->rank, comm->size), out = out_elems(c, comm->rank, comm->size);
    check_buffer(f, op, "in", c->in, in, elem);
    check_buffer(f, op, "out", c->out, out, elem);
    if (c->op == WH_BROADCAST && c->in && c->in != c->out)
        wh_faults_add(f, NULL, 0, "%s: in is neither NULL nor out", op);
    uintptr_t a = (uintptr_t)c->in, b = (uintptr_t)c->out;
    if (in && out && !is_in_place(c, comm->rank, comm->size) && a < b + out * elem && b < a + in * elem)
        wh_faults_add(f, NULL, 0, "%s: in and out overlap without being in place", op);
    if (wh_comm_blocks(c) == 1 || comm->size == 1) return;
    if (!is_in_place(c, comm->rank, comm->size) || !in_arena(comm->job, c->in, in * elem) ||
        !in_arena(comm->job, c->out, out * elem))
        wh_faults_add(f, NULL, 0, "%s: %u blocks; they must be in place, in memory of wh_comm_buffer", op, c->blocks);
}

static enum wh_status check_call(const struct wh_comm *comm, const struct wh_comm_call *c) {
    struct wh_faults f = {0};
    const char *op = wh_comm_op_name(c->op);
    bool rooted = c->op == WH_REDUCE || c->op == WH_BROADCAST || c->op == WH_SEND || c->op == WH_RECV;
    if (c->op >= WH_COMM_OP_COUNT) return WH_FAIL(WH_CONFIG, "operation %d does not exist", (int)c->op);
    if (c->op == WH_BARRIER && (c->border || c->sum))
        return WH_FAIL(WH_CONFIG, "%s: borders or contributions of nothing", op);
    if (c->op == WH_BARRIER) return WH_OK;
    if (c->dtype >= WH_DTYPE_COUNT) return WH_FAIL(WH_CONFIG, "%s: type %d does not exist", op, (int)c->dtype);
    if (c->count > (uint64_t)1 << 57) return WH_FAIL(WH_CONFIG, "%s: %zu elements", op, c->count);
    if (wh_comm_op_reduces(c->op) && !wh_reduce_has(c->dtype))
        wh_faults_add(&f, NULL, 0, "%s: no sums of %s; F32, BF16, F64, I32 and I64 have them", op,
                      wh_dtype_name(c->dtype));
    if (wh_comm_op_reduces(c->op) && c->redop >= WH_REDOP_COUNT)
        wh_faults_add(&f, NULL, 0, "%s: operator %d does not exist", op, (int)c->redop);
    if (rooted && c->root >= comm->size)
        wh_faults_add(&f, NULL, 0, "%s: root %u; group %s has %u ranks", op, c->root, comm->name, comm->size);
    if ((c->op == WH_SEND || c->op == WH_RECV) && c->root == comm->rank)
        wh_faults_add(&f, NULL, 0, "%s: rank %u to itself", op, c->root);
    if (c->op == WH_ALL_TO_ALL && c->count % comm->size)
        wh_faults_add(&f, NULL, 0, "%s: %zu elements are no multiple of %u ranks", op, c->count, comm->size);
    size_t before = f.count;
    if (wh_comm_blocks(c) > 1) check_blocks(&f, c);
    if (c->border) check_border(&f, c, comm->size);
    if (c->sum) check_sum(&f, c, comm->size);
    if (f.count == before) check_buffers(&f, comm, c); /* else: where the buffers end isn't known */
    return wh_faults_status(&f, WH_CONFIG);
}

/* ---- making ---- */

static uint64_t longest_slice(const struct wh_comm_call *c, uint32_t size) {
    uint64_t most = 0;
    for (uint32_t r = 0; r < size; r++)
        if (slice(c, r, size).count > most) most = slice(c, r, size).count;
    return most;
}

/* From what is equal on all ranks only, except in_arena: that must be equal, too, and is part of the fingerprint. */
static enum wh_path choose_path(const struct wh_comm *comm, const struct wh_comm_call *c) {
    const struct wh_comm_job *job = comm->job;
    size_t elem = wh_dtype_bytes(c->dtype);
    if (comm->size == 1) return WH_PATH_NOTHING;
    if (c->op == WH_SEND || c->op == WH_RECV) return WH_PATH_MESSAGE;
    if (c->op == WH_BARRIER) return WH_PATH_INLINE;
    if (wh_comm_blocks(c) > 1) return WH_PATH_ARENA;
    uint64_t payload = c->op == WH_ALL_GATHER ? longest_slice(c, comm->size) : c->count;
    if (payload * wh_comm_inputs_most(c, comm->size) * elem <= WH_COMM_INLINE_BYTES) return WH_PATH_INLINE;
    bool in = in_arena(job, c->in, in_elems(c, comm->rank, comm->size) * elem);
    bool out = in_arena(job, c->out, out_elems(c, comm->rank, comm->size) * elem);
    if (c->op == WH_ALL_GATHER && !c->in) in = out; /* an empty slice that lies nowhere */
    if (c->op == WH_REDUCE_SCATTER && !c->out) out = in;
    if (c->op == WH_REDUCE) return in ? WH_PATH_ARENA : WH_PATH_STAGED;
    if (c->op == WH_BROADCAST) return out ? WH_PATH_ARENA : WH_PATH_STAGED;
    return in && out ? WH_PATH_ARENA : WH_PATH_STAGED;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_text(const char *s) {
    uint64_t hash = 0;
    for (; *s; s++) hash = mix(hash, (unsigned char)*s);
    return hash;
}

/* Offsets of the buffers that hold the whole vector, which are equal on all ranks. That of a slice is its rank's affair: it
 * is published with the operation. */
static void set_places(struct wh_comm_plan *p) {
    const struct wh_comm_call *c = &p->call;
    const char *begin = p->comm->job->segment[p->comm->job->rank];
    bool sends = c->op == WH_SEND && in_arena(p->comm->job, c->in, c->count * wh_dtype_bytes(c->dtype));
    p->entry.in = p->entry.out = WH_NOWHERE;
    if (sends) p->entry.in = (uint64_t)((const char *)c->in - begin);
    if (p->path != WH_PATH_ARENA) return;
    if (c->op != WH_BROADCAST && c->op != WH_ALL_GATHER) p->entry.in = (uint64_t)((const char *)c->in - begin);
    if (c->op != WH_REDUCE && c->op != WH_REDUCE_SCATTER) p->entry.out = (uint64_t)((const char *)c->out - begin);
}

/* The fingerprint: everything that must be equal on all members. Of messages: what sender and receiver have in common. */
static uint64_t hash_call(const struct wh_comm_plan *p) {
    const struct wh_comm_call *c = &p->call;
    uint64_t h = mix(mix(p->comm->id, c->dtype), c->count);
    if (p->path == WH_PATH_MESSAGE) return mix(h, p->comm->members_hash);
    h = mix(mix(h, c->op + 16u * p->path), wh_comm_op_reduces(c->op) ? c->redop : 0);
    h = mix(h, c->op == WH_REDUCE || c->op == WH_BROADCAST ? c->root : 0);
    h = mix(h, c->op == WH_ALL_REDUCE ? p->in_place : 0);
    h = mix(mix(h, p->entry.cut), p->entry.sum);
    return mix(mix(mix(mix(h, p->entry.in), p->entry.out), p->comm->members_hash), hash_text(c->row));
}

static uint64_t hash_sum(const struct wh_comm_call *c, uint32_t size) {
    uint64_t hash = 0;
    if (!c->sum) return hash;
    for (uint32_t r = 0; r < size; r++) hash = mix(hash, c->sum->inputs[r]);
    for (uint32_t i = 0; i < wh_comm_inputs_all(c, size); i++) hash = mix(hash, c->sum->merges[i]);
    return mix(hash, c->sum->stride + 1);
}

static void set_entry(struct wh_comm_plan *p) {
    const struct wh_comm_call *c = &p->call;
    struct wh_log_entry *e = &p->entry;
    *e = (struct wh_log_entry){.count = c->count, .members = p->comm->members_hash};
    e->group = (uint8_t)p->comm->id, e->op = (uint8_t)c->op, e->dtype = (uint8_t)c->dtype;
    e->redop = (uint8_t)c->redop, e->root = (uint8_t)c->root, e->in_place = p->in_place;
    snprintf(e->row, sizeof e->row, "%s", c->row);
    snprintf(e->group_name, sizeof e->group_name, "%s", p->comm->name);
    for (uint32_t i = 1; i < p->comm->size && wh_comm_op_slices(c->op); i++) e->cut = mix(e->cut, c->border[i]);
    if (wh_comm_blocks(c) > 1) e->cut = mix(e->cut, c->blocks);
    e->sum = hash_sum(c, p->comm->size);
    set_places(p);
}

/* The plan's own borders, whether they are given or not. */
static void set_border(struct wh_comm_plan *p) {
    p->border[0] = 0;
    for (uint32_t r = 0; r < p->comm->size; r++) {
        struct wh_coll_range s = slice(&p->call, r, p->comm->size);
        p->border[r + 1] = s.first + s.count;
    }
    p->call.border = p->border;
}

static enum wh_status row_named(struct wh_comm_job *job, const char *name, struct wh_comm_row **out) {
    for (uint32_t i = 0; i < job->rows; i++) {
        *out = &job->row[i];
        if (job->row[i].name == name || strcmp(job->row[i].name, name) == 0) return WH_OK;
    }
    if (job->rows == WH_COMM_ROWS_MAX)
        return WH_FAIL(WH_INTERNAL, "row %s: a job has at most %d", name, (int)WH_COMM_ROWS_MAX);
    *out = &job->row[job->rows++];
    (*out)->name = name;
    return WH_OK;
}

/* The call is checked. */
static enum wh_status fill(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan *p) {
    p->comm = comm;
    p->call = *call;
    if (!p->call.row) p->call.row = wh_comm_op_name(call->op);
    if (call->op == WH_BARRIER) p->call.dtype = WH_U8, p->call.count = 0;
    WH_TRY(row_named(comm->job, p->call.row, &p->row));
    if (wh_comm_op_slices(call->op)) set_border(p);
    p->path = choose_path(comm, &p->call);
    p->in_place = is_in_place(&p->call, comm->rank, comm->size);
    p->sent_bytes = wh_comm_call_bytes(&p->call, comm->rank, comm->size);
    set_entry(p);
    p->call_hash = hash_call(p);
    if (p->path == WH_PATH_STAGED) wh_staged_prepare(p);
    if (p->path != WH_PATH_INLINE && p->path != WH_PATH_ARENA) return WH_OK;
    p->action[0] = (struct wh_action){.comm = comm, .call = &p->call, .path = p->path, .fingerprint = p->call_hash};
    p->action[0].count = p->call.count;
    p->action[0].border = p->call.border;
    if (wh_comm_blocks(&p->call) > 1) p->action[0].block_elems = block_elems(&p->call);
    p->action[0].stride = p->call.sum ? p->call.sum->stride : 0;
    p->action[0].in = (void *)(uintptr_t)p->call.in; /* never written */
    p->action[0].out = p->call.out;
    if (p->path == WH_PATH_ARENA) wh_action_cut(&p->action[0]);
    return WH_OK;
}

enum wh_status wh_plan_prepare(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan *p) {
    WH_TRY(check_call(comm, call));
    return fill(comm, call, p);
}

/* Plan, borders, inputs, merges in one block. */
enum wh_status wh_plan_new(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan **out) {
    WH_TRY(check_call(comm, call));
    struct wh_comm_call kept = *call;
    size_t borders = comm->size + 1, inputs = comm->size, merges = wh_comm_inputs_all(call, comm->size);
    struct wh_comm_plan *p = calloc(1, sizeof *p + borders * sizeof *p->border + inputs + merges);
    if (!p) return WH_FAIL(WH_NOMEM, "no memory for a plan");
    p->border = (size_t *)(p + 1);
    if (call->sum) {
        uint8_t *bytes = (uint8_t *)(p->border + borders);
        memcpy(bytes, call->sum->inputs, inputs);
        memcpy(bytes + inputs, call->sum->merges, merges);
        p->sum = (struct wh_comm_sum){.inputs = bytes, .merges = bytes + inputs, .stride = call->sum->stride};
        kept.sum = &p->sum;
    }
    enum wh_status status = fill(comm, &kept, p);
    if (status != WH_OK) {
        free(p);
        return status;
    }
    *out = p;
    return WH_OK;
}

enum wh_status wh_comm_plan_make(struct wh_comm *comm, const struct wh_comm_call *call, struct wh_comm_plan **out) {
    WH_TRY(wh_plan_new(comm, call, out));
    enum wh_status status = wh_order_choose(*out, call);
    if (status != WH_OK) wh_comm_plan_free(*out);
    return status;
}

void wh_comm_plan_free(struct wh_comm_plan *plan) {
    if (!plan) return;
    WH_ASSERT(!plan->started || plan->comm->dead);
    wh_list_free(plan->list);
    if (plan->choice) free(plan->choice);
    free(plan);
}

/* ---- running ---- */

static bool may_start(const struct wh_comm_plan *p) {
    if (p->comm->listed) return false; /* its messages must not mix with others */
    return p->path == WH_PATH_MESSAGE || (!p->comm->staged && wh_comm_has_room(p->comm));
}

static bool is_finished(const struct wh_comm_plan *p) {
    return p->path == WH_PATH_INLINE || p->path == WH_PATH_ARENA ? p->action[0].finished : p->finished;
}

static void sum_alone(const struct wh_reduce *r, const struct wh_comm_call *c) {
    const void *in[WH_COMM_INPUTS_MAX];
    uint32_t inputs = c->sum->inputs[0];
    for (uint32_t k = 0; k < inputs; k++) in[k] = (const char *)c->in + k * c->sum->stride * wh_dtype_bytes(c->dtype);
    wh_reduce_merge(r, c->dtype, c->redop, in, inputs, c->sum->merges, &c->out, 1, c->count);
}

/* A group of one rank: the vector and the slice are the same, and so is a sum of one contribution. */
static void run_alone(struct wh_comm_plan *p) {
    const struct wh_comm_call *c = &p->call;
    size_t bytes = c->count * wh_dtype_bytes(c->dtype);
    if (c->sum && bytes) sum_alone(p->comm->job->reduce, c);
    if (!c->sum && bytes && c->op != WH_BROADCAST && c->in != c->out) memcpy(c->out, c->in, bytes);
    p->finished = true;
}

static enum wh_status named(struct wh_comm_plan *p, enum wh_status status) {
    if (status == WH_OK) return WH_OK;
    wh_comm_die(p->comm, status);
    struct wh_text t = {0};
    wh_comm_describe_entry(&p->entry, &t);
    p->started = false;
    wh_while(status, "rank %u ran %s of group %s", p->comm->member[p->comm->rank], t.data, p->comm->name);
    wh_text_fini(&t);
    return status;
}

static enum wh_status start_now(struct wh_comm_plan *p) {
    WH_ASSERT(!p->started);
    p->finished = false;
    p->entry.start_ns = p->start_ns;
    if (p->path == WH_PATH_NOTHING) {
        run_alone(p);
        p->started = true;
        return WH_OK;
    }
    if (p->comm->dead || !may_start(p)) WH_TRY(wh_comm_wait_until(p, may_start));
    p->started = true;
    switch (p->path) {
    case WH_PATH_STAGED:
        wh_staged_start(p);
        break;
    case WH_PATH_LIST:
        wh_list_start(p);
        break;
    case WH_PATH_MESSAGE:
        wh_message_start(p);
        return WH_OK;
    default:
        wh_action_start(&p->action[0], &p->entry);
    }
    p->entry.sequence = p->comm->started;
    return WH_OK;
}

static void book(struct wh_comm_plan *p, uint64_t now) {
    p->started = false;
    p->row->calls++;
    p->row->sent_bytes += p->sent_bytes;
    p->row->ns += now - p->start_ns;
    p->row->exposed_ns += p->exposed_ns;
}

void wh_comm_watch(struct wh_comm_job *job,
                   void (*watch)(void *context, const struct wh_comm_call *call, uint64_t begin_ns, uint64_t end_ns),
                   void *context) {
    job->watch = watch;
    job->watch_context = context;
}

static void tell(const struct wh_comm_plan *p, uint64_t begin_ns, uint64_t end_ns) {
    const struct wh_comm_job *job = p->comm->job;
    if (job->watch) job->watch(job->watch_context, &p->call, begin_ns, end_ns);
}

enum wh_status wh_comm_start(struct wh_comm_plan *plan) {
    bool quick = may_start(plan) && (plan->path == WH_PATH_INLINE || plan->path == WH_PATH_ARENA);
    plan->start_ns = wh_clock_ns();
    enum wh_status status = named(plan, start_now(plan));
    plan->exposed_ns =
        quick ? 0 : wh_clock_ns() - plan->start_ns; /* looking at the clock would take as long as publishing */
    if (!quick) tell(plan, plan->start_ns, plan->start_ns + plan->exposed_ns);
    return status;
}

enum wh_status wh_comm_test(struct wh_comm_plan *plan, bool *finished) {
    WH_ASSERT(plan->started);
    uint64_t begin = wh_clock_ns();
    if (!is_finished(plan)) WH_TRY(named(plan, wh_job_move(plan->comm, TEST_CHUNKS)));
    uint64_t end = wh_clock_ns();
    plan->exposed_ns += end - begin;
    tell(plan, begin, end);
    *finished = is_finished(plan);
    if (*finished) book(plan, end);
    return WH_OK;
}

enum wh_status wh_comm_wait(struct wh_comm_plan *plan) {
    WH_ASSERT(plan->started);
    uint64_t begin = wh_clock_ns();
    if (!is_finished(plan)) WH_TRY(named(plan, wh_comm_wait_until(plan, is_finished)));
    uint64_t end = wh_clock_ns();
    plan->exposed_ns += end - begin;
    tell(plan, begin, end);
    book(plan, end);
    return WH_OK;
}

enum wh_status wh_comm_run(struct wh_comm *comm, const struct wh_comm_call *call) {
    struct wh_comm_plan *p = &comm->once;
    p->started = false;
    WH_TRY(wh_plan_prepare(comm, call, p));
    p->start_ns = wh_clock_ns();
    WH_TRY(named(p, start_now(p)));
    if (!is_finished(p)) WH_TRY(named(p, wh_comm_wait_until(p, is_finished)));
    uint64_t now = wh_clock_ns();
    p->exposed_ns = now - p->start_ns;
    tell(p, p->start_ns, now);
    book(p, now);
    return WH_OK;
}

enum wh_status wh_comm_progress(struct wh_comm_job *job) {
    for (struct wh_comm *c = job->comms; c; c = c->next)
        if (!c->dead) WH_TRY(wh_comm_move(c, TEST_CHUNKS));
    wh_messages_move(job);
    return WH_OK;
}
