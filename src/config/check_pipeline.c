/* The pipeline: its schedule, generated or a user's own, and the layers of its stages. */
#include <inttypes.h>

#include "base/options.h"
#include "config/check_int.h"
#include "mesh/shard.h"
#include "sched/check.h"
#include "sched/format.h"

const char *wh_config_schedule(const struct wh_config *c) {
    static const char *const names[] = {"1f1b",  "gpipe", "gpipe",       "interleaved",
                                        "zb-h1", "zb-v",  "interleaved", "zb-v"};
    return names[c->parallelism.pp_engine];
}

/* ---- a user's schedule ---- */

bool wh_config_wants_schedule(const struct wh_config *c) { return *c->parallelism.pp_schedule; }

void wh_config_set_schedule(struct wh_config *c, const char *text, size_t bytes) {
    c->schedule.text = wh_config_keep_bytes(c, text, bytes);
    c->schedule.bytes = bytes;
}

/* Chunks of a rank by the file; 0: it can't be used, which was told. Faults carry the lines of the file. */
static uint32_t read_schedule(struct check *x, struct wh_sched_shape *out) {
    const struct wh_config *c = x->c;
    struct wh_sched_plan plan;
    if (!c->schedule.text) { /* its reader has told why */
        if (x->faults->count == 0) fault(x, WH_KEY_PP_SCHEDULE, "the schedule was not read");
        return 0;
    }
    if (!wh_sched_parse(c->schedule.text, c->schedule.bytes, c->parallelism.pp_schedule, &plan, x->faults)) return 0;
    const bool right = wh_sched_check(&plan, WH_SCHED_DEPTH, c->parallelism.pp_schedule, x->faults);
    *out = plan.shape;
    wh_sched_plan_free(&plan);
    return right ? out->chunks : 0;
}

static void check_micro_batches(struct check *x, uint32_t wanted) {
    const struct wh_config *c = x->c;
    const uint64_t each = (uint64_t)c->parallelism.dp * wanted, global = c->tokens.global_batch;
    char how[96];
    if (c->tokens.accumulation == wanted) return;
    if (global % each == 0)
        snprintf(how, sizeof how, "%s %" PRIu64, path(WH_KEY_MICRO_BATCH), global / each);
    else
        snprintf(how, sizeof how, "%s %" PRIu64, path(WH_KEY_GLOBAL_BATCH), each * c->tokens.micro_batch);
    fault(x, WH_KEY_ACCUMULATION, "%s %u: %s %s is for %u micro-batches; nearest legal: %u, with %s",
          path(WH_KEY_ACCUMULATION), c->tokens.accumulation, path(WH_KEY_PP_SCHEDULE), c->parallelism.pp_schedule,
          wanted, wanted, how);
}

/* The run is what the file is for. */
static void check_shape(struct check *x, const struct wh_sched_shape *s) {
    const struct wh_config *c = x->c;
    const char *file = c->parallelism.pp_schedule;
    if (c->parallelism.pp != s->ranks)
        fault(x, WH_KEY_PP, "%s %u: %s %s is for %u rank%s; nearest legal: %u", path(WH_KEY_PP), c->parallelism.pp,
              path(WH_KEY_PP_SCHEDULE), file, s->ranks, s->ranks == 1 ? "" : "s", s->ranks);
    check_micro_batches(x, s->micro_batches);
    if (c->parallelism.pp_chunks && c->parallelism.pp_chunks != s->chunks)
        fault(x, WH_KEY_PP_CHUNKS, "%s %u: %s %s has %u; nearest legal: %u", path(WH_KEY_PP_CHUNKS),
              c->parallelism.pp_chunks, path(WH_KEY_PP_SCHEDULE), file, s->chunks, s->chunks);
    if (s->ranks == 1 && s->chunks > 1)
        fault(x, WH_KEY_PP_SCHEDULE, "%s %s: one rank runs the model as one chunk, not %u; nearest legal: chunks 1",
              path(WH_KEY_PP_SCHEDULE), file, s->chunks);
}

static uint32_t chunks_of_file(struct check *x) {
    const struct wh_config *c = x->c;
    struct wh_sched_shape shape;
    if (given(c, WH_KEY_PP_ENGINE))
        fault(x, WH_KEY_PP_ENGINE, "%s and %s are both given: there is one schedule; leave one out",
              path(WH_KEY_PP_ENGINE), path(WH_KEY_PP_SCHEDULE));
    const uint32_t chunks = read_schedule(x, &shape);
    if (chunks) check_shape(x, &shape);
    return chunks;
}

/* ---- a generated one ---- */

