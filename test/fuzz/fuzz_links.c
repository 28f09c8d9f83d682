/* Files of `wanhe tune`. What is accepted makes sense to who predicts with it, and is the same after it was written and
 * read again. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "coll/links.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct wh_coll_links l, again;
    struct wh_text text = {0}, second = {0};
    if (wh_coll_links_parse((const char *)data, bytes, "fuzz", &l) != WH_OK) return 0;
    const struct wh_coll_request q = {WH_COLL_ALL_REDUCE, 3, 0, 1000, WH_F32, .in_place = true};
    struct wh_coll_choice choice;
    for (int w = 0; w < WH_COLL_WAY_COUNT; w++) WH_ASSERT(wh_coll_way_s(&l, &q, (enum wh_coll_way)w) >= 0);
    WH_ASSERT(wh_coll_choose(&l, &q, WH_COLL_SHARED, &(struct wh_coll_limits){true, UINT64_MAX}, &choice) == WH_OK);
    WH_ASSERT(choice.ranking.count == 0 || isfinite(choice.ranking.items[0].seconds));
    wh_coll_choice_free(&choice);
    wh_coll_links_write(&l, &text);
    WH_ASSERT(wh_coll_links_parse(text.data, text.bytes, "again", &again) == WH_OK);
    wh_coll_links_write(&again, &second);
    WH_ASSERT(strcmp(text.data, second.data) == 0);
    wh_text_fini(&text);
    wh_text_fini(&second);
    return 0;
}
