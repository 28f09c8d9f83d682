/* A training run of several ranks, as the process sees it that starts them. */
#include <string.h>

#include "comm/comm.h"
#include "os/memory.h"
#include "os/probe.h"
#include "os/shm.h"
#include "os/signal.h"
#include "plan/stages.h"
#include "run/session.h"
#include "run/train_int.h"

_Static_assert((int)WH_CONFIG_RANKS_MAX == (int)WH_COMM_RANKS_MAX,
               "what the configuration allows is what comm/ connects");

static const uint64_t for_ever_ns = UINT64_MAX / 2;
static const uint64_t default_silence_ns = 600000000000u;
/* Ranks that wait for one that lives but never comes, or that saves for long, are more patient than the launcher. */
enum { DEADLINE_SILENCES = 3 };

/* Written by rank 0, read when it has ended. */
struct page {
    bool filled;
    struct wh_train_summary summary;
};

struct launched {
    struct wh_train_part part;
    struct page *page;
};

static enum wh_status prepare(void *context) {
    struct launched *l = context;
    return wh_train_check_folder(&l->part);
}

static enum wh_status body(struct wh_launch_rank *self, void *context) {
    const struct launched *l = context;
    struct wh_train_summary summary;
    const enum wh_status status = wh_train_rank(&l->part, self, &summary);
    if (self->rank == 0 && (status == WH_OK || status == WH_RETRY)) {
        l->page->summary = summary;
        l->page->filled = true;
    }
    return status;
}

static void console(void *context, const char *line) {
    const struct wh_train_options *o = context;
    if (o->say) o->say(o->context, line);
}

static enum wh_status lay_out(struct launched *l) {
    const struct wh_config *c = l->part.given;
    const struct wh_mesh_degrees degrees = wh_config_degrees(c);
    struct wh_faults faults = {0};
    wh_mesh_init(&degrees, 0, &l->part.mesh, &faults);
    WH_TRY(wh_faults_status(&faults, WH_CONFIG));
    const uint32_t share = (uint32_t)wh_probe_processors() / l->part.mesh.world;
    if (c->threads == 0) l->part.config.threads = share ? share : 1;
    return WH_OK;
}

/* A wrong generator would let the ranks wait for each other for ever. Files are proved when they are read. */
static enum wh_status check_schedule(const struct wh_config *c) {
    struct wh_sched_plan plan;
    WH_TRY(wh_stages_plan(c, &plan));
    enum wh_status status = wh_stages_prove(&plan);
    wh_sched_plan_free(&plan);
    return status;
}

/* What would stop every rank. Text that has to be tokenized is left to them: it would be done twice. */
static enum wh_status check_data(const struct wh_config *c, const struct wh_config_list *files, const char *key) {
    struct wh_tokens *tokens;
    const bool ids = c->data.format == WH_DATA_LLMC || c->data.format == WH_DATA_MEGATRON;
    if (files->count == 0 || (!ids && strcmp(c->tokenizer.path, "bytes") != 0)) return WH_OK;
    WH_TRY(wh_while(wh_session_open_tokens(c, files->item, files->count, &tokens), "opening %s", key));
    wh_tokens_close(tokens);
    return WH_OK;
}

/* All ranks together: each alone would find room. */
static enum wh_status check_memory(const struct launched *l, size_t *arena_bytes) {
    const struct wh_config *c = &l->part.config;
    const uint32_t world = l->part.mesh.world;
    const size_t available = wh_memory_available_bytes();
    size_t sum = 0, most = 0;
    *arena_bytes = 0;
    for (uint32_t r = 0; r < world; r++) {
        struct wh_session_bytes b;
        WH_TRY(wh_session_predict(c, r, &b));
        sum += b.total_bytes;
        if (b.arena_bytes > *arena_bytes) *arena_bytes = b.arena_bytes;
        if (b.total_bytes > most) most = b.total_bytes;
    }
    if (available == 0 || sum <= available) return WH_OK;
    return WH_FAIL(WH_FIT,
                   "the step needs %.2f GiB in %u ranks, up to %.2f GiB each, and %.2f GiB are free; smaller: "
                   "tokens.micro_batch_size, optimizer.zero_stage: 3, recompute: full, model.dtype: bfloat16, "
                   "parallelism.dp",
                   (double)sum / 0x1p30, world, (double)most / 0x1p30, (double)available / 0x1p30);
}

static enum wh_status launch(struct launched *l, struct wh_comm_job *job, struct wh_launch_result *result) {
    const struct wh_train_options *o = l->part.options;
    const uint32_t world = l->part.mesh.world;
    const struct wh_launch_options options = {
        .ranks = world,
        .job = job,
        .folder = o->out,
        .pin = l->part.config.threads <= (uint32_t)wh_probe_processors() / world,
        .silence_ns = o->silence_ns ? o->silence_ns : default_silence_ns,
        .stop_grace_ns = for_ever_ns, /* a step may be long; what hangs is silent, or late for the others */
        .prepare = prepare,
        .console = console,
        .console_context = (void *)(uintptr_t)o};
    return wh_launch_run(&options, body, l, result);
}

enum wh_status wh_train_launch(const struct wh_config *config, const struct wh_train_options *options,
                               struct wh_train_summary *out) {
    struct launched l = {.part = {.given = config, .config = *config, .options = options}};
    struct wh_comm_job_config job_config = {0};
    struct wh_comm_job *job = NULL;
    struct wh_launch_result result = {0};
    struct wh_shm shm;
    enum wh_status status;
    WH_TRY(lay_out(&l));
    WH_TRY(wh_while(check_schedule(config), "proving the schedule of the pipeline"));
    WH_TRY(check_data(config, &config->data.train, "data.train"));
    WH_TRY(check_data(config, &config->data.valid, "data.valid"));
    WH_TRY(check_memory(&l, &job_config.arena_bytes));
    WH_TRY(wh_shm_create(sizeof *l.page, "wanhe-summary", &shm));
    l.page = shm.data;
    WH_TRY_GOTO(wh_team_links_find(config, options->environment, &l.part.links), release);
    job_config.ranks = l.part.mesh.world;
    job_config.deadline_ns = DEADLINE_SILENCES * (options->silence_ns ? options->silence_ns : default_silence_ns);
    WH_TRY_GOTO(wh_shm_reserve(&shm, "the summary"), release);
    WH_TRY_GOTO(wh_comm_job_create(&job_config, &job), release);
    wh_signal_watch();
    status = launch(&l, job, &result);
    if (status == WH_OK || status == WH_RETRY) {
        *out = l.page->filled ? l.page->summary : (struct wh_train_summary){.stopped_by = result.stopped_by};
    }
release:
    wh_team_links_free(&l.part.links);
    wh_comm_job_destroy(job);
    wh_shm_release(&shm);
    return status;
}
