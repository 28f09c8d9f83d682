#include "run/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer.h"
#include "model/rows.h"
#include "optim/schedule.h"
#include "os/memory.h"
#include "os/probe.h"

/* The configured tokenizer and the token that ends a document (-1: none). */
static enum wh_status open_tokenizer(const struct wh_config *c, struct wh_tokenizer **tokenizer, int64_t *end_of_text) {
    uint32_t own;
    WH_TRY(wh_tokenizer_open(c->tokenizer.path, tokenizer));
    *end_of_text = c->data.end_of_text;
    if (*end_of_text < 0 && wh_tokenizer_end_of_text(*tokenizer, &own)) *end_of_text = own;
    return WH_OK;
}

enum wh_status wh_session_open_tokens(const struct wh_config *c, const char *const *paths, size_t count,
                                      struct wh_tokens **out) {
    static const enum wh_tokens_kind kinds[] = {WH_TOKENS_AUTO, WH_TOKENS_LLMC, WH_TOKENS_MEGATRON, WH_TOKENS_BYTES};
    const enum wh_tokens_kind kind = kinds[c->data.format];
    struct wh_tokenizer *tokenizer;
    int64_t end_of_text;
    if (strcmp(c->tokenizer.path, "bytes") == 0) return wh_tokens_open(paths, count, kind, c->arch.V, out);
    WH_TRY(open_tokenizer(c, &tokenizer, &end_of_text));
    enum wh_status status = wh_tokens_open_text(paths, count, kind, c->arch.V, tokenizer, end_of_text, out);
    wh_tokenizer_close(tokenizer);
    return status;
}

enum wh_status wh_session_end_of_text(const struct wh_config *c, uint32_t *out) {
    struct wh_tokenizer *tokenizer;
    int64_t end_of_text;
    WH_TRY(open_tokenizer(c, &tokenizer, &end_of_text));
    wh_tokenizer_close(tokenizer);
    if (end_of_text < 0)
        return WH_FAIL(WH_CONFIG,
                       "data.document_mask: the tokenizer %s has no end-of-text token; name one with data.end_of_text",
                       c->tokenizer.path);
    *out = (uint32_t)end_of_text;
    return WH_OK;
}

static enum wh_status open_train(struct wh_session *s) {
    const struct wh_config *c = s->config;
    WH_TRY(wh_session_open_tokens(c, c->data.train.item, c->data.train.count, &s->train));
    return wh_sampler_init(wh_tokens_count(s->train), c->tokens.sequence_length, c->tokens.global_batch, c->data.seed,
                           c->data.shuffle, &s->sampler);
}

static enum wh_status open_valid(struct wh_session *s) {
    const struct wh_config *c = s->config;
    WH_TRY(wh_session_open_tokens(c, c->data.valid.item, c->data.valid.count, &s->valid));
    return wh_sampler_init(wh_tokens_count(s->valid), c->tokens.sequence_length, 1, 0, false, &s->valid_sampler);
}

static enum wh_status open_data(struct wh_session *s) {
    WH_TRY(wh_while(open_train(s), "opening data.train"));
    if (s->config->data.valid.count == 0) return WH_OK;
    return wh_while(open_valid(s), "opening data.valid");
}

static enum wh_status open_batch(struct wh_session *s) {
    const size_t n = (size_t)s->config->tokens.global_batch * s->config->tokens.sequence_length;
    s->ids = malloc(n * sizeof *s->ids);
    s->labels = malloc(n * sizeof *s->labels);
    if (s->config->data.document_mask) s->document_start = malloc(n * sizeof *s->document_start);
    if (!s->ids || !s->labels || (s->config->data.document_mask && !s->document_start))
        return WH_FAIL(WH_NOMEM, "no memory for a batch of %zu tokens", n);
    return WH_OK;
}

static enum wh_status open_net(struct wh_session *s) {
    struct wh_net_shape shape = s->stage.shape;
    struct wh_arena predicted;
    shape.data.job = s->team ? s->team->job : NULL;
    shape.tensor.comm = s->team ? s->team->tp : NULL;
    WH_TRY(wh_net_predict(&shape, &predicted, NULL));
    const size_t available = wh_memory_available_bytes();
    if (!s->team && available && predicted.used_bytes > available) /* of several ranks the launcher has asked for all */
        return WH_FAIL(
            WH_FIT,
            "the step needs %.2f GiB and %.2f GiB are free; smaller: tokens.micro_batch_size, recompute: full,"
            " model.dtype: bfloat16, grain.data: 1",
            (double)predicted.used_bytes / 0x1p30, (double)available / 0x1p30);
    WH_TRY(wh_net_new(&shape, &s->net));
    return wh_engine_open(&s->stage, &s->net, s->team, s->config->optimizer.bucket_bytes, &s->engine);
}

