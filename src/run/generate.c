#include "run/generate.h"

#include <stdlib.h>

#include "model/decode.h"

struct writer {
    struct wh_net *net;
    struct wh_decoder decoder;
    struct wh_sampler_state sampler;
    float *logits;
    uint32_t *context; /* [T]: the tokens in the cache */
};

/* Feeds one token; makes room first if the context is full. */
static void feed(struct writer *w, uint32_t id, bool want_logits) {
    struct wh_kv_cache *c = &w->decoder.cache;
    if (c->length == c->capacity) {
        const uint32_t kept = c->capacity / 2, from = c->capacity - kept;
        c->length = 0;
        for (uint32_t i = 0; i < kept; i++) {
            w->context[i] = w->context[from + i];
            wh_decoder_feed(&w->decoder, w->context[i], NULL);
        }
    }
    w->context[c->length] = id;
    wh_decoder_feed(&w->decoder, id, want_logits ? w->logits : NULL);
}

static enum wh_status write_on(struct writer *w, const struct wh_generate *how, const uint32_t *prompt, size_t count,
                               struct wh_token_list *out) {
    const uint32_t T = w->net->shape.T;
    size_t skip = count > T ? count - T : 0; /* a longer prompt: its end is what fits */
    for (size_t i = skip; i < count; i++) feed(w, prompt[i], i + 1 == count);
    for (uint32_t i = 0; i < how->tokens; i++) {
        uint32_t id = wh_sample_next(&w->sampler, w->logits, (uint32_t)count + i);
        if ((int64_t)id == how->stop_token) break;
        WH_TRY(wh_token_list_add(out, &id, 1));
        if (how->token && !how->token(how->context, id)) break;
        if (i + 1 < how->tokens) feed(w, id, true);
    }
    return WH_OK;
}

enum wh_status wh_generate_run(struct wh_net *net, const struct wh_generate *how, const uint32_t *prompt, size_t count,
                               struct wh_token_list *out) {
    struct writer w = {.net = net};
    enum wh_status status;
    const uint32_t V = net->shape.model->V;
    WH_ASSERT(count > 0);
    for (size_t i = 0; i < count; i++)
        if (prompt[i] >= V)
            return WH_FAIL(WH_DATA,
                           "token %u of the prompt has id %u; the model's vocabulary has %u: another tokenizer?",
                           (unsigned)i, prompt[i], V);
    WH_TRY_GOTO(wh_sample_new(&how->sampling, V, &w.sampler), done);
    WH_TRY_GOTO(wh_decoder_new(net, net->shape.T, &w.decoder), free_sampler);
    w.logits = malloc(V * sizeof *w.logits);
    w.context = malloc(net->shape.T * sizeof *w.context);
    status =
        w.logits && w.context ? write_on(&w, how, prompt, count, out) : WH_FAIL(WH_NOMEM, "no memory for %u logits", V);
    free(w.logits);
    free(w.context);
    wh_decoder_free(&w.decoder);
free_sampler:
    wh_sample_free(&w.sampler);
done:
    return status;
}
