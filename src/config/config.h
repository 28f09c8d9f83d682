/* The configuration of a run: one YAML file plus `--set key=value` overrides, into one struct.
 *
 * Every key is one row of config/keys.def, from which come this parser, the overrides, the help text, docs/config.md
 * and the effective configuration with the source of each value. Names are nanotron's; spellings of torchtitan and
 * Megatron are aliases (config/aliases.def). A null value is the same as a key that is not there. All faults are told
 * at once.
 *
 *     struct wh_faults faults = {0};
 *     struct wh_config c;
 *     wh_config_parse(text, bytes, "run.yaml", sets, set_count, &c, &faults);
 *     if (wh_config_wants_model(&c)) ... wh_config_set_model(&c, &model);  // read by the caller
 *     if (wh_config_wants_schedule(&c)) ... wh_config_set_schedule(&c, text, bytes);
 *     wh_config_check(&c, &faults);                                        // what was left out; rules across keys
 *     WH_TRY(wh_faults_status(&faults, WH_CONFIG));
 *     ...
 *     wh_config_free(&c);                                                  // also after faults
 *
 * Pure: no files, no environment. */
#ifndef WH_CONFIG_CONFIG_H
#define WH_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/grain.h"
#include "arch/model.h"
#include "base/dtype.h"
#include "base/faults.h"
#include "base/text.h"
#include "mesh/mesh.h"

enum wh_config_key {
#define X(id, ...) WH_KEY_##id,
#include "config/keys.def"
#undef X
    WH_KEY_COUNT
};

enum wh_data_format { WH_DATA_AUTO, WH_DATA_LLMC, WH_DATA_MEGATRON, WH_DATA_TEXT };
enum wh_lr_warmup { WH_WARMUP_LINEAR };
enum wh_lr_style { WH_LR_CONSTANT, WH_LR_LINEAR, WH_LR_COSINE, WH_LR_WSD };
enum wh_recompute { WH_RECOMPUTE_NONE, WH_RECOMPUTE_SELECTIVE, WH_RECOMPUTE_FULL };
enum wh_kernels { WH_KERNELS_AUTO, WH_KERNELS_REFERENCE, WH_KERNELS_AVX2, WH_KERNELS_AVX512 };
enum wh_pp_engine { /* AFAB is GPIPE; the last two are other names, too: wh_config_schedule has the schedule's own */
                    WH_PP_1F1B,
                    WH_PP_AFAB,
                    WH_PP_GPIPE,
                    WH_PP_INTERLEAVED,
                    WH_PP_ZB_H1,
                    WH_PP_ZB_V,
                    WH_PP_INTERLEAVED_1F1B,
                    WH_PP_ZBV_ZERO_BUBBLE
};
enum wh_tp_mode { WH_TP_ALL_REDUCE, WH_TP_REDUCE_SCATTER };
enum wh_reduce_mode { WH_REDUCE_CONTRACT, WH_REDUCE_FAST };
enum wh_optimizer { WH_ADAMW };
enum wh_act { WH_ACT_SILU, WH_ACT_GELU_NEW, WH_ACT_GELU_PYTORCH_TANH }; /* the last two are one function */

enum wh_config_source_kind {
    WH_SOURCE_DEFAULT,
    WH_SOURCE_FILE,    /* at `line` */
    WH_SOURCE_SET,     /* --set */
    WH_SOURCE_DERIVED, /* worked out by wh_config_check */
    WH_SOURCE_FAULTY,  /* given, but unusable; rules about it are skipped */
};

enum { WH_CONFIG_RANKS_MAX = 64 }; /* of a run: those that comm/ can connect on one machine */

/* What the configuration is for. To plan, layouts are legal that this build does not train yet. */
enum wh_config_purpose { WH_CONFIG_TO_TRAIN, WH_CONFIG_TO_PLAN };

struct wh_config_source {
    enum wh_config_source_kind kind;
    int line;
};

/* Learning rate of update t = 1, 2, ...: see optim/schedule.h. */
struct wh_config_lr {
    double peak, floor;
    uint64_t warmup_steps;
    enum wh_lr_warmup warmup_style;
    uint64_t decay_start; /* last update with the peak rate */
    uint64_t decay_steps;
    enum wh_lr_style style;
};

/* Texts are never NULL ("" if absent) and live as long as the struct. */
struct wh_config_list {
    const char **item;
    uint32_t count;
};

