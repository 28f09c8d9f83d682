/* Works out what was left out and checks rules across keys. A rule whose keys are faulty themselves is skipped. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "config/check_int.h"
#include "mesh/mesh.h"
#include "sched/gradsum.h"

enum { TRACE_STEPS_MAX = 1000 };

static bool require(struct check *x, enum wh_config_key k) {
    if (faulty(x->c, k)) return false;
    if (given(x->c, k) && !wh_config_is_null(x->c, k)) return true;
    fault(x, k, "%s is missing: %s", path(k), wh_config_rows[k].help);
    return false;
}

/* --- ranks --- */

static void check_not_built(struct check *x, enum wh_config_key k, uint32_t value) {
    if (value != 1) fault(x, k, "%s %u is not built yet; nearest legal: 1", path(k), value);
}

static void check_ranks(struct check *x) {
    const struct wh_config *c = x->c;
    if (c->purpose == WH_CONFIG_TO_PLAN) return;
    check_not_built(x, WH_KEY_CP, c->parallelism.cp);
    check_not_built(x, WH_KEY_EP, c->parallelism.ep);
}

struct wh_mesh_degrees wh_config_degrees(const struct wh_config *c) {
    return (struct wh_mesh_degrees){c->parallelism.dp, c->parallelism.cp, c->parallelism.tp, c->parallelism.pp,
                                    c->parallelism.ep};
}

uint32_t wh_config_ranks(const struct wh_config *c) {
    return c->parallelism.dp * c->parallelism.cp * c->parallelism.tp * c->parallelism.pp;
}

/* --- batch: global = micro * accumulation * dp --- */

/* Case B19: never truncated; shows all factors, the remainder and the nearest legal sizes. */
static void work_out_factor(struct check *x, enum wh_config_key left_out, uint32_t *result, enum wh_config_key other,
                            uint32_t factor) {
    struct wh_config *c = x->c;
    uint32_t dp = c->parallelism.dp, global = c->tokens.global_batch;
    uint64_t step = (uint64_t)factor * dp;
    uint32_t rest = (uint32_t)(global % step);
    char why[64], nearest[64];
    if (rest == 0) {
        *result = (uint32_t)(global / step);
        derived(c, left_out);
        return;
    }
    if (global < step) {
        snprintf(why, sizeof why, "%u < %" PRIu64, global, step);
        snprintf(nearest, sizeof nearest, "%" PRIu64, step);
    } else {
        snprintf(why, sizeof why, "%u mod %" PRIu64 " = %u", global, step, rest);
        snprintf(nearest, sizeof nearest, "%u or %" PRIu64, global - rest, global - rest + step);
    }
    fault(x, WH_KEY_GLOBAL_BATCH,
          "%s %u is not a multiple of %s %u * parallelism.dp %u = %" PRIu64 ": %s; nearest legal: %s",
          path(WH_KEY_GLOBAL_BATCH), global, path(other), factor, dp, step, why, nearest);
}

static void work_out_global(struct check *x) {
    struct wh_config *c = x->c;
    uint64_t global = (uint64_t)c->tokens.micro_batch * c->tokens.accumulation * c->parallelism.dp;
    if (global > wh_config_rows[WH_KEY_GLOBAL_BATCH].highest) {
        fault(x, WH_KEY_MICRO_BATCH,
              "%s %u * %s %u * parallelism.dp %u = %" PRIu64 " sequences are too many; the most is %.15g",
              path(WH_KEY_MICRO_BATCH), c->tokens.micro_batch, path(WH_KEY_ACCUMULATION), c->tokens.accumulation,
              c->parallelism.dp, global, wh_config_rows[WH_KEY_GLOBAL_BATCH].highest);
        return;
    }
    c->tokens.global_batch = (uint32_t)global;
    derived(c, WH_KEY_GLOBAL_BATCH);
}

static void check_product(struct check *x) {
    const struct wh_config *c = x->c;
    uint64_t product = (uint64_t)c->tokens.micro_batch * c->tokens.accumulation * c->parallelism.dp;
    if (product == c->tokens.global_batch) return;
    fault(x, WH_KEY_GLOBAL_BATCH,
          "%s %u != %s %u * %s %u * parallelism.dp %u = %" PRIu64 "; leave one of them out, or write %" PRIu64,
          path(WH_KEY_GLOBAL_BATCH), c->tokens.global_batch, path(WH_KEY_MICRO_BATCH), c->tokens.micro_batch,
          path(WH_KEY_ACCUMULATION), c->tokens.accumulation, c->parallelism.dp, product, product);
}

