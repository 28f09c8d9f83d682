/* The ranks of a run as one of them sees them: where it stands, and the groups it talks in. Opened in a rank's process.
 *
 *     struct wh_team team;
 *     WH_TRY(wh_team_open(self, &mesh, &team));    // body of wh_launch_run; meets all ranks
 *     ...
 *     wh_team_close(&team);
 *
 * A run of one rank has no team: NULL stands for it everywhere. */
#ifndef WH_RUN_TEAM_H
#define WH_RUN_TEAM_H

#include "comm/comm.h"
#include "mesh/mesh.h"
#include "run/launch.h"

struct wh_team {
    uint32_t rank, world;
    struct wh_mesh mesh;
    struct wh_comm_job *job;
    struct wh_comm *all;   /* every rank */
    struct wh_comm *dp;    /* the replicas of this rank's pieces: who sum the same gradients */
    struct wh_comm *tp;    /* the slices of this rank's matrices */
    struct wh_comm *model; /* all ranks of one replica: tp and pp */
    struct wh_comm *pp;    /* the stages of this rank's replica, in order */
    struct wh_launch_rank *self;
    const struct wh_team_links *links; /* run/team_links.h; NULL: groups are told of no links */
};

/* Ids of the groups in wh_comm_open. */
enum { WH_TEAM_ALL, WH_TEAM_DP, WH_TEAM_PP, WH_TEAM_TP, WH_TEAM_MODEL };

/* Joins the job of `self`, whose ranks are those of `mesh`, and opens the groups. Errors: NOMEM, PEER. */
enum wh_status wh_team_open(struct wh_launch_rank *self, const struct wh_mesh *mesh, struct wh_team *out);
void wh_team_close(struct wh_team *team);
/* The groups alone: for who has joined the job himself. */
void wh_team_close_groups(struct wh_team *team);

/* The largest of what the ranks say: how all come to the same decision. Every rank calls it; costs one small message.
 * NULL: `value` itself. Errors: PEER. */
enum wh_status wh_team_max(const struct wh_team *team, uint32_t value, uint32_t *out);

uint32_t wh_team_rank(const struct wh_team *team);  /* NULL: 0 */
uint32_t wh_team_world(const struct wh_team *team); /* NULL: 1 */

#endif
