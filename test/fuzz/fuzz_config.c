/* Run configurations: a text, and behind a zero byte an override. What is accepted is written out as the effective
 * configuration, which must be accepted too and mean the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_same(const struct wh_config *a, const struct wh_config *b) {
    struct wh_text x = {0}, y = {0};
    for (int k = 0; k < WH_KEY_COUNT; k++) {
        wh_config_value(a, (enum wh_config_key)k, &x);
        wh_config_value(b, (enum wh_config_key)k, &y);
    }
    WH_ASSERT(strcmp(x.data, y.data) == 0);
    wh_text_fini(&x);
    wh_text_fini(&y);
}

static void read_back(const struct wh_config *first) {
    struct wh_text effective = {0};
    struct wh_faults faults = {0};
    struct wh_config second;
    wh_config_effective(first, &effective);
    wh_config_parse(effective.data, effective.bytes, "effective", NULL, 0, &second, &faults);
    wh_config_check(&second, &faults);
    WH_ASSERT(faults.count == 0);
    expect_same(first, &second);
    wh_text_fini(&effective);
    wh_config_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t bytes = zero ? (size_t)(zero - data) : size;
    char *set = zero ? strndup((const char *)zero + 1, size - bytes - 1) : NULL;
    const char *sets[] = {set};
    struct wh_faults faults = {0};
    struct wh_config c;
    wh_config_parse((const char *)data, bytes, "fuzz", sets, set != NULL, &c, &faults);
    wh_config_check(&c, &faults);
    if (faults.count == 0) read_back(&c);
    wh_faults_status(&faults, WH_CONFIG);
    wh_config_free(&c);
    free(set);
    return 0;
}
