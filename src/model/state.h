/* What of a tensor a rank's buffer holds, followed in debug builds: whoever writes activations or gradients declares it, whoever
 * reads them says what it wants. A reduction or a gather that is missing, or is done twice, then ends the run with the names
 * of tensor, reader and place (wh_assert_failed), instead of going into the loss.
 *
 *     wh_state_place(net, layer, "attention");
 *     wh_state_want(net, x, wh_state_stream(net), "residual stream", "norm");
 *     ... y = norm(x) ...
 *     wh_state_set(net, y, wh_state_stream(net));
 *
 * A buffer is known by its address, and has the state of what was written there last. Two kinds of gradients have no single
 * buffer: a unit's gradients of parameters are known by their entry in net->unit_border, its vectors' sums over own positions
 * by that in net->vector_border.
 *
 * One tensor rank follows partial sums and channels as many do, so that it finds a join that is missing, too.
 *
 * With WH_FOLLOW_STATES only, which the makefile sets for CONFIG=asan, tsan and debug; without it all calls are empty. Outside
 * parallel regions only. Nothing is allocated after the net is made. */
#ifndef WH_MODEL_STATE_H
#define WH_MODEL_STATE_H

#include "model/net.h"

/* X(id, a message's word for it, meaning) */
#define WH_STATES(X)                                                                           \
    X(UNDEFINED, "undefined", "nobody has written it, or it has been used up")                 \
    X(REPLICATED, "replicated", "all of it, the same on every tensor rank")                    \
    X(POSITIONS, "own positions", "rows of this tensor rank's positions")                      \
    X(CHANNELS, "own channels", "this tensor rank's heads, columns or part of the vocabulary") \
    X(PARTIAL, "partial sum", "this tensor rank's subtree of a sum")                           \
    X(LOCAL, "own contribution", "this data-parallel rank's sequences only")                   \
    X(REDUCED, "reduced", "of the sequences of all data-parallel ranks")

enum wh_state {
#define X(id, word, meaning) WH_STATE_##id,
    WH_STATES(X)
#undef X
};

/* Of rows of the residual stream, and of what is done for each of them. */
static inline enum wh_state wh_state_stream(const struct wh_net *net) {
    return wh_net_cuts_stream(&net->shape) ? WH_STATE_POSITIONS : WH_STATE_REPLICATED;
}

#ifdef WH_FOLLOW_STATES

enum { WH_STATES_FOLLOWED = 1 };

/* For wh_net_new and wh_net_free. Errors: NOMEM. */
enum wh_status wh_states_new(struct wh_net *net);
void wh_states_free(struct wh_net *net);

/* Where in the model it happens from here on; layer -1: outside the layers. `part` is a literal. */
void wh_state_place(const struct wh_net *net, int layer, const char *part);

void wh_state_set(const struct wh_net *net, const void *buffer, enum wh_state state);
/* `to` has become what `from` is. */
void wh_state_copy(const struct wh_net *net, const void *to, const void *from);
/* Aborts unless the buffer is in that state. */
void wh_state_want(const struct wh_net *net, const void *buffer, enum wh_state state, const char *tensor,
                   const char *reader);

/* More is added to the gradient of `p`: LOCAL; of a vector that is summed over own positions, PARTIAL. */
void wh_state_add_gradient(const struct wh_net *net, const struct wh_param *p);
/* Gradients of parameters of the units that begin in [first, end) of the line (buckets cut a unit from its end down). */
void wh_state_set_gradients(const struct wh_net *net, size_t first, size_t end, enum wh_state state);
/* Of the units that have elements there. LOCAL: their vectors' sums over positions have been joined, too. */
void wh_state_want_gradients(const struct wh_net *net, size_t first, size_t end, enum wh_state state,
                             const char *reader);

#else

enum { WH_STATES_FOLLOWED = 0 };

static inline enum wh_status wh_states_new(struct wh_net *net) { return (void)net, WH_OK; }
static inline void wh_states_free(struct wh_net *net) { (void)net; }
static inline void wh_state_place(const struct wh_net *net, int layer, const char *part) {
    (void)net, (void)layer, (void)part;
}
static inline void wh_state_set(const struct wh_net *net, const void *buffer, enum wh_state state) {
    (void)net, (void)buffer, (void)state;
}
static inline void wh_state_copy(const struct wh_net *net, const void *to, const void *from) {
    (void)net, (void)to, (void)from;
}
static inline void wh_state_want(const struct wh_net *net, const void *buffer, enum wh_state state, const char *tensor,
                                 const char *reader) {
    (void)net, (void)buffer, (void)state, (void)tensor, (void)reader;
}
static inline void wh_state_add_gradient(const struct wh_net *net, const struct wh_param *p) { (void)net, (void)p; }
static inline void wh_state_set_gradients(const struct wh_net *net, size_t first, size_t end, enum wh_state state) {
    (void)net, (void)first, (void)end, (void)state;
}
static inline void wh_state_want_gradients(const struct wh_net *net, size_t first, size_t end, enum wh_state state,
                                           const char *reader) {
    (void)net, (void)first, (void)end, (void)state, (void)reader;
}

#endif
#endif
