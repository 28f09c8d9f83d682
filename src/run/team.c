#include "run/team.h"

static enum wh_status open_group(const struct wh_team *team, uint32_t id, enum wh_mesh_axis axis,
                                 struct wh_comm **out) {
    const uint32_t size = wh_mesh_group_size(&team->mesh, axis);
    uint32_t members[WH_COMM_RANKS_MAX];
    for (uint32_t i = 0; i < size; i++) members[i] = wh_mesh_member(&team->mesh, axis, team->rank, i);
    return wh_comm_open(team->job, id, wh_mesh_axis_name(axis), members, size, out);
}

enum wh_status wh_team_open(struct wh_launch_rank *self, const struct wh_mesh *mesh, struct wh_team *out) {
    struct wh_team team = {.rank = self->rank, .world = self->world, .mesh = *mesh, .job = self->job, .self = self};
    enum wh_status status;
    WH_ASSERT(mesh->world == self->world && self->job);
    WH_TRY_GOTO(wh_comm_job_join(self->job, self->rank), close);
    WH_TRY_GOTO(open_group(&team, WH_TEAM_ALL, WH_AXIS_WORLD, &team.all), close);
    WH_TRY_GOTO(open_group(&team, WH_TEAM_DP, WH_AXIS_DP, &team.dp), close);
    WH_TRY_GOTO(open_group(&team, WH_TEAM_PP, WH_AXIS_PP, &team.pp), close);
    WH_TRY_GOTO(open_group(&team, WH_TEAM_TP, WH_AXIS_TP, &team.tp), close);
    WH_TRY_GOTO(open_group(&team, WH_TEAM_MODEL, WH_AXIS_MODEL, &team.model), close);
    *out = team;
    return WH_OK;
close:
    wh_team_close(&team);
    return status;
}

void wh_team_close_groups(struct wh_team *team) {
    wh_comm_close(team->model);
    wh_comm_close(team->tp);
    wh_comm_close(team->pp);
    wh_comm_close(team->dp);
    wh_comm_close(team->all);
    team->model = team->tp = team->pp = team->dp = team->all = NULL;
}

void wh_team_close(struct wh_team *team) {
    wh_team_close_groups(team);
    wh_comm_job_leave(team->job);
    *team = (struct wh_team){0};
}

enum wh_status wh_team_max(const struct wh_team *team, uint32_t value, uint32_t *out) {
    int64_t largest = value;
    const struct wh_comm_call call = {.op = WH_ALL_REDUCE,
                                      .in = &largest,
                                      .out = &largest,
                                      .count = 1,
                                      .dtype = WH_I64,
                                      .redop = WH_MAX,
                                      .row = "control.agree"};
    if (team) WH_TRY(wh_comm_run(team->all, &call));
    *out = (uint32_t)largest;
    return WH_OK;
}

uint32_t wh_team_rank(const struct wh_team *team) { return team ? team->rank : 0; }
uint32_t wh_team_world(const struct wh_team *team) { return team ? team->world : 1; }
