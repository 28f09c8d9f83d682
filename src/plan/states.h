/* Bytes of the model states of one data-parallel rank: weights, gradients, optimizer states, by ZeRO stage. The formula of
 * the ZeRO paper (Rajbhandari et al. 2020, section 3.1, figure 1); with bf16 weights and gradients (2 + 2 bytes a
 * parameter) and fp32 master weights and two moments (12):
 *
 *     stage 0   16 P          1   4 P + 12 P / N          2   2 P + 14 P / N          3   16 P / N
 *
 * 7e9 parameters on 8 ranks: 112, 38.5, 26.25, 14 GB. Activations, logits, pending sums, buffers are other rows. */
#ifndef WH_PLAN_STATES_H
#define WH_PLAN_STATES_H

#include <stdint.h>

#include "base/dtype.h"

struct wh_state_bytes {
    uint64_t weights;   /* in the compute dtype */
    uint64_t gradients; /* in theirs */
    uint64_t optimizer; /* two moments, and fp32 master weights where the compute weights are bf16 */
};

/* `all` elements, of which the rank owns `own` (stage 0: not read). */
struct wh_state_bytes wh_state_bytes(uint64_t all, uint64_t own, uint32_t zero_stage, enum wh_dtype weights,
                                     enum wh_dtype gradients);

#endif