struct wh_config {
    struct {
        const char *run; /* name of the run */
        uint64_t seed;
    } general;
    struct {
        enum wh_dtype dtype;   /* of weights and activations in the step: WH_F32 or WH_BF16 */
        const char *config;    /* path of a Hugging Face config.json, "" if the sizes are given here */
        const char *init_from; /* checkpoint or imported folder, "" = fresh weights */
    } model;
    /* As written; `arch` below is what counts. */
    struct {
        enum wh_family model_type;
        uint32_t hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
        uint32_t vocab_size, max_position_embeddings;
        double norm_eps, initializer_range, embd_pdrop, attn_pdrop, resid_pdrop;
        bool tie_word_embeddings;
        enum wh_act hidden_act;
        double rope_theta;
        enum wh_rope_kind rope_type;
        double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
        uint32_t rope_original_max_position;
    } model_config;
    struct {
        const char *path; /* "bytes" or a path */
    } tokenizer;
    struct {
        struct wh_config_list train, valid;
        enum wh_data_format format;
        bool shuffle;
        uint64_t seed;       /* of the order; general.seed if not given */
        int64_t end_of_text; /* token between documents of text; -1: the tokenizer's own */
        bool document_mask;  /* attention does not look across documents */
    } data;
    struct {
        uint32_t global_batch, micro_batch, accumulation; /* sequences, sequences, micro-batches */
        uint32_t sequence_length;                         /* T */
        uint64_t train_steps;
        uint64_t val_check_interval; /* steps; 0: no validation */
        uint32_t limit_val_batches;  /* global batches; 0: all */
    } tokens;
    struct {
        uint32_t dp, tp, pp, cp, ep;
        enum wh_pp_engine pp_engine;
        uint32_t pp_chunks;              /* stages of each pipeline rank; 0: the schedule's own number */
        const char *pp_schedule;         /* path of a schedule file, "" = that of pp_engine */
        struct wh_config_list pp_layers; /* of each stage, as written; none: balanced */
        enum wh_tp_mode tp_mode;
    } parallelism;
    struct {
        uint32_t zero_stage;
        uint64_t bucket_bytes; /* largest piece of gradients reduced at once */
        uint32_t prefetch;     /* units of weights gathered ahead */
        bool accumulate_grad_in_fp32;
        double clip_grad; /* 0: no clipping */
        double weight_decay;
        enum wh_optimizer name;
        double beta1, beta2, eps;
        struct wh_config_lr lr;
    } optimizer;
    struct {
        const char *path;   /* "": any other is refused */
        uint64_t interval;  /* steps; 0: only at the end */
        uint32_t keep_last; /* 0: all */
        bool save_initial_state, save_final_state;
        const char *resume; /* "" = start afresh */
    } checkpoints;
    struct {
        uint64_t replicas; /* steps between comparisons of what must be equal across ranks; 0: never */
    } checks;
    struct {
        uint32_t interval;               /* steps per line */
        const char *trace, *trace_steps; /* file, "": none; as written, wh_config_trace_steps */
    } logging;
    enum wh_recompute recompute;
    uint32_t recompute_full_layers; /* these first layers in full */
    struct wh_grain grain;          /* after the check: never 0 */
    struct {
        enum wh_reduce_mode reduce; /* FAST: the contract is given up; after the check: grain.fast */
        const char *links;          /* "auto", "probe", "off" or a file */
    } comm;
    uint32_t threads; /* of each rank; 0: its share of the machine's processors */
    enum wh_kernels kernels;
    uint32_t loss_block_tokens; /* 0: chosen by the engine */

    struct wh_model arch; /* valid after wh_config_check without faults */
    bool arch_given;      /* wh_config_set_model was called */
    struct {
        const char *text; /* of the file pp_schedule; NULL: none, or not read */
        size_t bytes;
    } schedule;

    enum wh_config_purpose purpose; /* the caller may set it between parse and check */

    bool incomplete; /* the text could not be read to its end: rules across keys say nothing */
    const char *file_name;
    struct wh_config_source source[WH_KEY_COUNT];
    void *pool; /* owns the texts */
};

/* Fills defaults, then the file, then overrides in order ("tokens.train_steps=10"). Faults name file, line and column.
 * `text` NULL: no file, only overrides. *out is always valid to free. */
void wh_config_parse(const char *text, size_t bytes, const char *file_name, const char *const *sets, size_t set_count,
                     struct wh_config *out, struct wh_faults *faults);

/* Adds an override that gives `key` this text, whatever stands in it: 'key="text"'. Not UTF-8: the parser tells. */
void wh_config_add_set(struct wh_text *out, const char *key, const char *text);

/* The model is not in the run configuration: it is in the file `model.config`, or, if that is "" too, in config.json in
 * the folder `model.init_from`. The caller must read it, or add a fault. */
bool wh_config_wants_model(const struct wh_config *c);

/* Also fills model.model_config and clears model.config, so that the effective configuration stands for itself when the
 * file it was read from is gone. */
void wh_config_set_model(struct wh_config *c, const struct wh_model *m);

/* The same for the file parallelism.pp_schedule, whose text is copied. The check parses and proves it. */
bool wh_config_wants_schedule(const struct wh_config *c);
void wh_config_set_schedule(struct wh_config *c, const char *text, size_t bytes);

/* Works out what was left out (batch arithmetic, schedule, grain, arch) and checks every rule across keys. */
void wh_config_check(struct wh_config *c, struct wh_faults *faults);

void wh_config_free(struct wh_config *c);

/* YAML that parses back to the same configuration, each line with a comment that says where its value comes from. */
void wh_config_effective(const struct wh_config *c, struct wh_text *out);

/* For listings: facts and values of one key as text. */
struct wh_config_key_info {
    const char *path, *type, *standard, *choices, *unit,
        *help; /* choices: "float32|bfloat16", or the range; may be "" */
};
struct wh_config_key_info wh_config_key_info(enum wh_config_key key);
void wh_config_value(const struct wh_config *c, enum wh_config_key key, struct wh_text *out); /* YAML scalar or list */
void wh_config_source_text(const struct wh_config *c, enum wh_config_key key, struct wh_text *out); /* "run.yaml:12" */

/* docs/config.md. */
void wh_config_markdown(struct wh_text *out);

/* For wh_mesh_init. */
struct wh_mesh_degrees wh_config_degrees(const struct wh_config *c);

/* Ranks of the run: dp * cp * tp * pp. */
uint32_t wh_config_ranks(const struct wh_config *c);

/* logging.trace_steps; false: it is absent, or no "N" or "N-M". */
bool wh_config_trace_steps(const struct wh_config *c, uint64_t *first, uint64_t *last);

/* Name in sched/table.c of the pipeline schedule, if it isn't the user's own. */
const char *wh_config_schedule(const struct wh_config *c);

#endif
