/* The learning rate as a function of the update's number, and of nothing else: no state to save, none to restore twice
 * (case B36).
 *
 *     t <= warmup              peak * t / warmup                        (t = 1, 2, ...: the first update has a rate)
 *     t <= decay_start         peak
 *     t >= decay_start + n     floor                                    (n = decay_steps)
 *     between, p = (t - decay_start) / n
 *       linear, wsd            peak + (floor - peak) * p
 *       cosine                 floor + (peak - floor) * (1 + cos(pi p)) / 2
 *     constant                 no decay
 *
 *      peak   ____
 *            /    \___         linear: decay_start = warmup by default; wsd: train_steps - decay_steps
 *      0    /         \____ floor */
#ifndef WH_OPTIM_SCHEDULE_H
#define WH_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "config/config.h"

/* `update` >= 1. Double throughout, cosine from SLEEF: equal bits on every machine. */
double wh_schedule_rate(const struct wh_config_lr *lr, uint64_t update);

#endif
