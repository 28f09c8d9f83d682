/* A trained model to use: the checkpoint found, its net built and filled. For eval and generate.
 *
 *     struct wh_open_model m;
 *     WH_TRY(wh_open_model(path, &how, &m, &remarks));   ...   wh_open_model_close(&m);
 *
 * `path`: a run folder, a checkpoints folder, or one checkpoint. The struct must not move while it is open. */
#ifndef WH_RUN_MODEL_OPEN_H
#define WH_RUN_MODEL_OPEN_H

#include "ckpt/checkpoint.h"
#include "model/net.h"

struct wh_open_how {
    uint64_t step;        /* WH_CKPT_LATEST: the newest complete one */
    uint32_t T;           /* 0: the model's longest */
    uint32_t micro_batch; /* sequences at once */
    int threads;          /* 0: all processors */
    const char *kernels;  /* NULL: best */
};

struct wh_open_model {
    char *folder;
    struct wh_ckpt_info info;
    struct wh_params params;
    struct wh_net net;
};

/* Errors: DAMAGED, CONFIG (T beyond the model's longest), NOMEM. */
enum wh_status wh_open_model(const char *path, const struct wh_open_how *how, struct wh_open_model *out,
                             struct wh_text *remarks);
void wh_open_model_close(struct wh_open_model *m);

#endif
