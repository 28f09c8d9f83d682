/* Continuing a sequence of tokens with a trained model. */
#ifndef WH_RUN_GENERATE_H
#define WH_RUN_GENERATE_H

#include "data/bpe.h"
#include "model/net.h"
#include "run/sample.h"

struct wh_generate {
    struct wh_sampling sampling;
    uint32_t tokens;    /* how many to add at most */
    int64_t stop_token; /* end there (not added); -1: none */
    /* Called with each new token; NULL: not wanted. Returns false to stop. */
    bool (*token)(void *context, uint32_t id);
    void *context;
};

/* `prompt` has at least one token. `net` was opened with micro_batch 1; its T is the context. When the context is full
 * its older half is forgotten and the newer half is read again, as often as needed. Appends to `out`.
 * Errors: USAGE (sampling), DATA for an id outside the vocabulary, NOMEM. */
enum wh_status wh_generate_run(struct wh_net *net, const struct wh_generate *how, const uint32_t *prompt, size_t count,
                               struct wh_token_list *out);

#endif
