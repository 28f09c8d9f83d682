/* Between checkpoints and the memory of a session or net. */
#ifndef WH_RUN_WEIGHTS_H
#define WH_RUN_WEIGHTS_H

#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "run/session.h"

/* Saves where the session stands into `run`, keeping the newest checkpoints.keep_last. All ranks of a team call it. */
enum wh_status wh_weights_save(const struct wh_session *s, const char *run, struct wh_text *remarks);

/* Sets the session to a checkpoint: weights, moments, step, data position. Errors: CONFIG if seed or grain differ from
 * the configuration's (they would change the numbers), DAMAGED, naming an older one that is whole. */
enum wh_status wh_weights_resume(struct wh_session *s, const char *folder);

/* Weights alone, into a net with or without master weights. Errors: as wh_ckpt_load, NOMEM. */
enum wh_status wh_weights_load(struct wh_net *net, const char *folder);

#endif
