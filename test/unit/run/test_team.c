/* Groups of a team and decisions of all its ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run/team.h"
#include "test/support/ranks.h"

static const struct wh_mesh_degrees degrees[] = {
    {.dp = 1, .cp = 1, .tp = 1, .pp = 1, .ep = 1},
    {.dp = 3, .cp = 1, .tp = 1, .pp = 1, .ep = 1},
    {.dp = 2, .cp = 1, .tp = 2, .pp = 2, .ep = 1}, /* four dp groups, which share an id */
};

static enum wh_status check_group(const struct wh_comm *comm, const struct wh_team *t, enum wh_mesh_axis axis) {
    RANK_CHECK(wh_comm_size(comm) == wh_mesh_group_size(&t->mesh, axis));
    RANK_CHECK(wh_comm_rank(comm) == wh_mesh_position(&t->mesh, axis, t->rank));
    return WH_OK;
}

/* The sum of the group's ranks tells who is in it. */
static enum wh_status check_members(struct wh_comm *comm, const struct wh_team *t, enum wh_mesh_axis axis) {
    int32_t sum = (int32_t)t->rank, want = 0;
    const struct wh_comm_call call = {
        .op = WH_ALL_REDUCE, .in = &sum, .out = &sum, .count = 1, .dtype = WH_I32, .redop = WH_SUM};
    WH_TRY(wh_comm_run(comm, &call));
    for (uint32_t i = 0; i < wh_mesh_group_size(&t->mesh, axis); i++)
        want += (int32_t)wh_mesh_member(&t->mesh, axis, t->rank, i);
    RANK_CHECK(sum == want);
    return WH_OK;
}

static enum wh_status use_team(const struct wh_team *t) {
    uint32_t largest;
    RANK_CHECK(wh_team_rank(t) == t->rank && wh_team_world(t) == t->world);
    WH_TRY(check_group(t->all, t, WH_AXIS_WORLD));
    WH_TRY(check_group(t->dp, t, WH_AXIS_DP));
    WH_TRY(check_members(t->all, t, WH_AXIS_WORLD));
    WH_TRY(check_members(t->dp, t, WH_AXIS_DP));
    for (uint32_t speaker = 0; speaker < t->world; speaker++) {
        WH_TRY(wh_team_max(t, t->rank == speaker ? UINT32_MAX - speaker : speaker, &largest));
        RANK_CHECK(largest == UINT32_MAX - speaker);
    }
    WH_TRY(wh_team_max(t, 0, &largest));
    RANK_CHECK(largest == 0);
    return WH_OK;
}

static enum wh_status body(struct wh_launch_rank *self, void *context) {
    const struct wh_mesh *mesh = context;
    struct wh_team team;
    WH_TRY(wh_team_open(self, mesh, &team));
    RANK_CHECK(team.rank == self->rank && team.world == mesh->world && team.self == self);
    const enum wh_status status = use_team(&team);
    wh_team_close(&team);
    return status;
}

static void test_meshes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        struct wh_faults faults = {0};
        struct wh_mesh mesh;
        struct wh_comm_job *job;
        struct wh_launch_result result;
        assert_true(wh_mesh_init(&degrees[i], 0, &mesh, &faults));
        const struct wh_comm_job_config config = {.ranks = mesh.world, .deadline_ns = 30000000000u};
        assert_int_equal(wh_comm_job_create(&config, &job), WH_OK);
        const struct wh_launch_options options = {.ranks = mesh.world, .job = job};
        const enum wh_status status = wh_launch_run(&options, body, &mesh, &result);
        if (status != WH_OK) fail_msg("%s", wh_error()->message);
        wh_comm_job_destroy(job);
    }
}

static void test_alone(void **state) {
    (void)state;
    uint32_t largest;
    assert_int_equal(wh_team_rank(NULL), 0);
    assert_int_equal(wh_team_world(NULL), 1);
    assert_int_equal(wh_team_max(NULL, 7, &largest), WH_OK);
    assert_int_equal(largest, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_meshes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
