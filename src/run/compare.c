#include "run/compare.h"

#include <stdlib.h>
#include <xxhash.h>

#include "run/booked.h"

enum wh_status wh_compare_open(struct wh_comm *comm, struct wh_comm_call call, bool uncut, struct wh_compare *out) {
    const uint32_t ranks = wh_comm_size(comm);
    struct wh_compare c = {.comm = comm, .uncut = uncut};
    if (ranks == 1) return WH_OK;
    c.hashes = calloc((size_t)ranks * WH_TRAFFIC_HASHES, sizeof *c.hashes);
    if (!c.hashes) return WH_FAIL(WH_NOMEM, "no memory for the hashes of %u ranks", ranks);
    call.in = c.hashes + (size_t)wh_comm_rank(comm) * WH_TRAFFIC_HASHES;
    call.out = c.hashes;
    const enum wh_status status = wh_comm_plan_make(comm, &call, &c.plan);
    if (status == WH_OK)
        *out = c;
    else
        free(c.hashes);
    return status;
}

void wh_compare_close(struct wh_compare *c) {
    wh_comm_plan_free(c->plan);
    free(c->hashes);
    *c = (struct wh_compare){0};
}

/* Of a buffer along the rank's line: all of it, or its tensors that aren't cut. */
static uint64_t hash_of(const struct wh_compare *c, const struct wh_net *net, const void *buffer, enum wh_dtype dtype) {
    const struct wh_params *all = net->shape.params;
    const size_t e = wh_dtype_bytes(dtype);
    uint64_t hash = 0;
    if (!buffer) return hash;
    if (!c->uncut) return XXH3_64bits(buffer, all->buffer_elems * e);
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].cut == WH_CUT_NONE)
            hash = XXH3_64bits_withSeed((const char *)buffer + all->list[i].offset * e, all->list[i].elems * e, hash);
    return hash;
}

static void fill(const struct wh_compare *c, const struct wh_net *net, uint64_t *out) {
    const bool copies = net->shape.data.zero_stage == 0;
    out[0] = hash_of(c, net, net->shape.data.zero_stage < 3 ? net->weights : NULL, net->shape.dtype);
    out[1] = hash_of(c, net, copies ? net->grads : NULL, net->shape.grad_dtype);
    out[2] = hash_of(c, net, copies ? net->master : NULL, WH_F32);
    out[3] = hash_of(c, net, copies ? net->adam_m : NULL, WH_F32);
    out[4] = hash_of(c, net, copies ? net->adam_v : NULL, WH_F32);
}

static uint64_t hash_at(const struct wh_compare *c, uint32_t rank, uint32_t i) {
    return c->hashes[(size_t)rank * WH_TRAFFIC_HASHES + i];
}

/* The lowest rank whose hash number `i` most ranks have. */
static uint32_t usual(const struct wh_compare *c, uint32_t i) {
    const uint32_t ranks = wh_comm_size(c->comm);
    uint32_t best = 0, most_like = 0;
    for (uint32_t a = 0; a < ranks; a++) {
        uint32_t like = 0;
        for (uint32_t b = 0; b < ranks; b++) like += hash_at(c, b, i) == hash_at(c, a, i);
        if (like > most_like) best = a, most_like = like;
    }
    return best;
}

enum wh_status wh_compare_run(struct wh_compare *c, struct wh_net *net, uint64_t step) {
    static const char *const what[WH_TRAFFIC_HASHES] = {"weights", "gradients", "master weights", "first moments",
                                                        "second moments"};
    if (!c->comm) return WH_OK;
    fill(c, net, c->hashes + (size_t)wh_comm_rank(c->comm) * WH_TRAFFIC_HASHES);
    WH_TRY(wh_booked_run(net, c->plan));
    for (uint32_t i = 0; i < WH_TRAFFIC_HASHES; i++) {
        const uint32_t like = usual(c, i);
        for (uint32_t rank = 0; rank < wh_comm_size(c->comm); rank++)
            if (hash_at(c, rank, i) != hash_at(c, like, i))
                return WH_FAIL(WH_INTERNAL,
                               "step %llu: the %s%s of %s rank %u are not those of rank %u; they must be equal",
                               (unsigned long long)step, what[i], c->uncut ? " that aren't cut" : "",
                               c->uncut ? "tensor" : "data-parallel", rank, like);
    }
    return WH_OK;
}
