/* Every unit is there when it is read, is gathered no more often than slots force, and buckets cover what is reduced once,
 * in the order in which the backward pass completes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sched/zero.h"

enum { LAYERS_MAX = 9 };

static void borders(uint32_t layers, size_t *border) {
    border[0] = 0, border[1] = 1000;
    for (uint32_t l = 0; l < layers; l++) border[l + 2] = border[l + 1] + 300;
    border[layers + 2] = border[layers + 1] + 77;
}

static struct wh_zero_plan new_plan(uint32_t stage, uint32_t layers, bool tied, size_t bucket, uint32_t prefetch,
                                    bool by_unit) {
    size_t border[LAYERS_MAX + 3];
    struct wh_zero_plan p;
    uint32_t train[4 * LAYERS_MAX + 8], eval[LAYERS_MAX + 3], reads = 0, count = 0;
    borders(layers, border);
    for (int micro = 0; micro < 2; micro++) {
        for (uint32_t u = 0; u <= layers; u++) train[reads++] = u;
        if (tied) train[reads++] = 0;
        for (uint32_t u = layers + 1; u >= 1; u--) train[reads++] = u;
    }
    for (uint32_t u = 0; u <= layers; u++) eval[count++] = u;
    if (tied) eval[count++] = 0;
    eval[count++] = layers + 1;
    const struct wh_zero_shape shape = {stage,    layers,  border, tied, 900,   bucket,
                                        prefetch, by_unit, train,  eval, reads, count};
    assert_int_equal(wh_zero_plan_new(&shape, &p), WH_OK);
    return p;
}

/* Which unit's data a slot really holds, as an engine would fill it. */
struct memory {
    uint32_t slot[64];
};

static void read_pass(struct wh_zero_plan *p, struct memory *m, bool train, uint64_t *gathers) {
    uint32_t units[64];
    for (uint32_t i = 0; i < wh_zero_reads(p, train); i++) {
        const uint32_t n = wh_zero_need(p, train, i, units), unit = wh_zero_read(p, train, i);
        assert_true(n <= p->shape.prefetch + 1);
        for (uint32_t k = 0; k < n; k++) m->slot[wh_zero_slot(p, units[k])] = units[k];
        *gathers += n;
        assert_int_equal(m->slot[wh_zero_slot(p, unit)], unit);
    }
}

static void units_are_there(void **state) {
    (void)state;
    for (uint32_t stage = 1; stage <= 3; stage++)
        for (uint32_t layers = 1; layers <= LAYERS_MAX; layers++)
            for (uint32_t prefetch = 0; prefetch <= 12; prefetch++)
                for (int tied = 0; tied < 2; tied++) {
                    struct wh_zero_plan p = new_plan(stage, layers, tied, 1 << 20, prefetch, false);
                    struct memory m = {0};
                    for (int step = 0; step < 3; step++) {
                        uint64_t gathers = 0;
                        memset(&m, 0xff, sizeof m);
                        read_pass(&p, &m, true, &gathers); /* two micro-batches */
                        read_pass(&p, &m, false, &gathers);
                        if (stage < 3) assert_int_equal(gathers, layers + 2);
                        if (stage == 3 && prefetch == 0 && layers > 1 && !tied)
                            assert_int_equal(gathers, 2 * (2 * layers - 2) + 1 + (layers - 1) + 3 * 2);
                        wh_zero_updated(&p);
                    }
                    wh_zero_plan_free(&p);
                }
}

static void buckets_cover_once(void **state) {
    (void)state;
    for (uint32_t layers = 1; layers <= LAYERS_MAX; layers++)
        for (size_t bucket = 1; bucket < 4000; bucket = bucket * 3 + 1)
            for (int k = 0; k < 4; k++) {
                struct wh_zero_plan p = new_plan(2, layers, k & 1, bucket, 1, k & 2);
                size_t border[LAYERS_MAX + 3];
                unsigned char *seen = calloc(1, 8000);
                borders(layers, border);
                for (uint32_t i = 0; i < p.bucket_count; i++) {
                    const struct wh_zero_bucket *b = &p.bucket[i];
                    assert_true(b->first < b->end && b->end - b->first <= bucket);
                    if (i > 0) assert_true(b->unit <= p.bucket[i - 1].unit);
                    for (size_t e = b->first; e < b->end; e++) {
                        assert_int_equal(seen[e]++, 0);
                        if (e >= border[1]) assert_true(e >= border[b->unit]); /* complete by then */
                        if (k & 2 && e >= border[1]) assert_true(e < border[b->unit + 1]);
                    }
                }
                for (size_t e = 0; e < border[layers + 2]; e++)
                    assert_int_equal(seen[e], e >= border[1] || (k & 1 && e < 900));
                free(seen);
                wh_zero_plan_free(&p);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(units_are_there), cmocka_unit_test(buckets_cover_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