static struct wh_session_bytes bytes_of(const struct wh_arena *own, const struct wh_arena *shared, size_t room_bytes,
                                        uint32_t world) {
    const size_t between = room_bytes + (world > 1 ? wh_comm_job_own_bytes(world) : 0);
    struct wh_session_bytes b = {
        .own_bytes = own->used_bytes, .arena_bytes = shared->used_bytes, .room_bytes = room_bytes};
    for (int i = 0; i < WH_ROW_COUNT; i++) b.row_bytes[i] = own->row_bytes[i] + shared->row_bytes[i];
    b.row_bytes[WH_ROW_COMM] += between;
    b.total_bytes = own->used_bytes + shared->used_bytes + between;
    return b;
}

enum wh_status wh_session_predict_plan(const struct wh_config *config, const struct wh_traffic *plan,
                                       struct wh_session_bytes *out) {
    struct wh_arena own, shared;
    const bool links = strcmp(config->comm.links, "off") != 0;
    WH_TRY(wh_net_predict(&plan->stage->shape, &own, &shared));
    *out = bytes_of(&own, &shared, links ? wh_replica_choices(plan).room_bytes : 0, plan->stage->mesh.world);
    return WH_OK;
}

enum wh_status wh_session_predict(const struct wh_config *config, uint32_t rank, struct wh_session_bytes *out) {
    struct wh_stage stage;
    struct wh_traffic plan = {0};
    WH_TRY(wh_stage_new(config, rank, &stage));
    enum wh_status status = wh_traffic_new(&stage, config->optimizer.bucket_bytes, &plan);
    if (status == WH_OK) status = wh_session_predict_plan(config, &plan, out);
    wh_traffic_free(&plan);
    wh_stage_free(&stage);
    return status;
}

void wh_session_measure(const struct wh_session *s, struct wh_session_bytes *out) {
    const size_t room_bytes = s->team ? wh_comm_room_bytes(s->team->dp) : 0;
    *out = bytes_of(&s->net.arena, &s->net.shared, room_bytes, wh_team_world(s->team));
}

static enum wh_status open_optimizer(struct wh_session *s) {
    const struct wh_config *c = s->config;
    const struct wh_net *net = &s->net;
    const struct wh_adamw_settings settings = {.beta1 = c->optimizer.beta1,
                                               .beta2 = c->optimizer.beta2,
                                               .eps = c->optimizer.eps,
                                               .weight_decay = c->optimizer.weight_decay,
                                               .clip = c->optimizer.clip_grad};
    const struct wh_adamw_buffers buffers = {.params = &s->stage.part,
                                             .grain = c->grain,
                                             .vec = net->vec,
                                             .threads = net->shape.threads,
                                             .grads = net->grads,
                                             .grad_dtype = net->shape.grad_dtype,
                                             .master = net->master,
                                             .m = net->adam_m,
                                             .v = net->adam_v,
                                             .weights = net->weights,
                                             .weight_dtype = net->shape.dtype,
                                             .own = net->own,
                                             .skip_uncut = net->shape.tensor.rank > 0,
                                             .grads_first = net->grads_first,
                                             .master_first = net->master_first,
                                             .states_first = net->own.begin,
                                             .weights_first = net->weights_first,
                                             .partial = net->norm_partial};
    return wh_adamw_new(&settings, &buffers, &s->adamw);
}

enum wh_status wh_session_open(const struct wh_config *config, const struct wh_team *team, struct wh_session *out) {
    enum wh_status status;
    *out = (struct wh_session){.config = config, .team = team};
    WH_TRY(wh_stage_new(config, team ? team->rank : 0, &out->stage));
    WH_TRY_GOTO(open_data(out), close_out);
    if (config->data.document_mask) WH_TRY_GOTO(wh_session_end_of_text(config, &out->end_of_text), close_out);
    WH_TRY_GOTO(open_batch(out), close_out);
    WH_TRY_GOTO(open_net(out), close_out);
    WH_TRY_GOTO(open_optimizer(out), close_out);
    return WH_OK;
close_out:
    wh_session_close(out);
    return status;
}

void wh_session_close(struct wh_session *s) {
    wh_adamw_free(&s->adamw);
    wh_engine_close(&s->engine);
    wh_net_free(&s->net);
    wh_tokens_close(s->train);
    wh_tokens_close(s->valid);
    wh_stage_free(&s->stage);
    free(s->ids);
    free(s->labels);
    free(s->document_start);
    *s = (struct wh_session){0};
}

static struct wh_batch data_of(const struct wh_session *s, const struct wh_tokens *tokens,
                               const struct wh_sampler *sampler) {
    return (struct wh_batch){.tokens = tokens,
                             .sampler = sampler,
                             .end_of_text = s->end_of_text,
                             .split_documents = s->config->data.document_mask};
}

static enum wh_status gradient_norm(struct wh_session *s, double *norm) {
    const uint64_t since = wh_clock_ns(), waited = s->net.times.ns[WH_TIME_COMM];
    WH_TRY(wh_engine_norm(&s->engine, &s->adamw, norm));
    wh_net_book(&s->net, WH_TIME_NORM_GLOBAL, since);
    wh_trace_span(s->engine.trace, WH_TRACK_OPTIMIZER, "gradient norm", since);
    s->net.times.ns[WH_TIME_NORM_GLOBAL] -= s->net.times.ns[WH_TIME_COMM] - waited;
    return WH_OK;
}