static uint32_t chunks_wanted(const struct wh_config *c) {
    if (c->parallelism.pp_chunks) return c->parallelism.pp_chunks;
    return wh_sched_generator(wh_config_schedule(c))->chunks_default;
}

uint32_t wh_config_nearest_pp(const struct wh_config *c, uint32_t most) {
    const uint32_t pp = c->parallelism.pp, longest = c->arch.L / chunks_wanted(c);
    uint32_t n = pp < most ? pp : most;
    if (wh_config_wants_schedule(c)) return n == pp ? n : 0;
    if (n > longest) n = longest ? longest : 1;
    return n == 1 && c->parallelism.pp_chunks > 1 ? 0 : n;
}

static uint32_t chunks_of_engine(struct check *x) {
    struct wh_config *c = x->c;
    const struct wh_sched_generator *g = wh_sched_generator(wh_config_schedule(c));
    const uint32_t pp = c->parallelism.pp, chunks = chunks_wanted(c);
    struct wh_text why = {0};
    uint32_t legal = 0;
    if (!given(c, WH_KEY_PP_ENGINE)) derived(c, WH_KEY_PP_ENGINE);
    if (pp == 1 && c->parallelism.pp_chunks > 1)
        fault(x, WH_KEY_PP_CHUNKS, "%s %u: there is one rank; write 1, or %s 2", path(WH_KEY_PP_CHUNKS),
              c->parallelism.pp_chunks, path(WH_KEY_PP));
    else if (pp == 1)
        legal = 1;
    else if (chunks < g->chunks_min || chunks > g->chunks_max)
        fault(x, WH_KEY_PP_CHUNKS, "%s %u: %s has %u to %u stages on each rank", path(WH_KEY_PP_CHUNKS), chunks,
              g->name, g->chunks_min, g->chunks_max);
    else if (!wh_sched_sizes_legal(pp, c->tokens.accumulation, chunks, &why))
        fault(x, WH_KEY_PP, "%s: %s", path(WH_KEY_PP), why.data);
    else
        legal = chunks;
    wh_text_fini(&why);
    return legal;
}

/* ---- layers ---- */

static void add_even(struct wh_text *out, uint32_t layers, uint32_t stages) {
    for (uint32_t s = 0; s < stages; s++)
        wh_text_add(out, "%s%u", s ? ", " : "", layers / stages + (s < layers % stages));
}

static void check_layers(struct check *x, uint32_t stages) {
    const struct wh_config_list *list = &x->c->parallelism.pp_layers;
    const uint32_t L = x->c->arch.L;
    uint64_t sum = 0, n;
    bool whole = true;
    struct wh_text even = {0};
    for (uint32_t i = 0; i < list->count; i++) {
        if (wh_text_to_uint(list->item[i], &n) && n >= 1 && n <= L) {
            sum += n;
            continue;
        }
        fault(x, WH_KEY_PP_LAYERS, "%s: '%s' for stage %u: 1 to %u layers are legal", path(WH_KEY_PP_LAYERS),
              list->item[i], i, L);
        whole = false;
    }
    add_even(&even, L, stages);
    if (list->count != stages)
        fault(x, WH_KEY_PP_LAYERS, "%s has %u numbers: there are %u stages; for example [%s]", path(WH_KEY_PP_LAYERS),
              list->count, stages, even.data);
    if (whole && sum != L)
        fault(x, WH_KEY_PP_LAYERS, "%s add up to %" PRIu64 ": num_hidden_layers is %u; for example [%s]",
              path(WH_KEY_PP_LAYERS), sum, L, even.data);
    wh_text_fini(&even);
}

void wh_config_check_pipeline(struct check *x) {
    const struct wh_config *c = x->c;
    const uint32_t pp = c->parallelism.pp, L = c->arch.L;
    if (faulty(c, WH_KEY_PP_ENGINE) || faulty(c, WH_KEY_PP_CHUNKS) || faulty(c, WH_KEY_PP_SCHEDULE)) return;
    const uint32_t chunks = wh_config_wants_schedule(c) ? chunks_of_file(x) : chunks_of_engine(x);
    if (chunks == 0) return;
    if ((uint64_t)pp * chunks > L)
        fault(x, WH_KEY_PP,
              "%s %u with %u stage%s each is above num_hidden_layers %u: a stage has one layer at least; "
              "nearest legal: %u",
              path(WH_KEY_PP), pp, chunks, chunks == 1 ? "" : "s", L, L / chunks ? L / chunks : 1);
    else if (c->parallelism.pp_layers.count)
        check_layers(x, pp * chunks);
}
