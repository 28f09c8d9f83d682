#include "test/support/sessions.h"

#include <string.h>

static enum wh_status with_team(const struct test_sessions *t, struct wh_comm_job *job, uint32_t rank, void *shared) {
    const struct wh_config *c = t->config;
    struct wh_launch_rank self = {.rank = rank, .world = wh_config_ranks(c), .job = job};
    const struct wh_mesh_degrees degrees = wh_config_degrees(c);
    struct wh_mesh mesh;
    struct wh_faults faults = {0};
    struct wh_team team;
    struct wh_session s;
    wh_mesh_init(&degrees, 0, &mesh, &faults);
    WH_TRY(wh_team_open(&self, &mesh, &team));
    team.links = t->links;
    enum wh_status status = wh_session_open(c, &team, &s);
    if (status == WH_OK) {
        status = t->body(&s, t->context, shared);
        wh_session_close(&s);
    }
    wh_team_close_groups(&team); /* the job is left by who called us */
    return status;
}

static enum wh_status alone(const struct test_sessions *t, void *shared) {
    struct wh_session s;
    WH_TRY(wh_session_open(t->config, NULL, &s));
    const enum wh_status status = t->body(&s, t->context, shared);
    wh_session_close(&s);
    return status;
}

static enum wh_status rank_body(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *ranks) {
    const struct test_sessions *t = ranks->context;
    return wh_config_ranks(t->config) == 1 ? alone(t, ranks->shared) : with_team(t, job, rank, ranks->shared);
}

uint32_t test_sessions_run(struct test_sessions *t) {
    struct wh_session_bytes bytes;
    const uint32_t ranks = wh_config_ranks(t->config);
    t->ranks = (struct test_ranks){
        .config = {.ranks = ranks, .deadline_ns = 30000000000},
        .body = rank_body,
        .context = t,
        .no_join = true,
        .limit_s = 120,
    };
    for (uint32_t r = 0; r < ranks; r++) {
        if (wh_session_predict(t->config, r, &bytes) != WH_OK) return ranks;
        if (bytes.arena_bytes > t->ranks.config.arena_bytes) t->ranks.config.arena_bytes = bytes.arena_bytes;
    }
    return test_ranks_run(&t->ranks);
}

enum wh_status test_config(const char *text, const char *const *sets, struct wh_config *out) {
    struct wh_faults faults = {0};
    size_t count = 0;
    while (sets[count]) count++;
    wh_config_parse(text, strlen(text), "test.yaml", sets, count, out, &faults);
    wh_config_check(out, &faults);
    return wh_faults_status(&faults, WH_CONFIG);
}
