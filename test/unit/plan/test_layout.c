#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#include "arch/owners.h"
#include "arch/part.h"
#include "plan/layout.h"

static const char text[] =
    "model: {dtype: bfloat16, model_config: {model_type: llama, hidden_size: 64, intermediate_size: 192, "
    "num_hidden_layers: 10, num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 1003}}\n"
    "tokens: {global_batch_size: 120, sequence_length: 32, train_steps: 20}\n"
    "data: {train: a.txt}\n"
    "grain: {tensor: 4, data: 120, sequence: 4}\n";

static void load(const char *sets, struct wh_config *c, struct wh_faults *faults) {
    const char *list[8];
    char words[512];
    size_t count = 0;
    snprintf(words, sizeof words, "%s", sets);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) list[count++] = w;
    *faults = (struct wh_faults){0};
    wh_config_parse(text, sizeof text - 1, "run.yaml", list, count, c, faults);
    c->purpose = WH_CONFIG_TO_PLAN;
    wh_config_check(c, faults);
}

/* The ranks of a data group share one line out: equal ones hold the same, the owned parts make up the line. */
static void check_group(const struct wh_layout *l, uint32_t group, uint64_t copied) {
    const uint32_t size = wh_mesh_group_size(&l->mesh, WH_AXIS_DATA), zero = l->zero_stage;
    const struct wh_layout_rank *first = &l->rank[wh_mesh_group_member(&l->mesh, WH_AXIS_DATA, group, 0)];
    uint64_t owned = 0;
    for (uint32_t d = 0; d < size; d++) {
        const struct wh_layout_rank *k = &l->rank[wh_mesh_group_member(&l->mesh, WH_AXIS_DATA, group, d)];
        owned += k->owned_elems;
        assert_int_equal(k->params, first->params);
        assert_int_equal(k->line_elems, first->line_elems);
        assert_int_equal(k->optimizer_bytes, 12 * k->owned_elems); /* m, v, master */
        assert_int_equal(k->weight_bytes, 2 * (zero >= 3 ? k->owned_elems : k->line_elems) + 2 * copied);
        assert_int_equal(k->grad_bytes, 4 * (zero >= 2 ? k->owned_elems : k->line_elems));
    }
    assert_int_equal(owned, zero >= 1 ? first->line_elems : first->line_elems * size);
    assert_true(first->line_elems + copied >= first->params && first->line_elems % WH_PARAM_ALIGN == 0);
}

/* A rank that holds the whole model owns what the training step gives it. */
static void check_owners(const struct wh_config *c, const struct wh_params *p, const struct wh_layout *l) {
    size_t border[16];
    assert_int_equal(wh_owners(p, c->grain.tensor, l->mesh.world, border), WH_OK);
    for (uint32_t r = 0; r < l->mesh.world; r++) {
        assert_int_equal(l->rank[r].line_elems, p->buffer_elems);
        assert_int_equal(l->rank[r].owned_elems, l->zero_stage >= 1 ? border[r + 1] - border[r] : p->buffer_elems);
    }
}

/* Every parameter has an owner for each of its copies: tensor ranks replicate what is not cut, the last stage a tied
 * embedding; nothing else is there twice. */
static void check(const char *sets, bool tied, uint32_t zero) {
    struct wh_config c;
    struct wh_faults faults;
    struct wh_layout l;
    struct wh_params p;
    char all[512];
    snprintf(all, sizeof all, "%s optimizer.zero_stage=%u model.model_config.tie_word_embeddings=%s", sets, zero,
             tied ? "true" : "false");
    load(all, &c, &faults);
    if (faults.count) fail_msg("%s", faults.text.data);
    assert_int_equal(wh_layout_new(&c, &(struct wh_layout_options){0}, &l), WH_OK);
    assert_int_equal(wh_params_new(&c.arch, &p), WH_OK);
    uint64_t held = 0;
    const uint64_t table = tied && c.parallelism.pp > 1 ? wh_params_find(&p, WH_P_EMBED_TOKEN, -1)->elems : 0;
    uint64_t copied = 0; /* in all */
    for (uint32_t g = 0; g < wh_mesh_group_count(&l.mesh, WH_AXIS_DATA); g++) {
        const uint32_t rank = wh_mesh_group_member(&l.mesh, WH_AXIS_DATA, g, 0);
        const struct wh_mesh_place place = wh_mesh_place(&l.mesh, rank);
        const uint64_t copy = table && place.pp == 0 ? wh_param_held_elems(wh_params_find(&p, WH_P_EMBED_TOKEN, -1),
                                                                           c.grain.tensor, c.parallelism.tp, place.tp)
                                                     : 0;
        check_group(&l, g, copy);
        held += l.rank[rank].params;
        copied += copy;
    }
    /* two gains of C a layer and the last one */
    const uint64_t replicated = (uint64_t)(c.parallelism.tp - 1) * c.arch.C * (2 * c.arch.L + 1);
    assert_int_equal(copied, table);
    assert_int_equal(held, p.elems + replicated + copied);
    if (c.parallelism.tp == 1 && c.parallelism.pp == 1) check_owners(&c, &p, &l);
    wh_params_free(&p);
    wh_layout_free(&l);
    wh_config_free(&c);
}

