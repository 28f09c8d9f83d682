/* Everything one training run holds in memory, built from a checked configuration.
 *
 *     struct wh_session s;
 *     WH_TRY(wh_session_open(&config, NULL, &s));   // data, memory, optimizer; all sizes known, weights undefined
 *     wh_net_init_weights(&s.net, seed);            // or wh_weights_resume (run/weights.h)
 *     WH_TRY(wh_session_step(&s, &result));         // one optimizer step
 *     wh_session_close(&s);
 *
 * The step allocates nothing (test/unit/run/test_step_noalloc.c). */
#ifndef WH_RUN_SESSION_H
#define WH_RUN_SESSION_H

#include "config/config.h"
#include "data/batch.h"
#include "model/net.h"
#include "optim/adamw.h"
#include "run/engine.h"

struct wh_session {
    const struct wh_config *config; /* borrowed */
    const struct wh_team *team;     /* borrowed; NULL: one rank */
    struct wh_stage stage;
    struct wh_net net;
    struct wh_engine engine;
    struct wh_adamw adamw;
    struct wh_tokens *train, *valid; /* valid NULL: none */
    struct wh_sampler sampler, valid_sampler;
    uint32_t *ids; /* [global_batch][T] */
    int32_t *labels;
    uint32_t *document_start; /* NULL without document masking */
    uint32_t end_of_text;     /* used with document masking only */
    uint64_t step;            /* optimizer updates done */
    uint64_t samples, tokens; /* consumed: sequences, counted labels */
};

struct wh_step_result {
    double loss;      /* mean over the batch's labels */
    double grad_norm; /* before clipping */
    double lr;
    uint64_t valid_labels;
};

/* Errors: CONFIG, DATA, NOMEM, FIT if the memory that the step will need is not there. */
enum wh_status wh_session_open(const struct wh_config *config, const struct wh_team *team, struct wh_session *out);
void wh_session_close(struct wh_session *s);

/* What a rank takes. */
struct wh_session_bytes {
    size_t own_bytes;
    size_t arena_bytes; /* of its wh_comm_buffer's: the same on all ranks */
    /* Work space of step lists that data-parallel ranks may choose: the same whatever links turn out to be, and whether lists
     * are chosen or not. */
    size_t room_bytes;
    size_t row_bytes[WH_ROW_COUNT]; /* all of it by ledger row; with the flags and rings of a job */
    size_t total_bytes;
};
/* Beforehand, of a rank; or of the one that `plan` is of. Errors: CONFIG, NOMEM. */
enum wh_status wh_session_predict(const struct wh_config *config, uint32_t rank, struct wh_session_bytes *out);
enum wh_status wh_session_predict_plan(const struct wh_config *config, const struct wh_traffic *plan,
                                       struct wh_session_bytes *out);
/* Of an open session. */
void wh_session_measure(const struct wh_session *s, struct wh_session_bytes *out);

/* The token that ends a document: data.end_of_text, or the tokenizer's own. Errors: CONFIG if there is none. */
enum wh_status wh_session_end_of_text(const struct wh_config *c, uint32_t *out);

/* Token or text files as the configuration says (data.format, the tokenizer). Errors: as wh_tokens_open_text. */
enum wh_status wh_session_open_tokens(const struct wh_config *c, const char *const *paths, size_t count,
                                      struct wh_tokens **out);

/* Errors: DATA, also for a loss or gradient norm that is not finite: weights are then those before the step. */
enum wh_status wh_session_step(struct wh_session *s, struct wh_step_result *out);

/* Mean loss of `net` over all whole sequences of `tokens`, at most `limit` (0: all): the sum over counted labels, sequence
 * by sequence, over their number, whatever the micro-batch and the ranks (case B05). Arrays hold ranks * micro_batch * T
 * elements. `engine` NULL: a net alone; else all ranks of the job call it. Errors: DATA, PEER. */
struct wh_evaluation {
    double loss;
    uint64_t sequences, labels;
};
enum wh_status wh_session_evaluate(struct wh_net *net, struct wh_engine *engine, const struct wh_batch *data,
                                   uint64_t limit, uint32_t *ids, int32_t *labels, uint32_t *document_start,
                                   struct wh_evaluation *out);

/* Is there a validation after step `step`, if there is data for it? */
bool wh_session_validates(const struct wh_config *c, uint64_t step);

/* How many sequences a validation takes: at most tokens.limit_val_batches global batches of what there is. */
uint64_t wh_session_validation_sequences(const struct wh_session *s);

/* wh_session_evaluate over these. */
enum wh_status wh_session_validate(struct wh_session *s, struct wh_evaluation *out);

#endif