/* True if global, micro and accumulation are known afterwards. */
static bool check_batch(struct check *x) {
    struct wh_config *c = x->c;
    size_t faults_before = x->faults->count;
    if (faulty(c, WH_KEY_GLOBAL_BATCH) || faulty(c, WH_KEY_MICRO_BATCH) || faulty(c, WH_KEY_ACCUMULATION) ||
        faulty(c, WH_KEY_DP))
        return false;
    bool global = given(c, WH_KEY_GLOBAL_BATCH), micro = given(c, WH_KEY_MICRO_BATCH);
    bool accumulation = given(c, WH_KEY_ACCUMULATION);
    if (!global && !micro) {
        fault(x, WH_KEY_GLOBAL_BATCH, "%s is missing: sequences per step (or give %s and %s)",
              path(WH_KEY_GLOBAL_BATCH), path(WH_KEY_MICRO_BATCH), path(WH_KEY_ACCUMULATION));
        return false;
    }
    if (!accumulation && !(global && micro)) {
        c->tokens.accumulation = 1;
        derived(c, WH_KEY_ACCUMULATION);
        accumulation = true;
    }
    if (!global)
        work_out_global(x);
    else if (!micro)
        work_out_factor(x, WH_KEY_MICRO_BATCH, &c->tokens.micro_batch, WH_KEY_ACCUMULATION, c->tokens.accumulation);
    else if (!accumulation)
        work_out_factor(x, WH_KEY_ACCUMULATION, &c->tokens.accumulation, WH_KEY_MICRO_BATCH, c->tokens.micro_batch);
    else
        check_product(x);
    return x->faults->count == faults_before;
}

/* --- model --- */

static bool has_sizes(const struct wh_config *c) {
    for (int k = WH_KEY_MODEL_TYPE; k <= WH_KEY_DROP_RESID; k++)
        if (given(c, (enum wh_config_key)k)) return true;
    return false;
}

bool wh_config_wants_model(const struct wh_config *c) {
    return *c->model.config || (*c->model.init_from && !has_sizes(c));
}

/* Writes the family's value back, so that the effective configuration shows it. */
static void derive_u32(struct wh_config *c, enum wh_config_key k, uint32_t *field, uint32_t value) {
    if (given(c, k) || faulty(c, k)) return;
    *field = value;
    derived(c, k);
}

static void derive_real(struct wh_config *c, enum wh_config_key k, double *field, double value) {
    if (given(c, k) || faulty(c, k)) return;
    *field = value;
    derived(c, k);
}

static void derive_sizes(struct check *x) {
    struct wh_config *c = x->c;
    uint32_t C = c->model_config.hidden_size, H = c->model_config.num_attention_heads;
    if (c->model_config.model_type == WH_GPT2)
        derive_u32(c, WH_KEY_FEED_FORWARD, &c->model_config.intermediate_size, 4 * C);
    derive_u32(c, WH_KEY_KV_HEADS, &c->model_config.num_key_value_heads, H);
    if (!given(c, WH_KEY_HEAD_DIM) && H && C % H) {
        uint32_t nearest = H;
        while (C % nearest) nearest--;
        fault(x, WH_KEY_HEADS, "%s %u does not divide hidden_size %u; nearest legal: %u (or give head_dim)",
              path(WH_KEY_HEADS), H, C, nearest);
    } else if (H) {
        derive_u32(c, WH_KEY_HEAD_DIM, &c->model_config.head_dim, C / H);
    }
    if (!faulty(c, WH_KEY_SEQUENCE))
        derive_u32(c, WH_KEY_MAX_POSITION, &c->model_config.max_position_embeddings, c->tokens.sequence_length);
}

static void derive_switches(struct wh_config *c, const struct wh_model *family) {
    /* written as decimals: family->norm_eps is a float and would show as 9.99999975e-06 */
    derive_real(c, WH_KEY_NORM_EPS, &c->model_config.norm_eps, family->family == WH_QWEN2 ? 1e-6 : 1e-5);
    if (!family->learned_positions) derive_real(c, WH_KEY_ROPE_THETA, &c->model_config.rope_theta, family->rope.theta);
    if (!given(c, WH_KEY_TIED) && !faulty(c, WH_KEY_TIED)) {
        c->model_config.tie_word_embeddings = family->tied;
        derived(c, WH_KEY_TIED);
    }
    if (!given(c, WH_KEY_ACT) && !faulty(c, WH_KEY_ACT)) {
        c->model_config.hidden_act = family->gated ? WH_ACT_SILU : WH_ACT_GELU_NEW;
        derived(c, WH_KEY_ACT);
    }
}