static void test_all_owned(void **state) {
    (void)state;
    static const char *const sets[] = {
        "parallelism.dp=1",
        "parallelism.dp=3",
        "parallelism.dp=5 parallelism.cp=2",
        "parallelism.dp=5 parallelism.tp=2",
        "parallelism.dp=2 parallelism.cp=4 parallelism.tp=4 parallelism.pp=3",
        "parallelism.dp=7 parallelism.pp=10 grain.data=140 tokens.global_batch_size=140",
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (uint32_t zero = 0; zero <= 3; zero++) {
            check(sets[i], false, zero);
            check(sets[i], true, zero);
        }
}

static void expect_range(struct wh_range r, size_t begin, size_t end) {
    assert_int_equal(r.begin, begin);
    assert_int_equal(r.end, end);
}

/* Of 8 heads, 4 key-value heads, 192 channels, 1,003 tokens and `T` positions: those of rank t. */
static void check_slices(const char *sets, uint32_t t, const struct wh_layout_slices *want) {
    struct wh_config c;
    struct wh_faults faults;
    struct wh_layout l;
    struct wh_params p;
    load(sets, &c, &faults);
    if (faults.count) fail_msg("%s", faults.text.data);
    assert_int_equal(wh_layout_new(&c, &(struct wh_layout_options){0}, &l), WH_OK);
    assert_int_equal(wh_params_new(&c.arch, &p), WH_OK);
    const struct wh_layout_slices *s = &l.slices[t];
    expect_range(s->heads, want->heads.begin, want->heads.end);
    expect_range(s->kv_heads, want->kv_heads.begin, want->kv_heads.end);
    expect_range(s->channels, want->channels.begin, want->channels.end);
    expect_range(s->tokens, want->tokens.begin, want->tokens.end);
    expect_range(s->positions, want->positions.begin, want->positions.end);
    assert_int_equal((s->tokens.end - s->tokens.begin) * c.arch.C, /* what the parameters were counted with */
                     wh_param_held_elems(wh_params_find(&p, WH_P_EMBED_TOKEN, -1), 4, c.parallelism.tp, t));
    wh_params_free(&p);
    wh_layout_free(&l);
    wh_config_free(&c);
}

static void test_slices(void **state) {
    struct wh_layout_slices s = {{0, 8}, {0, 4}, {0, 192}, {0, 1003}, {0, 32}};
    (void)state;
    check_slices("parallelism.dp=2 parallelism.tp_mode=REDUCE_SCATTER", 0, &s); /* one tensor rank has all */
    s = (struct wh_layout_slices){{4, 8}, {2, 4}, {96, 192}, {502, 1003}, {0, 32}};
    check_slices("parallelism.tp=2 parallelism.pp=2", 1, &s);
    s = (struct wh_layout_slices){{4, 6}, {2, 3}, {96, 144}, {502, 753}, {15, 22}};
    check_slices("parallelism.tp=4 parallelism.dp=2 parallelism.tp_mode=REDUCE_SCATTER tokens.sequence_length=30", 2,
                 &s);
    s = (struct wh_layout_slices){{6, 8}, {3, 4}, {144, 192}, {753, 1003}, {22, 30}};
    check_slices("parallelism.tp=4 parallelism.dp=2 parallelism.tp_mode=REDUCE_SCATTER tokens.sequence_length=30", 3,
                 &s);
    s.positions = (struct wh_range){0, 0}; /* context ranks would cut them, too */
    check_slices("parallelism.tp=4 parallelism.dp=2 parallelism.cp=2 parallelism.tp_mode=REDUCE_SCATTER", 3, &s);
}

static void refuses(const char *sets, const char *want) {
    struct wh_config c;
    struct wh_faults faults;
    load(sets, &c, &faults);
    assert_true(faults.count > 0);
    if (!strstr(faults.text.data, want)) fail_msg("'%s' does not say '%s'", faults.text.data, want);
    (void)wh_faults_status(&faults, WH_CONFIG);
    wh_config_free(&c);
}

static void test_refused(void **state) {
    (void)state;
    refuses("parallelism.tp=3", "--set: parallelism.tp 3 does not divide grain.tensor 4; nearest legal: 2");
    refuses("parallelism.tp=8", "parallelism.tp 8 does not divide grain.tensor 4; nearest legal: 4");
    refuses("parallelism.dp=8 grain.data=12", "parallelism.dp 8 does not divide grain.data 12; nearest legal: 6");
    refuses("parallelism.cp=8", "parallelism.cp 8 does not divide grain.sequence 4; nearest legal: 4");
    refuses("parallelism.pp=11", "parallelism.pp 11 with 1 stage each is above num_hidden_layers 10");
    refuses("parallelism.dp=4 parallelism.expert_parallel_size=3", "ep 3 does not divide dp 4 * cp 1 = 4");
    refuses("parallelism.dp=4 parallelism.expert_parallel_size=2", "the model has no experts");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_owned), cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
