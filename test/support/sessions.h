/* Training sessions of a configuration's ranks, each in a process of its own (test/support/ranks.h).
 *
 *     WH_TRY(test_config(text, sets, &config));
 *     struct test_sessions t = {.config = &config, .body = body, .context = what_to_do};
 *     bad = test_sessions_run(&t);                  // t.ranks.end, t.ranks.shared
 *     test_ranks_free(&t.ranks); */
#ifndef WH_TEST_SUPPORT_SESSIONS_H
#define WH_TEST_SUPPORT_SESSIONS_H

#include "run/session.h"
#include "test/support/ranks.h"

struct test_sessions {
    const struct wh_config *config; /* of its ranks; of one rank there is no team */
    /* The session is open, weights are undefined. `shared`: see test_ranks. */
    enum wh_status (*body)(struct wh_session *s, const void *context, void *shared);
    const void *context;
    const struct wh_team_links *links; /* what the ranks are told of their links; NULL: nothing */
    struct test_ranks ranks;           /* out */
};

/* Returns how many ranks did not end with WH_OK. */
uint32_t test_sessions_run(struct test_sessions *t);

/* YAML text with overrides ("a.b=c", up to NULL), checked. Errors: CONFIG, with all faults. */
enum wh_status test_config(const char *text, const char *const *sets, struct wh_config *out);

/* Where element `elem` of the line lies in this rank's master weights, gradients, moments; it must own it. */
static inline float *test_master(const struct wh_net *net, size_t elem) {
    return net->master + (elem - net->master_first);
}
static inline float *test_grad(const struct wh_net *net, size_t elem) { /* fp32 gradients only */
    return (float *)net->grads + (elem - net->grads_first);
}

#endif