static void check_family(struct check *x, const struct wh_model *family) {
    struct wh_config *c = x->c;
    const char *name = wh_family_name(family->family);
    bool silu = c->model_config.hidden_act == WH_ACT_SILU;
    if (!faulty(c, WH_KEY_ACT) && silu != family->gated)
        fault(x, WH_KEY_ACT, "%s does not fit model_type %s; legal: %s", path(WH_KEY_ACT), name,
              family->gated ? "silu" : "gelu_new, gelu_pytorch_tanh");
    if (family->family != WH_GPT2) return;
    for (int k = WH_KEY_ROPE_THETA; k <= WH_KEY_ROPE_ORIGINAL; k++)
        if (given(c, (enum wh_config_key)k) && (k != WH_KEY_ROPE_TYPE || c->model_config.rope_type != WH_ROPE_PLAIN))
            fault(x, (enum wh_config_key)k, "%s has no meaning for model_type gpt2, which has a position table",
                  path((enum wh_config_key)k));
    if (given(c, WH_KEY_KV_HEADS) && c->model_config.num_key_value_heads != c->model_config.num_attention_heads)
        fault(x, WH_KEY_KV_HEADS, "%s %u must be num_attention_heads %u for model_type gpt2", path(WH_KEY_KV_HEADS),
              c->model_config.num_key_value_heads, c->model_config.num_attention_heads);
}

static void check_rope(struct check *x) {
    const struct wh_config *c = x->c;
    enum wh_rope_kind kind = c->model_config.rope_type;
    int needed = kind == WH_ROPE_PLAIN ? 0 : kind == WH_ROPE_LINEAR ? 1 : 4;
    if (faulty(c, WH_KEY_ROPE_TYPE)) return;
    for (int i = 0; i < 4; i++) {
        enum wh_config_key k = (enum wh_config_key)(WH_KEY_ROPE_FACTOR + i);
        if (i < needed)
            require(x, k);
        else if (given(c, k))
            fault(x, k, "%s has no meaning with this rope_type", path(k));
    }
    if (needed == 4 && given(c, WH_KEY_ROPE_LOW) && given(c, WH_KEY_ROPE_HIGH) &&
        c->model_config.rope_high_freq_factor <= c->model_config.rope_low_freq_factor)
        fault(x, WH_KEY_ROPE_HIGH, "%s %g must be above low_freq_factor %g", path(WH_KEY_ROPE_HIGH),
              c->model_config.rope_high_freq_factor, c->model_config.rope_low_freq_factor);
}

static void fill_arch(const struct wh_config *c, struct wh_model *m) {
    m->V = c->model_config.vocab_size, m->C = c->model_config.hidden_size, m->L = c->model_config.num_hidden_layers;
    m->H = c->model_config.num_attention_heads, m->Hkv = c->model_config.num_key_value_heads;
    m->D = c->model_config.head_dim, m->F = c->model_config.intermediate_size;
    m->max_position = c->model_config.max_position_embeddings;
    m->tied = c->model_config.tie_word_embeddings;
    m->norm_eps = (float)c->model_config.norm_eps, m->init_std = (float)c->model_config.initializer_range;
    m->rope.theta = m->learned_positions ? m->rope.theta : c->model_config.rope_theta;
    m->rope.kind = c->model_config.rope_type, m->rope.factor = c->model_config.rope_factor;
    m->rope.low_freq_factor = c->model_config.rope_low_freq_factor;
    m->rope.high_freq_factor = c->model_config.rope_high_freq_factor;
    m->rope.original_max_position = c->model_config.rope_original_max_position;
    m->dropout_embed = (float)c->model_config.embd_pdrop;
    m->dropout_attention = (float)c->model_config.attn_pdrop;
    m->dropout_residual = (float)c->model_config.resid_pdrop;
}

static bool model_from_keys(struct check *x) {
    struct wh_config *c = x->c;
    struct wh_model family;
    size_t faults_before = x->faults->count;
    if (faulty(c, WH_KEY_MODEL_TYPE)) return false;
    wh_model_defaults(c->model_config.model_type, &family);
    static const enum wh_config_key needed[] = {WH_KEY_HIDDEN, WH_KEY_LAYERS, WH_KEY_HEADS, WH_KEY_VOCAB};
    bool complete = true;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) complete = require(x, needed[i]) && complete;
    if (c->model_config.model_type != WH_GPT2) complete = require(x, WH_KEY_FEED_FORWARD) && complete;
    derive_switches(c, &family);
    check_family(x, &family);
    check_rope(x);
    if (!complete) return false;
    derive_sizes(x);
    for (int k = WH_KEY_MODEL_TYPE; k <= WH_KEY_DROP_RESID; k++)
        if (faulty(c, (enum wh_config_key)k)) return false;
    if (x->faults->count != faults_before) return false;
    c->arch = family;
    fill_arch(c, &c->arch);
    return true;
}

