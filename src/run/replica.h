/* The data-parallel side of a rank: carries out sched/zero.h around the passes of a net, by the collectives of
 * run/traffic.h. One of them per rank that has data-parallel peers; run/engine.h puts it to work.
 *
 * Every rank of the group makes the same calls in the same order. Nothing is allocated after opening. Errors of all calls:
 * PEER. */
#ifndef WH_RUN_REPLICA_H
#define WH_RUN_REPLICA_H

#include "run/team_links.h"
#include "run/traffic.h"

struct wh_replica {
    struct wh_net *net; /* borrowed, as the rest above the plans; NULL: no peers */
    struct wh_comm *comm;
    struct wh_comm_job *job;
    struct wh_traffic *plan;
    struct wh_comm_plan **unit;   /* [units]: gathers its weights; NULL where nothing is gathered */
    struct wh_comm_plan **bucket; /* [buckets] */
    struct wh_comm_plan *embed;
    bool *coming;           /* [units]: its gather is under way */
    uint32_t started, kept; /* buckets of this step: started; finished, and in net->grads */
    struct wh_team_links_told links;
};

/* Collectives of the group that have a choice among algorithms (comm/comm.h), if it is told of its links. Found before
 * anything is measured, and by who only predicts. */
struct wh_replica_choices {
    uint32_t bucket;      /* the longest; bucket_count: it is the gather of embedded tokens */
    size_t largest_bytes; /* its vector; 0: there are none worth the question */
    size_t room_bytes;    /* work space of step lists */
};
struct wh_replica_choices wh_replica_choices(const struct wh_traffic *plan);

/* Sets net->hooks. If the team has links the group is told of them first, which meets its members and may measure in the
 * buffers of gradients and embedded tokens: zeros then. Errors: NOMEM, CONFIG; PEER. */
enum wh_status wh_replica_open(struct wh_net *net, const struct wh_team *team, struct wh_traffic *plan,
                               struct wh_replica *out);
void wh_replica_close(struct wh_replica *r);

/* This rank's rows of net->dx are there: starts to gather the others' (nothing where no embedding is held). */
enum wh_status wh_replica_gather_embedded(struct wh_replica *r);

/* After the last instruction of a step: waits until gradients and embedded tokens are there; net->grads are then those of
 * the whole batch, but for the embeddings. */
enum wh_status wh_replica_collect(struct wh_replica *r);

/* Unit `unit`'s weights are wanted out of turn. */
enum wh_status wh_replica_need(struct wh_replica *r, uint32_t unit);

#endif
