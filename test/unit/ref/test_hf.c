/* The fixtures in Hugging Face's layout (ref/make_hf_fixture.py) against the oracle: weights taken by their published
 * names, the oracle's logits against the stored ones. So the importer's test compares with numbers that two programs
 * agree on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../ref/vectors.c"
#include "../../../ref/wanhe_ref.c"

enum { FILES = 3 };

static const double bound = 1e-12; /* of the absolute difference; measured 4e-15 */

/* Our name, Llama's and GPT-2's. "1:" .. "3:" in front: that third of the columns of a fused matrix. GPT-2's matrices
 * inside layers are [in, out]. */
static const char *const names[][3] = {
    {"embed.token.weight", "model.embed_tokens.weight", "wte.weight"},
    {"embed.position.weight", NULL, "wpe.weight"},
    {"final.norm.gain", "model.norm.weight", "ln_f.weight"},
    {"final.norm.bias", NULL, "ln_f.bias"},
    {"head.weight", "lm_head.weight", NULL},
    {"attn.norm.gain", "input_layernorm.weight", "ln_1.weight"},
    {"attn.norm.bias", NULL, "ln_1.bias"},
    {"attn.q.weight", "self_attn.q_proj.weight", "1:attn.c_attn.weight"},
    {"attn.k.weight", "self_attn.k_proj.weight", "2:attn.c_attn.weight"},
    {"attn.v.weight", "self_attn.v_proj.weight", "3:attn.c_attn.weight"},
    {"attn.q.bias", "self_attn.q_proj.bias", "1:attn.c_attn.bias"},
    {"attn.k.bias", "self_attn.k_proj.bias", "2:attn.c_attn.bias"},
    {"attn.v.bias", "self_attn.v_proj.bias", "3:attn.c_attn.bias"},
    {"attn.o.weight", "self_attn.o_proj.weight", "attn.c_proj.weight"},
    {"attn.o.bias", NULL, "attn.c_proj.bias"},
    {"mlp.norm.gain", "post_attention_layernorm.weight", "ln_2.weight"},
    {"mlp.norm.bias", NULL, "ln_2.bias"},
    {"mlp.gate.weight", "mlp.gate_proj.weight", NULL},
    {"mlp.up.weight", "mlp.up_proj.weight", "mlp.c_fc.weight"},
    {"mlp.up.bias", NULL, "mlp.c_fc.bias"},
    {"mlp.down.weight", "mlp.down_proj.weight", "mlp.c_proj.weight"},
    {"mlp.down.bias", NULL, "mlp.c_proj.bias"},
};

struct fixture {
    struct vectors files[FILES]; /* the weights */
    int count, gpt2;
    const char *prefix;
};

static void fixture_open(const char *folder, struct fixture *f) {
    char path[160];
    *f = (struct fixture){.gpt2 = strncmp(folder, "gpt2", 4) == 0, .prefix = ""};
    if (strcmp(folder, "gpt2-prefix-f16") == 0) f->prefix = "transformer.";
    snprintf(path, sizeof path, "test/golden/hf/%s/model.safetensors", folder);
    f->count = vectors_open(path, &f->files[0]);
    if (f->count) return;
    for (f->count = 0; f->count < FILES; f->count++) {
        snprintf(path, sizeof path, "test/golden/hf/%s/model-%05d-of-%05d.safetensors", folder, f->count + 1, FILES);
        assert_true(vectors_open(path, &f->files[f->count]));
    }
}

static void published_name(const struct fixture *f, const char *ours, char out[128], int *third) {
    int layer = -1, skip = 0;
    const char *name = NULL;
    if (sscanf(ours, "layer.%d.%n", &layer, &skip) == 1) ours += skip;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], ours) == 0) name = names[i][f->gpt2 ? 2 : 1];
    assert_non_null(name);
    *third = name[1] == ':' ? name[0] - '1' : -1;
    if (*third >= 0) name += 2;
    if (layer < 0)
        snprintf(out, 128, "%s%s", f->prefix, name);
    else
        snprintf(out, 128, f->gpt2 ? "%sh.%d.%s" : "%smodel.layers.%d.%s", f->prefix, layer, name);
}

static void take(const struct fixture *f, struct ref_tensor *t) {
    char name[128];
    struct vector stored;
    int third, found = 0;
    published_name(f, t->name, name, &third);
    for (int i = 0; i < f->count && !found; i++) found = vectors_find(&f->files[i], name, &stored);
    if (!found) fail_msg("no tensor %s", name);
    assert_int_equal(stored.elems, t->elems * (third < 0 ? 1 : 3));
    int transposed = f->gpt2 && t->cols > 1 && strncmp(t->name, "layer.", 6) == 0;
    int stride = third < 0 ? t->rows : 3 * t->rows, begin = third < 0 ? 0 : third * t->rows;
    for (int o = 0; o < t->rows; o++)
        for (int i = 0; i < t->cols; i++) {
            int at = transposed ? i * stride + begin + o : (begin + o) * t->cols + i;
            t->w[o * t->cols + i] = (float)vector_get(&stored, (size_t)at);
        }
}

static void logits_agree(void **state) {
    const char *folder = *state;
    char path[160];
    struct fixture f;
    struct vectors v;
    struct vector want;
    fixture_open(folder, &f);
    snprintf(path, sizeof path, "test/golden/hf/%s/logits.safetensors", folder);
    assert_true(vectors_open(path, &v));
    assert_true(vectors_find(&v, "logits", &want));

    struct ref_config c = vectors_config(&v);
    struct ref *r = ref_new(&c, 1);
    struct ref_tensor *t;
    for (int i = 0; (t = ref_tensor_at(r, i)); i++) take(&f, t);
    int32_t *ids = vectors_ints(&v, "ids");
    ref_forward(r, (int)want.shape[0], (int)want.shape[1], ids, ids, NULL);
    double worst = 0.0;
    for (size_t i = 0; i < want.elems; i++) worst = fmax(worst, fabs(ref_logits(r)[i] - vector_get(&want, i)));
    print_message("%s: logits %.1e (absolute)\n", folder, worst);
    assert_true(worst <= bound);

    free(ids);
    ref_free(r);
    vectors_close(&v);
    for (int i = 0; i < f.count; i++) vectors_close(&f.files[i]);
}

#define CASE(name) \
    { name, logits_agree, NULL, NULL, (void *)name }

int main(void) {
    const struct CMUnitTest tests[] = {CASE("gpt2"),        CASE("gpt2-prefix-f16"), CASE("llama"),
                                       CASE("llama3-tied"), CASE("llama-sharded"),   CASE("qwen2-bf16")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