/* True if c->arch is usable afterwards. */
static bool check_model(struct check *x) {
    struct wh_config *c = x->c;
    size_t faults_before = x->faults->count;
    if (has_sizes(c) && (*c->model.config || c->arch_given)) {
        fault(x, WH_KEY_MODEL_CONFIG, "the model is given twice, as a file and as model.model_config; leave one out");
        return false;
    }
    if (wh_config_wants_model(c) && !c->arch_given) { /* its reader has told why */
        if (x->faults->count == 0) fault(x, WH_KEY_MODEL_CONFIG, "the model was not read");
        return false;
    }
    if (!c->arch_given && !model_from_keys(x)) return false;
    wh_model_check(&c->arch, x->faults);
    if (!faulty(c, WH_KEY_SEQUENCE) && (uint64_t)c->tokens.global_batch * c->tokens.sequence_length > INT32_MAX)
        fault(x, WH_KEY_SEQUENCE, "%s %u * %s %u is more than %d tokens a step", path(WH_KEY_GLOBAL_BATCH),
              c->tokens.global_batch, path(WH_KEY_SEQUENCE), c->tokens.sequence_length, INT32_MAX);
    if (!faulty(c, WH_KEY_SEQUENCE) && c->tokens.sequence_length > c->arch.max_position)
        fault(x, WH_KEY_SEQUENCE, "%s %u is above max_position_embeddings %u; nearest legal: %u", path(WH_KEY_SEQUENCE),
              c->tokens.sequence_length, c->arch.max_position, c->arch.max_position);
    const bool ids_given = c->data.format == WH_DATA_LLMC || c->data.format == WH_DATA_MEGATRON;
    if (strcmp(c->tokenizer.path, "bytes") == 0 && c->arch.V < 256 && !ids_given)
        fault(x, WH_KEY_VOCAB, "vocab_size %u is below the 256 tokens of tokenizer 'bytes'; nearest legal: 256",
              c->arch.V);
    return x->faults->count == faults_before;
}

/* --- learning rate --- */

static void derive_decay(struct check *x) {
    struct wh_config *c = x->c;
    struct wh_config_lr *lr = &c->optimizer.lr;
    uint64_t steps = c->tokens.train_steps;
    bool start = given(c, WH_KEY_LR_START), decay = given(c, WH_KEY_LR_DECAY), wsd = lr->style == WH_LR_WSD;
    if (!decay && wsd && !start) lr->decay_steps = steps / 10 ? steps / 10 : 1;
    if (!start) {
        lr->decay_start = wsd ? (steps > lr->decay_steps ? steps - lr->decay_steps : 0) : lr->warmup_steps;
        derived(c, WH_KEY_LR_START);
    }
    if (!decay && (!wsd || start)) lr->decay_steps = steps > lr->decay_start ? steps - lr->decay_start : 0;
    if (!decay) derived(c, WH_KEY_LR_DECAY);
    if (!decay && lr->decay_steps == 0)
        fault(x, WH_KEY_LR_STYLE,
              "no steps are left for the decay: the rate is at its peak until step %" PRIu64
              " and train_steps is %" PRIu64 "; lower %s, or give %s",
              lr->decay_start, steps, path(start ? WH_KEY_LR_START : WH_KEY_LR_WARMUP), path(WH_KEY_LR_DECAY));
}

static void check_rates(struct check *x) {
    struct wh_config *c = x->c;
    struct wh_config_lr *lr = &c->optimizer.lr;
    for (int k = WH_KEY_LR_PEAK; k <= WH_KEY_LR_FLOOR; k++)
        if (faulty(c, (enum wh_config_key)k)) return;
    if (lr->floor > lr->peak)
        fault(x, WH_KEY_LR_FLOOR, "%s %g is above learning_rate %g; nearest legal: %g", path(WH_KEY_LR_FLOOR),
              lr->floor, lr->peak, lr->peak);
    if (lr->style == WH_LR_CONSTANT) {
        static const enum wh_config_key idle[] = {WH_KEY_LR_DECAY, WH_KEY_LR_START, WH_KEY_LR_FLOOR};
        for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
            if (given(c, idle[i]))
                fault(x, idle[i],
                      "%s has no meaning with lr_decay_style constant; choose linear, cosine or wsd, or leave it out",
                      path(idle[i]));
        return;
    }
    if (!given(c, WH_KEY_TRAIN_STEPS)) return;
    derive_decay(x);
    derive_real(c, WH_KEY_LR_FLOOR, &lr->floor, 0.0);
    if (lr->decay_start < lr->warmup_steps)
        fault(x, WH_KEY_LR_START,
              "the decay would start at step %" PRIu64 ", within the warm-up of %" PRIu64
              " steps; nearest legal: %s %" PRIu64,
              lr->decay_start, lr->warmup_steps, path(WH_KEY_LR_START), lr->warmup_steps);
}

/* --- the rest --- */

