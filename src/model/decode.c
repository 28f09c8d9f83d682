#include "model/decode.h"

#include <stdlib.h>
#include <string.h>

#include "model/layer.h"
#include "model/rows.h"
#include "model/state.h"
#include "os/memory.h"

enum wh_status wh_decoder_new(struct wh_net *net, uint32_t capacity, struct wh_decoder *out) {
    const struct wh_model *m = &net->local;
    const size_t row_bytes = (size_t)m->Hkv * m->D * wh_dtype_bytes(net->shape.dtype);
    const size_t each = (capacity * row_bytes + 63) / 64 * 64;
    struct wh_decoder d = {.net = net, .cache = {.capacity = capacity}};
    WH_ASSERT(capacity <= net->shape.T);
    d.cache.k = calloc(2 * (size_t)m->L, sizeof *d.cache.k);
    if (!d.cache.k) return WH_FAIL(WH_NOMEM, "no memory for the caches of %u layers", m->L);
    d.cache.v = d.cache.k + m->L;
    d.memory_bytes = 2 * m->L * each + (capacity + m->D) * sizeof(float);
    enum wh_status status = wh_memory_reserve(d.memory_bytes, &d.memory);
    if (status != WH_OK) {
        free(d.cache.k);
        return status;
    }
    for (uint32_t l = 0; l < 2 * m->L; l++) d.cache.k[l] = (char *)d.memory + l * each; /* v lies behind k */
    d.cache.scores = (float *)((char *)d.memory + 2 * m->L * each);
    d.cache.zeros = d.cache.scores + capacity;
    *out = d;
    return WH_OK;
}

void wh_decoder_free(struct wh_decoder *d) {
    wh_memory_release(d->memory, d->memory_bytes);
    free(d->cache.k);
    *d = (struct wh_decoder){0};
}

/* One query row against all cached positions; as tensor/attention.h says, without the masked keys behind the row, whose
 * terms are zero there. */
static void attend(struct wh_net *net, struct wh_kv_cache *c, int layer, size_t head, const struct wh_layer_acts *a) {
    const struct wh_model *m = &net->local;
    const size_t D = m->D, ld = (size_t)m->Hkv * D, kv = head / (m->H / m->Hkv) * D, n = c->length + 1;
    const enum wh_dtype t = net->shape.dtype;
    const struct wh_gemm scores = {.m = 1,
                                   .n = n,
                                   .k = D,
                                   .a = {wh_rows_at(net, a->qkv, head * D), t, D, false},
                                   .b = {wh_rows_at(net, c->k[layer], kv), t, ld, true},
                                   .c = {c->scores, WH_F32, n}};
    const struct wh_gemm mix = {.m = 1,
                                .n = D,
                                .k = n,
                                .a = {c->scores, WH_F32, n, false},
                                .b = {wh_rows_at(net, c->v[layer], kv), t, ld, false},
                                .c = {wh_rows_at(net, a->attn, head * D), t, D},
                                .bias = c->zeros,
                                .bias_dtype = WH_F32}; /* the contract's last + 0 */
    wh_gemm_run(&scores, &net->pool);
    net->vec->scale(c->scores, c->scores, net->attention_scale, n);
    const float z = net->vec->exp_sum(c->scores, c->scores, net->vec->max(c->scores, n), n);
    net->vec->scale(c->scores, c->scores, 1.0f / z, n);
    wh_gemm_run(&mix, &net->pool);
}

void wh_decode_attention(struct wh_net *net, struct wh_kv_cache *c, int layer, const struct wh_layer_acts *a) {
    const struct wh_model *m = &net->local;
    const size_t q = (size_t)m->H * m->D, kv = (size_t)m->Hkv * m->D, bytes = kv * wh_dtype_bytes(net->shape.dtype);
    wh_state_want(net, a->qkv, WH_STATE_CHANNELS, "queries, keys and values", "attention");
    wh_state_set(net, a->attn, WH_STATE_CHANNELS);
    memcpy(wh_rows_at(net, c->k[layer], c->length * kv), wh_rows_at(net, a->qkv, q), bytes);
    memcpy(wh_rows_at(net, c->v[layer], c->length * kv), wh_rows_at(net, a->qkv, q + kv), bytes);
    for (size_t head = 0; head < m->H; head++) attend(net, c, layer, head, a);
}

void wh_decoder_feed(struct wh_decoder *d, uint32_t id, float *logits) {
    struct wh_net *net = d->net;
    const struct wh_pass pass = {
        .ids = &id, .sequences = 1, .T = 1, .first_position = d->cache.length, .cache = &d->cache};
    WH_ASSERT(d->cache.length < d->cache.capacity && id < net->local.V);
    const void *x = wh_net_forward(net, &pass);
    d->cache.length++;
    if (logits) wh_head_logits(net, x, 1, logits);
}
