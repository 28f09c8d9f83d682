#include "model/state.h"

#ifdef WH_FOLLOW_STATES
#include <stdio.h>
#include <stdlib.h>

/* Open addressing, at most half full; nothing is ever taken out. */
struct wh_states {
    int layer;
    const char *part;
    size_t used, slots; /* a power of two */
    struct wh_state_entry {
        const void *buffer; /* NULL: free */
        enum wh_state state;
    } entry[];
};

static const char *const words[] = {
#define X(id, word, meaning) word,
    WH_STATES(X)
#undef X
};

/* The most buffers that a net has: of a layer's activations, of what its split backward pass saves, of a unit; micro-batches in
 * net->dx, blocks of the final norm, the row of a sequence whose logits are asked for; those that it has once. */
static size_t most_buffers(const struct wh_net *net) {
    enum { OF_LAYER = 8, OF_SAVED = 6, OF_UNIT = 2, ONCE = 32 };
    const struct wh_net_shape *s = &net->shape;
    const size_t L = s->model->L + 2, tokens = (size_t)s->micro_batch * s->T;
    return (s->act_slots * OF_LAYER + s->grad_slots * OF_SAVED + OF_UNIT) * L + wh_net_sequences(s) / s->micro_batch +
           tokens / net->loss_block + s->T + ONCE;
}

enum wh_status wh_states_new(struct wh_net *net) {
    const size_t most = most_buffers(net);
    size_t slots = 2;
    while (slots < 2 * most) slots *= 2;
    net->states = calloc(1, sizeof *net->states + slots * sizeof *net->states->entry);
    if (!net->states) return WH_FAIL(WH_NOMEM, "no memory for the states of %zu buffers", most);
    net->states->slots = slots, net->states->layer = -1, net->states->part = "start";
    return WH_OK;
}

void wh_states_free(struct wh_net *net) { free(net->states); }

void wh_state_place(const struct wh_net *net, int layer, const char *part) {
    net->states->layer = layer, net->states->part = part;
}

/* The buffer's entry, or the free one where it would be. */
static struct wh_state_entry *find(const struct wh_net *net, const void *buffer) {
    struct wh_states *s = net->states;
    size_t i = (size_t)(((uint64_t)(uintptr_t)buffer >> 3) * 0x9e3779b97f4a7c15u >> 20);
    WH_ASSERT(buffer);
    for (;; i++) {
        struct wh_state_entry *e = &s->entry[i & (s->slots - 1)];
        if (!e->buffer || e->buffer == buffer) return e;
    }
}

void wh_state_set(const struct wh_net *net, const void *buffer, enum wh_state state) {
    struct wh_state_entry *e = find(net, buffer);
    net->states->used += !e->buffer;
    WH_ASSERT(2 * net->states->used <= net->states->slots);
    *e = (struct wh_state_entry){buffer, state};
}

void wh_state_copy(const struct wh_net *net, const void *to, const void *from) {
    wh_state_set(net, to, find(net, from)->state); /* a free entry is UNDEFINED */
}

static const char *why(enum wh_state found, enum wh_state wanted) {
    if (found == WH_STATE_UNDEFINED) return "nobody has written it";
    if (wanted == WH_STATE_PARTIAL || wanted == WH_STATE_LOCAL) return "it was reduced before";
    if (found == WH_STATE_PARTIAL || found == WH_STATE_LOCAL) return "its reduction is missing";
    if (found == WH_STATE_POSITIONS && wanted == WH_STATE_REPLICATED) return "its gather is missing";
    return "it is cut otherwise";
}

static _Noreturn void fail(const struct wh_net *net, const char *where, const char *tensor, const char *reader,
                           enum wh_state found, enum wh_state wanted) {
    char claim[320];
    snprintf(claim, sizeof claim, "tensor rank %u, data-parallel rank %u, %s: %s = %s (%s found %s: %s)",
             net->shape.tensor.rank, net->shape.data.rank, where, tensor, words[wanted], reader, words[found],
             why(found, wanted));
    wh_assert_failed(__FILE__, __LINE__, claim);
}

void wh_state_want(const struct wh_net *net, const void *buffer, enum wh_state state, const char *tensor,
                   const char *reader) {
    const enum wh_state found = find(net, buffer)->state;
    const struct wh_states *s = net->states;
    char where[96];
    if (found == state) return;
    snprintf(where, sizeof where, "layer %d, %s", s->layer, s->part);
    fail(net, s->layer < 0 ? s->part : where, tensor, reader, found, state);
}

void wh_state_add_gradient(const struct wh_net *net, const struct wh_param *p) {
    const uint32_t unit = wh_net_unit(net, p);
    if (wh_net_cuts_sum(&net->shape, p))
        wh_state_set(net, &net->vector_border[unit], WH_STATE_PARTIAL);
    else
        wh_state_set(net, &net->unit_border[unit], WH_STATE_LOCAL);
}

void wh_state_set_gradients(const struct wh_net *net, size_t first, size_t end, enum wh_state state) {
    const size_t *border = net->unit_border;
    for (uint32_t u = 0; u < net->shape.model->L + 2; u++)
        if (border[u] < border[u + 1] && first <= border[u] && border[u] < end) wh_state_set(net, &border[u], state);
}

static void want_unit(const struct wh_net *net, uint32_t unit, enum wh_state state, const char *reader) {
    const uint32_t L = net->shape.model->L;
    const enum wh_state found = find(net, &net->unit_border[unit])->state;
    const size_t *vectors = &net->vector_border[unit];
    char where[32];
    snprintf(where, sizeof where, "layer %u", unit - 1);
    const char *name = unit == 0 ? "embeddings" : unit > L ? "behind the layers" : where;
    if (found != state) fail(net, name, "gradients of parameters", reader, found, state);
    if (state != WH_STATE_LOCAL || vectors[0] == vectors[1]) return;
    const enum wh_state joined = find(net, vectors)->state;
    if (joined != WH_STATE_REPLICATED) fail(net, name, "gradients of vectors", reader, joined, WH_STATE_REPLICATED);
}

void wh_state_want_gradients(const struct wh_net *net, size_t first, size_t end, enum wh_state state,
                             const char *reader) {
    const size_t *border = net->unit_border;
    for (uint32_t u = 0; u < net->shape.model->L + 2; u++)
        if (border[u] < end && first < border[u + 1] && border[u] < border[u + 1]) want_unit(net, u, state, reader);
}

#endif