static void check_data(struct check *x) {
    struct wh_config *c = x->c;
    bool bytes = strcmp(c->tokenizer.path, "bytes") == 0;
    require(x, WH_KEY_TRAIN_DATA);
    if (c->tokens.val_check_interval && c->data.valid.count == 0 && !faulty(c, WH_KEY_VALID_DATA))
        fault(x, WH_KEY_VAL_INTERVAL, "%s is given, but no data.valid", path(WH_KEY_VAL_INTERVAL));
    if (c->data.document_mask && bytes && c->data.end_of_text < 0)
        fault(x, WH_KEY_DOCUMENT_MASK,
              "data.document_mask needs data.end_of_text: tokenizer 'bytes' has no such token");
    if (!given(c, WH_KEY_DATA_SEED) && !faulty(c, WH_KEY_DATA_SEED)) {
        c->data.seed = c->general.seed;
        derived(c, WH_KEY_DATA_SEED);
    }
}

/* The run's name becomes the name of a folder. */
static void check_name(struct check *x) {
    const char *name = x->c->general.run;
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (strchr("._-", *name) || strlen(name) > 100 || name[strspn(name, legal)])
        fault(x, WH_KEY_RUN,
              "general.run '%.100s' must have 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first",
              name);
}

bool wh_config_trace_steps(const struct wh_config *c, uint64_t *first, uint64_t *last) {
    const char *text = c->logging.trace_steps, *dash = strchr(text, '-');
    char number[24];
    if (!dash) return wh_text_to_uint(text, first) && wh_text_to_uint(text, last);
    if ((size_t)(dash - text) >= sizeof number) return false;
    memcpy(number, text, (size_t)(dash - text));
    number[dash - text] = '\0';
    return wh_text_to_uint(number, first) && wh_text_to_uint(dash + 1, last);
}

static void check_trace(struct check *x) {
    const struct wh_config *c = x->c;
    uint64_t first, last;
    if (!*c->logging.trace_steps) return;
    if (!*c->logging.trace)
        fault(x, WH_KEY_TRACE_STEPS, "%s is given, but no %s", path(WH_KEY_TRACE_STEPS), path(WH_KEY_TRACE));
    if (!wh_config_trace_steps(c, &first, &last) || first < 1 || last < first || last - first >= TRACE_STEPS_MAX)
        fault(x, WH_KEY_TRACE_STEPS, "%s '%s': a step or some steps are wanted, as in 7 or 3-5; %d at most",
              path(WH_KEY_TRACE_STEPS), c->logging.trace_steps, TRACE_STEPS_MAX);
    else if (given(c, WH_KEY_TRAIN_STEPS) && last > c->tokens.train_steps)
        fault(x, WH_KEY_TRACE_STEPS, "%s %s: the last of all steps is %" PRIu64, path(WH_KEY_TRACE_STEPS),
              c->logging.trace_steps, c->tokens.train_steps);
}

static void check_numbers(struct check *x) {
    const struct wh_config *c = x->c;
    if (c->recompute_full_layers > c->arch.L)
        fault(x, WH_KEY_RECOMPUTE_FULL_LAYERS, "%s %u is above num_hidden_layers %u; nearest legal: %u",
              path(WH_KEY_RECOMPUTE_FULL_LAYERS), c->recompute_full_layers, c->arch.L, c->arch.L);
    if (!c->optimizer.accumulate_grad_in_fp32 && c->model.dtype == WH_F32)
        fault(x, WH_KEY_GRAD_FP32, "%s false keeps gradients in bfloat16: it needs model.dtype bfloat16",
              path(WH_KEY_GRAD_FP32));
    if (*c->checkpoints.path)
        fault(x, WH_KEY_CKPT_PATH, "%s: checkpoints lie in the run folder (--out), in checkpoints/; leave it out",
              path(WH_KEY_CKPT_PATH));
    if (*c->model.init_from && *c->checkpoints.resume)
        fault(x, WH_KEY_INIT_FROM, "model.init_from and %s are both given: weights come from one place",
              path(WH_KEY_RESUME));
}

static void check_end_of_text(struct check *x) {
    if (x->c->data.end_of_text >= (int64_t)x->c->arch.V)
        fault(x, WH_KEY_END_OF_TEXT, "data.end_of_text %lld is not below vocab_size %u",
              (long long)x->c->data.end_of_text, x->c->arch.V);
}

/* One sum a replica. */
static void take_fast_grain(struct check *x) {
    struct wh_config *c = x->c;
    const uint32_t dp = c->parallelism.dp;
    c->grain.fast = c->comm.reduce == WH_REDUCE_FAST;
    if (!c->grain.fast || faulty(c, WH_KEY_DP)) return;
    if (c->grain.data && c->grain.data != dp)
        fault(x, WH_KEY_GRAIN_DATA, "%s %u: with %s fast it is the number of replicas, %u; leave it out",
              path(WH_KEY_GRAIN_DATA), c->grain.data, path(WH_KEY_REDUCE), dp);
    c->grain.data = dp;
}

