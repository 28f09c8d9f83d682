/* Schedule files. What is accepted reads back the same after it was written, and is checked to the end; what the checker
 * finds right can be executed with endless queues, too. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sched/check.h"
#include "sched/format.h"
#include "sched/timing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_back(const struct wh_sched_plan *first) {
    struct wh_text text = {0}, again = {0};
    struct wh_faults faults = {0};
    struct wh_sched_plan second;
    wh_sched_print(first, false, &text);
    WH_ASSERT(wh_sched_parse(text.data, text.bytes, "again", &second, &faults));
    wh_sched_print(&second, false, &again);
    WH_ASSERT(strcmp(text.data, again.data) == 0);
    wh_text_fini(&text);
    wh_text_fini(&again);
    wh_sched_plan_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wh_faults faults = {0};
    struct wh_sched_plan p;
    if (wh_sched_parse((const char *)data, size, "fuzz", &p, &faults)) {
        struct wh_sched_timing t;
        read_back(&p);
        if (wh_sched_check(&p, WH_SCHED_DEPTH, "fuzz", &faults)) {
            WH_ASSERT(wh_sched_time(&p, &(struct wh_sched_cost){1, 2, 1, 1}, UINT32_MAX, &t) == WH_OK && !t.stuck);
            wh_sched_timing_free(&t);
        }
        wh_sched_plan_free(&p);
    }
    wh_faults_status(&faults, WH_CONFIG);
    return 0;
}
