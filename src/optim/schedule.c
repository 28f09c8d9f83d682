#include "optim/schedule.h"

#define FP_FAST_FMA /* else sleef.h does not declare its scalar functions over fma */
#include <sleef.h>

#define PI 3.14159265358979323846

double wh_schedule_rate(const struct wh_config_lr *lr, uint64_t update) {
    if (update < lr->warmup_steps) return lr->peak * (double)update / (double)lr->warmup_steps;
    if (lr->style == WH_LR_CONSTANT || update <= lr->decay_start) return lr->peak;
    uint64_t into = update - lr->decay_start;
    if (into >= lr->decay_steps) return lr->floor;
    double p = (double)into / (double)lr->decay_steps;
    if (lr->style == WH_LR_COSINE)
        return lr->floor + 0.5 * (lr->peak - lr->floor) * (1.0 + Sleef_finz_cosd1_u10purecfma(PI * p));
    return lr->peak + (lr->floor - lr->peak) * p;
}