static void check_grain(struct check *x) {
    struct wh_config *c = x->c;
    static const enum wh_config_key keys[] = {WH_KEY_GRAIN_TENSOR, WH_KEY_GRAIN_DATA, WH_KEY_GRAIN_SEQUENCE};
    const uint32_t before[] = {c->grain.tensor, c->grain.data, c->grain.sequence};
    for (int i = 0; i < 3; i++) {
        if (faulty(c, keys[i])) return;
        if (before[i] == 0) derived(c, keys[i]);
    }
    take_fast_grain(x);
    wh_grain_defaults(&c->arch, c->tokens.global_batch, &c->grain);
    wh_grain_check(&c->grain, &c->arch, c->tokens.global_batch, c->tokens.sequence_length, x->faults);
}

/* Rules of a layout (docs/numbers.md section 2): a rank holds whole slices, groups and chunks of the grain. */
static void check_divides(struct check *x, enum wh_config_key degree, uint64_t value, const char *grain, uint32_t n) {
    uint64_t nearest = value < n ? value : n;
    if (value == 0 || n % value == 0) return;
    while (n % nearest) nearest--;
    fault(x, degree, "%s %" PRIu64 " does not divide %s %u; nearest legal: %" PRIu64 " (or choose another %s)",
          path(degree), value, grain, n, nearest, grain);
}

/* The nearest degree of tensor parallelism, at most `most`, that the grain and the model allow; 0: none is so small. */
static uint32_t nearest_tp(const struct wh_config *c, uint32_t most) {
    const struct wh_model *m = &c->arch;
    uint32_t n = c->parallelism.tp < most ? c->parallelism.tp : most;
    while (n && (c->grain.tensor % n || m->Hkv % n || m->F % n)) n--;
    return n;
}

/* Case B18: what the ranks can't share out evenly is told, for no other grain would help. */
static bool fits_model(struct check *x) {
    const struct wh_config *c = x->c;
    const struct wh_model *m = &c->arch;
    const uint32_t tp = c->parallelism.tp;
    const struct {
        uint32_t n;
        const char *what;
    } cut[] = {{m->Hkv, m->Hkv == m->H ? "attention heads" : "key-value heads"}, {m->F, "feed-forward channels"}};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        if (cut[i].n % tp == 0) continue;
        fault(x, WH_KEY_TP, "%s %u %s %u %s: ranks hold equally many, in whole slices (%s %u); nearest legal: %u",
              path(WH_KEY_TP), tp, tp > cut[i].n ? ">" : "does not divide", cut[i].n, cut[i].what,
              path(WH_KEY_GRAIN_TENSOR), c->grain.tensor, nearest_tp(c, tp));
        return false;
    }
    return true;
}

/* A tensor rank holds whole slices. A grain that was worked out comes from the model, which is then what is told. */
static void check_slices(struct check *x) {
    const struct wh_config *c = x->c;
    if (fits_model(x) || given(c, WH_KEY_GRAIN_TENSOR))
        check_divides(x, WH_KEY_TP, c->parallelism.tp, path(WH_KEY_GRAIN_TENSOR), c->grain.tensor);
}

/* A replica holds whole groups. Others than the configured grain.data are legal, but make another run: other numbers. */
static void check_replicas(struct check *x) {
    const struct wh_config *c = x->c;
    const uint32_t dp = c->parallelism.dp, G = c->grain.data, B = c->tokens.global_batch;
    const uint32_t most = c->purpose == WH_CONFIG_TO_TRAIN ? WH_CONFIG_RANKS_MAX : UINT32_MAX;
    uint32_t nearest = dp < G ? dp : G, below = G / dp * dp, above = below + dp;
    if (G == 0 || B % G) return;          /* told by wh_grain_check */
    if (G % dp == 0 || dp > most) return; /* too many: told by check_world */
    while (G % nearest) nearest--;
    char grains[32] = "";
    while (below && B % below) below -= dp;
    while (B % above) above += dp; /* ends at B: dp and G divide it */
    if (below) snprintf(grains, sizeof grains, "%u or ", below);
    fault(x, WH_KEY_DP, "%s %u does not divide %s %u; nearest legal: %u, or with %s %u a %s of %s%u", path(WH_KEY_DP),
          dp, path(WH_KEY_GRAIN_DATA), G, nearest, path(WH_KEY_DP), dp, path(WH_KEY_GRAIN_DATA), grains, above);
}

/* Sums that are also cut in slices (small vectors, the loss) then have whole subtrees in each group, as those of matrices
 * do: all gradients are joined over the ranks in one way. */
