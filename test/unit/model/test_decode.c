/* Generation token by token gives the bits of the whole sequence at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include "model/decode.h"
#include "test/unit/model/tiny.h"

enum { TOKENS = 40 };

static void check(enum wh_family family, enum wh_dtype dtype) {
    struct tiny t = {.model = tiny_model(family)};
    struct wh_net net;
    struct wh_decoder d;
    float whole[64], step[64];
    assert_int_equal(wh_params_new(&t.model, &t.params), WH_OK);
    tiny_batch(&t, 1, TOKENS);
    struct wh_net_shape s = tiny_shape(&t);
    s.train = true, s.dtype = dtype, s.grain.data = 1; /* with a master, to have initial weights */
    assert_int_equal(wh_net_new(&s, &net), WH_OK);
    wh_net_init_weights(&net, 4);
    assert_int_equal(wh_decoder_new(&net, TOKENS, &d), WH_OK);
    for (uint32_t n = 1; n <= TOKENS; n++) {
        wh_decoder_feed(&d, t.ids[n - 1], step);
        wh_net_logits(&net, t.ids, n, whole);
        assert_memory_equal(step, whole, t.model.V * sizeof(float));
    }
    wh_decoder_free(&d);
    wh_net_free(&net);
    tiny_free(&t);
}

static void decoding_equals_the_whole(void **state) {
    (void)state;
    check(WH_GPT2, WH_F32);
    check(WH_LLAMA, WH_F32);
    check(WH_QWEN2, WH_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoding_equals_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
