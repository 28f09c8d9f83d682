/* What a training run in one process and one of several ranks share. */
#ifndef WH_RUN_TRAIN_INT_H
#define WH_RUN_TRAIN_INT_H

#include <stdbool.h>

#include "mesh/mesh.h"
#include "run/launch.h"
#include "run/team_links.h"
#include "run/train.h"

/* One rank's part of a run. */
struct wh_train_part {
    const struct wh_config *given; /* as it is written down */
    struct wh_config config;       /* `given` with what the machine decides: threads */
    const struct wh_train_options *options;
    struct wh_mesh mesh;
    struct wh_team_links links; /* of several ranks */
    bool present;               /* the folder held checkpoints when it was locked */
};

/* Refuses what the folder does not allow, without making it: to resume from nothing, to start afresh over checkpoints. */
enum wh_status wh_train_check_start(const struct wh_train_options *options);

/* In the locked folder: the same for sure, and that a checkpoint has room. */
enum wh_status wh_train_check_folder(struct wh_train_part *part);

/* The part of rank `self` of several, in its process. *out is written on OK and RETRY. */
enum wh_status wh_train_rank(const struct wh_train_part *part, struct wh_launch_rank *self,
                             struct wh_train_summary *out);

/* Starts the ranks of a run and watches them. */
enum wh_status wh_train_launch(const struct wh_config *config, const struct wh_train_options *options,
                               struct wh_train_summary *out);

#endif