static void check_subtrees(struct check *x) {
    const struct wh_config *c = x->c;
    uint32_t S = c->grain.tensor, nearest = S;
    if ((c->parallelism.dp == 1 && c->parallelism.tp == 1) || S == 0 || (S & (S - 1)) == 0) return;
    while (nearest & (nearest - 1)) nearest &= nearest - 1;
    fault(x, WH_KEY_GRAIN_TENSOR, "%s %u: with %s or %s above 1 it must be a power of two; nearest legal: %u",
          path(WH_KEY_GRAIN_TENSOR), S, path(WH_KEY_DP), path(WH_KEY_TP), nearest);
}

/* Sequence parallelism: every tensor rank has positions, and keeps the sums of its groups apart (model/gradient.h). */
static void check_positions(struct check *x) {
    const struct wh_config *c = x->c;
    const uint32_t tp = c->parallelism.tp, T = c->tokens.sequence_length;
    const uint32_t groups = c->parallelism.dp ? c->grain.data / c->parallelism.dp : 0;
    if (tp == 1 || c->parallelism.tp_mode != WH_TP_REDUCE_SCATTER || faulty(c, WH_KEY_SEQUENCE)) return;
    if (T < tp)
        fault(x, WH_KEY_TP_MODE, "%s REDUCE_SCATTER: %s %u gives %u ranks no position each; nearest legal: ALL_REDUCE",
              path(WH_KEY_TP_MODE), path(WH_KEY_SEQUENCE), T, tp);
    if (groups > WH_SUM_ROOTS_MAX)
        fault(x, WH_KEY_TP_MODE,
              "%s REDUCE_SCATTER: %s %u leaves each replica %u groups, %d at most; nearest legal: %s %u",
              path(WH_KEY_TP_MODE), path(WH_KEY_GRAIN_DATA), c->grain.data, groups, (int)WH_SUM_ROOTS_MAX,
              path(WH_KEY_GRAIN_DATA), WH_SUM_ROOTS_MAX * c->parallelism.dp);
}

/* As nearest_tp: whole groups of the grain, and whole micro-batches of the batch as it is given. */
static uint32_t nearest_dp(const struct wh_config *c, uint32_t most) {
    const uint32_t factor = given(c, WH_KEY_MICRO_BATCH) ? c->tokens.micro_batch : c->tokens.accumulation;
    const uint32_t step = given(c, WH_KEY_GLOBAL_BATCH) ? factor : 1;
    uint32_t n = c->parallelism.dp < most ? c->parallelism.dp : most;
    while (n && (c->grain.data % n || c->tokens.global_batch % ((uint64_t)step * n))) n--;
    return n;
}

static void add_choice(struct wh_text *out, const char *joint, enum wh_config_key k, uint32_t n) {
    if (n) wh_text_add(out, "%s%s %u", out->bytes ? joint : "", path(k), n);
}

/* What brings the world down to `most` ranks: any one of the degrees, or else all of them. */
static void add_worlds(const struct wh_config *c, uint32_t most, struct wh_text *out) {
    const uint64_t dp = c->parallelism.dp, tp = c->parallelism.tp, pp = c->parallelism.pp;
    add_choice(out, " or ", WH_KEY_PP, wh_config_nearest_pp(c, (uint32_t)(most / (dp * tp))));
    add_choice(out, " or ", WH_KEY_TP, nearest_tp(c, (uint32_t)(most / (dp * pp))));
    add_choice(out, " or ", WH_KEY_DP, nearest_dp(c, (uint32_t)(most / (tp * pp))));
    if (out->bytes) return;
    const uint32_t longest = wh_config_nearest_pp(c, most);
    if (!longest) {
        wh_text_add(out, "none with this %s",
                    path(wh_config_wants_schedule(c) ? WH_KEY_PP_SCHEDULE : WH_KEY_PP_CHUNKS));
        return;
    }
    const uint32_t slices = nearest_tp(c, most / longest);
    add_choice(out, " and ", WH_KEY_PP, longest);
    add_choice(out, " and ", WH_KEY_TP, slices);
    add_choice(out, " and ", WH_KEY_DP, nearest_dp(c, most / longest / slices));
}

/* Ranks of a run share one machine. Told where the largest degree stands. */
static void check_world(struct check *x) {
    const struct wh_config *c = x->c;
    const uint32_t dp = c->parallelism.dp, tp = c->parallelism.tp, pp = c->parallelism.pp;
    const uint64_t world = (uint64_t)dp * tp * pp;
    struct wh_text nearest = {0};
    if (world <= WH_CONFIG_RANKS_MAX) return;
    add_worlds(c, WH_CONFIG_RANKS_MAX, &nearest);
    fault(x,
          pp >= dp && pp >= tp ? WH_KEY_PP
          : tp >= dp           ? WH_KEY_TP
                               : WH_KEY_DP,
          "%s %u * %s %u * %s %u = %" PRIu64 " ranks share one machine, %d at most; nearest legal: %s", path(WH_KEY_DP),
          dp, path(WH_KEY_TP), tp, path(WH_KEY_PP), pp, world, WH_CONFIG_RANKS_MAX, nearest.data);
    wh_text_fini(&nearest);
}

