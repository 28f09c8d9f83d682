/* Hugging Face folders through import and the engine: the logits that PyTorch computed from the same files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/hf.h"
#include "model/net.h"
#include "ref/vectors.h"

/* fp32 engine against a double model, relative to the largest logit; measured maxima are printed. */
static const double bound = 2e-6;

static void check(const char *name) {
    char folder[128], path[160];
    struct wh_hf_config config;
    struct wh_params params;
    struct wh_net net;
    struct vectors v;
    struct vector want;
    snprintf(folder, sizeof folder, "test/golden/hf/%s", name);
    snprintf(path, sizeof path, "%s/logits.safetensors", folder);
    assert_true(vectors_open(path, &v));
    assert_true(vectors_find(&v, "logits", &want));
    int32_t *ids = vectors_ints(&v, "ids");
    const size_t B = want.shape[0], T = want.shape[1], V = want.shape[2];

    assert_int_equal(wh_hf_read_config(folder, &config, NULL), WH_OK);
    assert_int_equal(config.model.V, V);
    assert_int_equal(wh_params_new(&config.model, &params), WH_OK);
    const struct wh_net_shape shape = {.model = &config.model,
                                       .params = &params,
                                       .grain = {2, 1, 1},
                                       .T = (uint32_t)T,
                                       .micro_batch = 1,
                                       .global_batch = 1,
                                       .threads = 1};
    assert_int_equal(wh_net_new(&shape, &net), WH_OK);
    assert_int_equal(wh_hf_import(folder, &config.model, &params, net.master, NULL), WH_OK);
    float *logits = malloc(V * sizeof *logits);
    double worst = 0.0, largest = 0.0;
    for (size_t b = 0; b < B; b++)
        for (size_t t = 0; t < T; t++) {
            wh_net_logits(&net, (const uint32_t *)ids + b * T, (uint32_t)t + 1, logits);
            for (size_t i = 0; i < V; i++) {
                const double w = vector_get(&want, (b * T + t) * V + i);
                worst = fmax(worst, fabs((double)logits[i] - w));
                largest = fmax(largest, fabs(w));
            }
        }
    print_message("%-18s largest deviation %.1e of %.2f\n", name, worst, largest);
    assert_true(largest > 0.1);
    assert_true(worst <= bound * largest);
    free(logits);
    free(ids);
    wh_net_free(&net);
    wh_params_free(&params);
    vectors_close(&v);
}

static void imported_models_give_the_logits_of_pytorch(void **state) {
    (void)state;
    check("gpt2");
    check("gpt2-prefix-f16");
    check("llama");
    check("llama-sharded");
    check("llama3-tied");
    check("qwen2-bf16");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(imported_models_give_the_logits_of_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
