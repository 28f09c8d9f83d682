/* The step-* folders of a run's checkpoints folder: names, order, completeness. Private to this folder. */
#ifndef WH_CKPT_STEPS_H
#define WH_CKPT_STEPS_H

#include "ckpt/checkpoint.h"

/* FOLDER/step-00000040; malloc'd. */
char *wh_ckpt_step_path(const char *folder, uint64_t step);

/* Exactly what wh_ckpt_step_path makes; nothing else counts as a checkpoint. */
bool wh_ckpt_step_from_name(const char *name, uint64_t *step);

/* The steps that have a folder, ascending, complete or not; malloc'd. A folder that isn't there has none. */
enum wh_status wh_ckpt_steps(const char *folder, uint64_t **steps, size_t *count);

/* Is the folder of `step` a complete checkpoint of that step? */
enum wh_status wh_ckpt_step_check(const char *folder, uint64_t step);

/* Removes what a crash left behind (step-*.part, step-*.replaced). What can't be removed is remarked, here and below: a
 * checkpoint that was saved is no failure because an old one stays. */
void wh_ckpt_clean(const char *folder, struct wh_text *remarks);

/* After `step` was saved: renames complete later ones to step-N.ahead and removes incomplete ones, then removes all
 * folders older than the newest `keep_last` complete ones up to `step` (0: none). */
void wh_ckpt_retain(const char *folder, uint64_t step, uint32_t keep_last, struct wh_text *remarks);

/* Adds a line if the caller wants remarks. */
void wh_ckpt_remark(struct wh_text *remarks, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