static void check_layout(struct check *x) {
    const struct wh_config *c = x->c;
    const struct wh_mesh_degrees d = wh_config_degrees(c);
    struct wh_mesh mesh;
    for (int k = WH_KEY_DP; k <= WH_KEY_EP; k++)
        if (faulty(c, (enum wh_config_key)k)) return;
    if (c->purpose == WH_CONFIG_TO_TRAIN) { /* check_ranks has told of the other axes */
        check_slices(x);
        check_replicas(x);
        check_subtrees(x);
        check_positions(x);
        wh_config_check_pipeline(x);
        check_world(x);
        return;
    }
    if (!wh_mesh_init(&d, 0, &mesh, x->faults)) return;
    check_slices(x);
    check_replicas(x);
    check_subtrees(x);
    check_positions(x);
    check_divides(x, WH_KEY_CP, d.cp, path(WH_KEY_GRAIN_SEQUENCE), c->grain.sequence);
    wh_config_check_pipeline(x);
    if (d.ep > 1) fault(x, WH_KEY_EP, "%s %u: the model has no experts; write 1", path(WH_KEY_EP), d.ep);
}

/* The shortest decimal that is this float again: 1e-05, not 9.99999975e-06. */
static double decimal(float x) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    return strtod(text, NULL);
}

/* The inverse of fill_arch: the keys as they would have been written. */
static void fill_keys(struct wh_config *c, const struct wh_model *m) {
    c->model_config.model_type = m->family;
    c->model_config.vocab_size = m->V, c->model_config.hidden_size = m->C, c->model_config.num_hidden_layers = m->L;
    c->model_config.num_attention_heads = m->H, c->model_config.num_key_value_heads = m->Hkv;
    c->model_config.head_dim = m->D, c->model_config.intermediate_size = m->F;
    c->model_config.max_position_embeddings = m->max_position;
    c->model_config.tie_word_embeddings = m->tied;
    c->model_config.hidden_act = m->gated ? WH_ACT_SILU : WH_ACT_GELU_NEW;
    c->model_config.norm_eps = decimal(m->norm_eps), c->model_config.initializer_range = decimal(m->init_std);
    c->model_config.rope_theta = m->rope.theta, c->model_config.rope_type = m->rope.kind;
    c->model_config.rope_factor = m->rope.factor;
    c->model_config.rope_low_freq_factor = m->rope.low_freq_factor;
    c->model_config.rope_high_freq_factor = m->rope.high_freq_factor;
    c->model_config.rope_original_max_position = m->rope.original_max_position;
    c->model_config.embd_pdrop = decimal(m->dropout_embed);
    c->model_config.attn_pdrop = decimal(m->dropout_attention);
    c->model_config.resid_pdrop = decimal(m->dropout_residual);
}

/* Keys that must not be written for this model: those of the rotary embedding that it does without. */
static bool has_meaning(const struct wh_model *m, int k) {
    const int rope_keys = m->learned_positions             ? 0
                          : m->rope.kind == WH_ROPE_PLAIN  ? 2
                          : m->rope.kind == WH_ROPE_LINEAR ? 3
                                                           : 6;
    return k < WH_KEY_ROPE_THETA || k > WH_KEY_ROPE_ORIGINAL || k - WH_KEY_ROPE_THETA < rope_keys;
}

void wh_config_set_model(struct wh_config *c, const struct wh_model *m) {
    c->arch = *m;
    c->arch_given = true;
    if (has_sizes(c)) return; /* given twice; wh_config_check says so */
    fill_keys(c, m);
    for (int k = WH_KEY_MODEL_TYPE; k <= WH_KEY_DROP_RESID; k++)
        if (has_meaning(m, k)) derived(c, (enum wh_config_key)k);
    wh_config_reset(c, WH_KEY_MODEL_CONFIG);
}

void wh_config_check(struct wh_config *c, struct wh_faults *faults) {
    struct check x = {c, faults};
    if (c->incomplete) return;
    check_name(&x);
    bool sequence = require(&x, WH_KEY_SEQUENCE);
    require(&x, WH_KEY_TRAIN_STEPS);
    check_data(&x);
    check_ranks(&x);
    bool batch = check_batch(&x), model = check_model(&x);
    if (model) check_end_of_text(&x);
    if (batch && model && sequence) {
        check_grain(&x);
        check_layout(&x);
    }
    check_numbers(&x);
    check_trace(&x);
    check_rates(&x);
}
