#include "run/replica.h"

#include <stdlib.h>
#include <string.h>

#include "model/gradient.h"
#include "model/state.h"
#include "run/booked.h"

/* ---- hooks ---- */

static enum wh_status start_unit(struct wh_replica *r, uint32_t unit) {
    if (!r->unit[unit]) return WH_OK; /* nothing of it is held */
    WH_TRY(wh_booked_start(r->net, r->unit[unit]));
    r->coming[unit] = true;
    return WH_OK;
}

static enum wh_status wait_unit(struct wh_replica *r, uint32_t unit) {
    if (!r->coming[unit]) return WH_OK;
    r->coming[unit] = false;
    return wh_booked_wait(r->net, r->unit[unit]);
}

static enum wh_status need(void *context, bool train, uint32_t read) {
    struct wh_replica *r = context;
    uint32_t units[WH_ZERO_AHEAD_MAX + 1];
    if (r->plan->zero.shape.stage == 0) return WH_OK;
    const uint32_t n = wh_zero_need(&r->plan->zero, train, read, units);
    for (uint32_t i = 0; i < n; i++) WH_TRY(start_unit(r, units[i]));
    return wait_unit(r, wh_zero_read(&r->plan->zero, train, read));
}

enum wh_status wh_replica_need(struct wh_replica *r, uint32_t unit) {
    if (!r->net || r->plan->zero.shape.stage == 0) return WH_OK;
    if (wh_zero_take(&r->plan->zero, unit)) WH_TRY(start_unit(r, unit));
    return wait_unit(r, unit);
}

/* The oldest bucket under way: waits, and brings the result to net->grads. */
static enum wh_status keep_one(struct wh_replica *r) {
    const struct wh_zero_bucket *b = &r->plan->zero.bucket[r->kept];
    WH_TRY(wh_booked_wait(r->net, r->bucket[r->kept]));
    wh_gradient_keep(r->net, b->first, b->end);
    r->kept++;
    return WH_OK;
}

static enum wh_status room(void *context, uint32_t unit) {
    struct wh_replica *r = context;
    if (!r->plan->zero.shape.by_unit) return WH_OK;
    while (r->kept < r->started && r->plan->zero.bucket[r->kept].unit >= unit + WH_NET_SUM_SLOTS) WH_TRY(keep_one(r));
    return WH_OK;
}

static enum wh_status done(void *context, uint32_t unit) {
    struct wh_replica *r = context;
    const struct wh_zero_plan *zero = &r->plan->zero;
    for (; r->started < zero->bucket_count && zero->bucket[r->started].unit == unit; r->started++) {
        const struct wh_zero_bucket *b = &zero->bucket[r->started];
        wh_state_want_gradients(r->net, b->first, b->end, WH_STATE_LOCAL, "the reduction of a bucket");
        WH_TRY(wh_booked_start(r->net, r->bucket[r->started]));
    }
    const uint64_t since = wh_clock_ns();
    enum wh_status status = wh_comm_progress(r->job);
    wh_net_book(r->net, WH_TIME_COMM, since);
    return status;
}

/* ---- making the plans ---- */

static char *elem_at(enum wh_dtype dtype, void *buffer, size_t elem) {
    return (char *)buffer + elem * wh_dtype_bytes(dtype);
}

static void *bucket_at(const struct wh_net *net, const struct wh_zero_bucket *b, enum wh_dtype dtype) {
    const uint32_t unit = wh_net_unit_at(net, b->first);
    return elem_at(dtype, net->unit_sums[unit], b->first - net->unit_border[unit]);
}

static enum wh_status make_unit(struct wh_replica *r, uint32_t unit) {
    const struct wh_net *net = r->net;
    const size_t first = net->unit_border[unit];
    size_t border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm_call call = wh_traffic_unit(r->plan, unit, border);
    if (call.count == 0) return WH_OK;
    call.out = net->unit_weights[unit];
    const size_t *own = &border[wh_comm_rank(r->comm)];
    if (r->plan->zero.shape.stage < 3) /* in place */
        call.in = elem_at(call.dtype, call.out, own[0]);
    else /* from the shard, which may lie wholly outside the unit */
        call.in = elem_at(call.dtype, net->weights, own[0] < own[1] ? first + own[0] - net->own.begin : 0);
    return wh_comm_plan_make(r->comm, &call, &r->unit[unit]);
}

static enum wh_status make_bucket(struct wh_replica *r, uint32_t i) {
    const struct wh_net *net = r->net;
    const struct wh_zero_bucket *b = &r->plan->zero.bucket[i];
    size_t border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm_sum sum;
    struct wh_comm_call call = wh_traffic_bucket(r->plan, i, border, &sum);
    void *at = bucket_at(net, b, call.dtype);
    sum.stride = wh_net_sums_stride(net, wh_net_unit_at(net, b->first));
    call.in = at;
    call.out = call.op == WH_REDUCE_SCATTER ? elem_at(call.dtype, at, border[wh_comm_rank(r->comm)]) : at;
    return wh_comm_plan_make(r->comm, &call, &r->bucket[i]);
}

static enum wh_status make_in_place(struct wh_replica *r, struct wh_comm_call call, void *buffer,
                                    struct wh_comm_plan **out) {
    const size_t share = call.count / wh_comm_size(r->comm) * wh_dtype_bytes(call.dtype);
    call.out = buffer;
    call.in = call.op == WH_ALL_GATHER ? (char *)buffer + wh_comm_rank(r->comm) * share : buffer;
    return wh_comm_plan_make(r->comm, &call, out);
}