static enum wh_status compare_replicas(struct wh_session *s) {
    const uint64_t every = s->config->checks.replicas, step = s->step + 1;
    return every && step % every == 0 ? wh_engine_compare(&s->engine, step) : WH_OK;
}

enum wh_status wh_session_step(struct wh_session *s, struct wh_step_result *out) {
    const struct wh_config *c = s->config;
    const struct wh_batch data = data_of(s, s->train, &s->sampler);
    const struct wh_net_batch batch = {s->ids, s->labels, s->document_start};
    const uint32_t step = (uint32_t)s->step;
    struct wh_step_result r;
    const uint64_t began = wh_trace_now(s->engine.trace);
    WH_TRY(wh_batch_fill(&data, s->step, 0, c->tokens.global_batch, s->ids, s->labels, s->document_start,
                         &r.valid_labels));
    wh_trace_span(s->engine.trace, WH_TRACK_COMPUTE, "batch", began);
    if (r.valid_labels == 0)
        return WH_FAIL(WH_DATA, "step %llu: none of the batch's positions has a label",
                       (unsigned long long)s->step + 1);
    WH_TRY(wh_engine_step(&s->engine, &batch, 1.0f / (float)r.valid_labels, step, &r.loss));
    WH_TRY(compare_replicas(s));
    WH_TRY(gradient_norm(s, &r.grad_norm));
    r.loss /= (double)r.valid_labels;
    r.lr = wh_schedule_rate(&c->optimizer.lr, s->step + 1);
    if (!isfinite(r.loss) || !isfinite(r.grad_norm))
        return WH_FAIL(
            WH_DATA,
            "step %llu: loss %g, gradient norm %g are not finite; the weights are as before the step. A lower "
            "learning rate or optimizer.clip_grad may help",
            (unsigned long long)s->step + 1, r.loss, r.grad_norm);
    const uint64_t since = wh_clock_ns();
    wh_adamw_update(&s->adamw, r.lr, s->step + 1, r.grad_norm);
    wh_net_book(&s->net, WH_TIME_OPTIMIZER, since);
    wh_trace_span(s->engine.trace, WH_TRACK_OPTIMIZER, "AdamW", since);
    wh_engine_updated(&s->engine);
    s->step++;
    s->samples += c->tokens.global_batch;
    s->tokens += r.valid_labels;
    *out = r;
    return WH_OK;
}

/* Forward passes of `n` sequences; their losses are where *losses says. */
static enum wh_status evaluate_some(struct wh_net *net, struct wh_engine *engine, const struct wh_net_batch *batch,
                                    uint32_t n, const double **losses) {
    if (engine) return wh_engine_evaluate(engine, batch, n, losses);
    WH_TRY(wh_net_evaluate(net, batch, n));
    *losses = net->sequence_loss;
    return WH_OK;
}

enum wh_status wh_session_evaluate(struct wh_net *net, struct wh_engine *engine, const struct wh_batch *data,
                                   uint64_t limit, uint32_t *ids, int32_t *labels, uint32_t *document_start,
                                   struct wh_evaluation *out) {
    const uint64_t all = data->sampler->sequences, count = limit && limit < all ? limit : all;
    const struct wh_net_batch batch = {ids, labels, document_start};
    const uint32_t T = net->shape.T, most = net->shape.micro_batch * wh_net_ranks(&net->shape);
    struct wh_evaluation e = {.sequences = count};
    const double *losses;
    double sum = 0.0;
    for (uint64_t done = 0; done < count;) {
        uint32_t n = 0;
        for (; n < most && done < count; n++, done++) {
            uint64_t valid;
            const size_t at = (size_t)n * T;
            WH_TRY(wh_batch_fill(data, done, 0, 1, ids + at, labels + at, document_start ? document_start + at : NULL,
                                 &valid));
            e.labels += valid;
        }
        WH_TRY(evaluate_some(net, engine, &batch, n, &losses));
        for (uint32_t i = 0; i < n; i++) sum += losses[i]; /* in this order whoever has computed them */
    }
    e.loss = e.labels ? sum / (double)e.labels : 0.0;
    *out = e;
    return WH_OK;
}

uint64_t wh_session_validation_sequences(const struct wh_session *s) {
    const uint64_t all = s->valid_sampler.sequences;
    const uint64_t limit = (uint64_t)s->config->tokens.limit_val_batches * s->config->tokens.global_batch;
    return limit && limit < all ? limit : all;
}

bool wh_session_validates(const struct wh_config *c, uint64_t step) {
    const uint64_t every = c->tokens.val_check_interval;
    return (every && step % every == 0) || step == c->tokens.train_steps;
}

enum wh_status wh_session_validate(struct wh_session *s, struct wh_evaluation *out) {
    const struct wh_batch data = data_of(s, s->valid, &s->valid_sampler);
    const uint64_t count = wh_session_validation_sequences(s);
    return wh_session_evaluate(&s->net, &s->engine, &data, count, s->ids, s->labels, s->document_start, out);
}
