/* One sequence, token by token, keeping keys and values: for generation.
 *
 *     struct wh_decoder d;
 *     WH_TRY(wh_decoder_new(&net, capacity, &d));         // net: train false, T >= capacity
 *     wh_decoder_feed(&d, id, NULL);  ...  wh_decoder_feed(&d, last_id, logits);
 *     wh_decoder_free(&d);
 *
 * The logits have the same bits as those of the whole sequence at once (wh_net_logits): the contract makes a row a
 * function of its own inputs (test/unit/model/test_decode.c). Cost per token: one pass over the weights. */
#ifndef WH_MODEL_DECODE_H
#define WH_MODEL_DECODE_H

#include "model/net.h"

struct wh_kv_cache {
    uint32_t capacity, length; /* positions */
    void **k, **v;             /* [L] of [capacity, Hkv D] in the compute dtype */
    float *scores;             /* [capacity] */
    float *zeros;              /* [D] */
};

struct wh_decoder {
    struct wh_net *net; /* borrowed */
    struct wh_kv_cache cache;
    void *memory;
    size_t memory_bytes;
};

/* Errors: NOMEM. */
enum wh_status wh_decoder_new(struct wh_net *net, uint32_t capacity, struct wh_decoder *out);
void wh_decoder_free(struct wh_decoder *d);

/* Appends a token (length < capacity); with `logits` [V] writes those of the token after it. */
void wh_decoder_feed(struct wh_decoder *d, uint32_t id, float *logits);

#endif