static enum wh_status make_plans(struct wh_replica *r) {
    for (uint32_t u = 0; r->unit && u < r->plan->zero.units; u++) WH_TRY(make_unit(r, u));
    for (uint32_t b = 0; b < r->plan->zero.bucket_count; b++) WH_TRY(make_bucket(r, b));
    if (wh_params_have_embedding(&r->plan->stage->part))
        WH_TRY(make_in_place(r, wh_traffic_embed(r->plan), r->net->dx, &r->embed));
    return WH_OK;
}

/* ---- choosing how they run ---- */

static void consider(struct wh_replica_choices *c, const struct wh_comm_call *call, uint32_t ranks, uint32_t bucket) {
    const size_t bytes = call->count * wh_dtype_bytes(call->dtype), room = wh_comm_call_room_bytes(call, ranks);
    if (!wh_comm_call_has_lists(call, ranks)) return;
    if (room > c->room_bytes) c->room_bytes = room;
    if (bytes > c->largest_bytes) c->largest_bytes = bytes, c->bucket = bucket;
}

struct wh_replica_choices wh_replica_choices(const struct wh_traffic *plan) {
    static const struct wh_replica_choices none;
    const uint32_t ranks = plan->stage->shape.data.ranks, buckets = plan->zero.bucket_count;
    struct wh_replica_choices c = none;
    size_t border[WH_COMM_RANKS_MAX + 1];
    struct wh_comm_sum sum;
    for (uint32_t b = 0; b < buckets; b++) {
        const struct wh_comm_call call = wh_traffic_bucket(plan, b, border, &sum);
        consider(&c, &call, ranks, b);
    }
    const struct wh_comm_call embed = wh_traffic_embed(plan);
    if (wh_params_have_embedding(&plan->stage->part)) consider(&c, &embed, ranks, buckets);
    return c.largest_bytes < WH_PROBE_LINKS_LEAST_BYTES ? none : c;
}

static enum wh_status tell_links(struct wh_replica *r, const struct wh_team *team) {
    const struct wh_replica_choices c = wh_replica_choices(r->plan);
    struct wh_team_links_what what = {
        .largest = r->net->dx, .largest_bytes = c.largest_bytes, .room_bytes = c.room_bytes};
    if (c.largest_bytes && c.bucket < r->plan->zero.bucket_count)
        what.largest = bucket_at(r->net, &r->plan->zero.bucket[c.bucket], r->net->shape.grain.wire);
    return wh_team_links_tell(team, &what, &r->links);
}

/* ---- opening ---- */

static enum wh_status allocate(struct wh_replica *r) {
    const uint32_t units = r->plan->zero.units;
    if (r->plan->zero.shape.stage >= 1) r->unit = calloc(units, sizeof(struct wh_comm_plan *));
    r->coming = calloc(units, sizeof *r->coming);
    r->bucket = calloc(r->plan->zero.bucket_count + 1, sizeof(struct wh_comm_plan *));
    if ((r->plan->zero.shape.stage >= 1 && !r->unit) || !r->coming || !r->bucket)
        return WH_FAIL(WH_NOMEM, "no memory for the plans of %u units", units);
    return WH_OK;
}

enum wh_status wh_replica_open(struct wh_net *net, const struct wh_team *team, struct wh_traffic *plan,
                               struct wh_replica *out) {
    struct wh_replica *r = out;
    *r = (struct wh_replica){.net = net, .comm = team->dp, .job = team->job, .plan = plan};
    enum wh_status status = allocate(r);
    if (status == WH_OK) status = tell_links(r, team);
    if (status == WH_OK) status = make_plans(r);
    if (status == WH_OK)
        net->hooks = (struct wh_net_hooks){.context = r, .need = need, .room = room, .done = done};
    else
        wh_replica_close(r);
    return status;
}

void wh_replica_close(struct wh_replica *r) {
    for (uint32_t u = 0; r->unit && u < r->plan->zero.units; u++) wh_comm_plan_free(r->unit[u]);
    for (uint32_t b = 0; r->bucket && b < r->plan->zero.bucket_count; b++) wh_comm_plan_free(r->bucket[b]);
    wh_comm_plan_free(r->embed);
    free(r->unit);
    free(r->bucket);
    free(r->coming);
    if (r->net) r->net->hooks = (struct wh_net_hooks){0};
    *r = (struct wh_replica){0};
}

/* ---- the end of a step ---- */

enum wh_status wh_replica_gather_embedded(struct wh_replica *r) {
    if (!r->embed) return WH_OK;
    wh_state_want(r->net, r->net->dx, WH_STATE_REPLICATED, "gradients of the embedded tokens", "the replicas' gather");
    return wh_booked_start(r->net, r->embed);
}

enum wh_status wh_replica_collect(struct wh_replica *r) {
    WH_ASSERT(r->started == r->plan->zero.bucket_count);
    while (r->kept < r->started) WH_TRY(keep_one(r));
    r->started = r->kept = 0;
    if (!r->embed) return WH_OK;
    wh_state_set(r->net, r->net->dx, WH_STATE_REDUCED);
    return wh_booked_wait(r->net, r->embed);
}
