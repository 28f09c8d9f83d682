#include "arch/grain.h"

static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b) {
        uint32_t r = a % b;
        a = b, b = r;
    }
    return a;
}

void wh_grain_defaults(const struct wh_model *m, uint32_t global_batch, struct wh_grain *g) {
    if (g->tensor == 0) g->tensor = gcd(gcd(gcd(m->H, m->Hkv), m->F), 8);
    if (g->data == 0) g->data = gcd(global_batch, 8);
    if (g->sequence == 0) g->sequence = 1;
}

static void check_divides(uint32_t divisor, uint32_t n, const char *key, const char *what, struct wh_faults *faults) {
    if (divisor == 0 || n % divisor != 0)
        wh_faults_add(faults, NULL, 0, "%s %u does not divide %s %u; nearest legal: %u", key, divisor, what, n,
                      gcd(divisor, n));
}

void wh_grain_check(const struct wh_grain *g, const struct wh_model *m, uint32_t global_batch, uint32_t T,
                    struct wh_faults *faults) {
    check_divides(g->tensor, m->H, "grain.tensor", "the number of attention heads", faults);
    check_divides(g->tensor, m->Hkv, "grain.tensor", "the number of key-value heads", faults);
    check_divides(g->tensor, m->F, "grain.tensor", "the feed-forward width", faults);
    check_divides(g->data, global_batch, "grain.data", "the global batch", faults);
    if (g->sequence == 0 || (g->sequence & (g->sequence - 1)) || g->sequence > T)
        wh_faults_add(faults, NULL, 0, "grain.sequence %u must be a power of two from 1 to the sequence length %u",
                      g->sequence, T);
}
