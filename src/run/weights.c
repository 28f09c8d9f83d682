#include "run/weights.h"

#include <stdlib.h>

#include "os/memory.h"

/* What this rank keeps of a buffer that begins with element `first` of the line. */
static struct wh_ckpt_slab own_part(const struct wh_net *net, float *buffer, size_t first) {
    const struct wh_range own = net->own;
    if (!buffer) return (struct wh_ckpt_slab){0};
    return (struct wh_ckpt_slab){buffer + (own.begin - first), own.begin, own.end - own.begin};
}

/* As the net of that rank has it (net->own). */
static struct wh_range own_range(const struct wh_stage *s) {
    const struct wh_net_data *d = &s->shape.data;
    if (d->zero_stage == 0) return (struct wh_range){0, s->part.buffer_elems};
    return (struct wh_range){d->owner_border[d->rank], d->owner_border[d->rank + 1]};
}

/* What each rank of the run keeps, from the configuration alone. */
struct holders {
    struct wh_stage *stage;
    struct wh_ckpt_holding *holding;
    uint32_t count; /* of stages made */
};

static void free_holders(struct holders *h) {
    for (uint32_t r = 0; r < h->count; r++) wh_stage_free(&h->stage[r]);
    free(h->stage);
    free(h->holding);
    *h = (struct holders){0};
}

static enum wh_status new_holders(const struct wh_config *c, uint32_t ranks, struct holders *out) {
    struct holders h = {.stage = calloc(ranks, sizeof *h.stage), .holding = calloc(ranks, sizeof *h.holding)};
    enum wh_status status = WH_OK;
    if (!h.stage || !h.holding) status = WH_FAIL(WH_NOMEM, "no memory for the tables of %u ranks", ranks);
    for (; status == WH_OK && h.count < ranks; h.count += status == WH_OK) {
        struct wh_stage *stage = &h.stage[h.count];
        status = wh_stage_new(c, h.count, stage);
        if (status == WH_OK) h.holding[h.count] = (struct wh_ckpt_holding){&stage->part, own_range(stage)};
    }
    if (status == WH_OK)
        *out = h;
    else
        free_holders(&h);
    return status;
}

enum wh_status wh_weights_save(const struct wh_session *s, const char *run, struct wh_text *remarks) {
    const struct wh_config *c = s->config;
    struct holders holders = {0};
    if (s->team) WH_TRY(new_holders(c, s->team->world, &holders));
    const struct wh_ckpt_view view = {
        .model = &c->arch,
        .params = &s->stage.whole,
        .grain = c->grain,
        .compute = c->model.dtype,
        .state = {.step = s->step,
                  .samples = s->samples,
                  .tokens = s->tokens,
                  .data_position = s->samples,
                  .optimizer_step = s->step,
                  .seed = c->general.seed},
        .weights = own_part(&s->net, s->net.master, s->net.master_first),
        .m = own_part(&s->net, s->net.adam_m, s->net.own.begin),
        .v = own_part(&s->net, s->net.adam_v, s->net.own.begin),
        .comm = s->team ? s->team->all : NULL,
        .holding = holders.holding,
    };
    enum wh_status status = wh_ckpt_save(run, &view, c->checkpoints.keep_last, remarks);
    free_holders(&holders);
    return status;
}

static const char *word_of(enum wh_dtype t) { return t == WH_BF16 ? "bfloat16" : "float32"; }

static enum wh_status check_same_numbers(const struct wh_config *c, const struct wh_ckpt_info *info,
                                         const char *folder) {
    struct wh_faults faults = {0};
    const struct wh_grain *g = &info->grain;
    if (info->state.seed != c->general.seed)
        wh_faults_add(&faults, folder, 0, "was made with general.seed %llu, the configuration says %llu",
                      (unsigned long long)info->state.seed, (unsigned long long)c->general.seed);
    const bool replicas = g->fast && c->grain.fast; /* their number, which may change: the run is not the contract's */
    if (g->fast != c->grain.fast)
        wh_faults_add(&faults, folder, 0, "was made with comm.reduce %s, the configuration says %s: set the former",
                      g->fast ? "fast" : "contract", c->grain.fast ? "fast" : "contract");
    else if (g->tensor != c->grain.tensor || (g->data != c->grain.data && !replicas) ||
             g->sequence != c->grain.sequence)
        wh_faults_add(
            &faults, folder, 0,
            "was made with grain.tensor %u, grain.data %u, grain.sequence %u; the configuration has %u, %u, %u: "
            "set the former to go on with the same sums",
            g->tensor, g->data, g->sequence, c->grain.tensor, c->grain.data, c->grain.sequence);
    if (g->wire != c->grain.wire)
        wh_faults_add(
            &faults, folder, 0,
            "was made with grain.wire %s, the configuration says %s: set the former to go on with the same sums",
            word_of(g->wire), word_of(c->grain.wire));
    if (info->compute != c->model.dtype)
        wh_faults_add(&faults, folder, 0, "was trained in %s, the configuration says %s", wh_dtype_name(info->compute),
                      wh_dtype_name(c->model.dtype));
    if (info->state.samples != info->state.step * c->tokens.global_batch)
        wh_faults_add(&faults, folder, 0, "has seen %llu sequences in %llu steps; tokens.global_batch_size is %u",
                      (unsigned long long)info->state.samples, (unsigned long long)info->state.step,
                      c->tokens.global_batch);
    return wh_faults_status(&faults, WH_CONFIG);
}

static enum wh_status resume(struct wh_session *s, const char *folder) {
    struct wh_ckpt_info info;
    WH_TRY(wh_ckpt_read(folder, &info));
    WH_TRY(check_same_numbers(s->config, &info, folder));
    WH_TRY(wh_ckpt_load(folder, &s->stage.part, own_part(&s->net, s->net.master, s->net.master_first),
                        own_part(&s->net, s->net.adam_m, s->net.own.begin),
                        own_part(&s->net, s->net.adam_v, s->net.own.begin)));
    wh_net_refresh_weights(&s->net);
    s->step = info.state.step;
    s->samples = info.state.samples;
    s->tokens = info.state.tokens;
    return WH_OK;
}

enum wh_status wh_weights_resume(struct wh_session *s, const char *folder) {
    enum wh_status status = resume(s, folder);
    if (status == WH_DAMAGED) wh_ckpt_advise(folder);
    return status;
}

enum wh_status wh_weights_load(struct wh_net *net, const char *folder) {
    const struct wh_params *params = net->shape.params;
    const size_t bytes = params->buffer_elems * sizeof(float);
    const struct wh_ckpt_slab none = {0};
    void *temporary = NULL;
    if (net->master) {
        WH_TRY(wh_ckpt_load(folder, params, own_part(net, net->master, net->master_first), none, none));
        wh_net_refresh_weights(net);
        return WH_OK;
    }
    WH_TRY(wh_memory_reserve(bytes, &temporary)); /* bf16 without a master: rounded once, then given back */
    enum wh_status status = wh_ckpt_load(folder, params, wh_ckpt_whole(temporary, params), none, none);
    if (status == WH_OK) {
        net->master = temporary;
        wh_net_refresh_weights(net);
        net->master = NULL;
    }
    wh_memory_release(temporary, bytes);
    return status;
}
