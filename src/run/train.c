#include "run/train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/model.h"
#include "data/tokenizer.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/probe.h"
#include "os/process.h"
#include "os/signal.h"
#include "plan/stages.h"
#include "run/choices.h"
#include "run/metrics.h"
#include "run/record.h"
#include "run/team.h"
#include "run/traffic.h"
#include "run/train_int.h"
#include "run/weights.h"

struct run {
    const struct wh_train_part *part;
    const struct wh_config *config; /* the part's */
    const struct wh_train_options *options;
    const struct wh_team *team; /* NULL: alone */
    struct wh_session session;
    struct wh_trace trace; /* session.engine.trace is this, or NULL */
    struct wh_train_summary summary;
    char *metrics, *log;
    uint64_t began_ns;
    double step_seconds; /* spent in steps by this call */
    uint64_t step_tokens;
    double recent_seconds; /* in the steps since the last line of progress */
    uint64_t recent_steps;
    uint64_t saved_step;
};

/* Rank 0 alone writes files and tells how far the run is. */
static bool leads(const struct run *r) { return wh_team_rank(r->team) == 0; }

/* For the launcher: this rank lives, and what it does; in step -1 the run has not begun. */
static void at(struct run *r, int64_t step, const char *doing) {
    if (r->team) wh_launch_at(r->team->self, step, doing);
}
static void at_step(struct run *r, const char *doing) { at(r, (int64_t)r->session.step, doing); }

static void emit(struct run *r, void (*to)(void *, const char *), const char *text) {
    struct wh_text line = {0};
    wh_text_add(&line, "%s\n", text);
    if (leads(r)) /* a convenience: a full disk shows elsewhere */
        (void)wh_file_append(r->log, line.data, line.bytes);
    wh_text_fini(&line);
    if (r->team) wh_child_say(text); /* to the launcher, which logs it and shows what the user should see */
    if (!r->team && to) to(r->options->context, text);
}

__attribute__((format(printf, 2, 3))) static void say(struct run *r, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    emit(r, r->options->say, text);
}

static void say_remarks(struct run *r, struct wh_text *remarks) {
    for (char *at = NULL, *line; (line = wh_text_next_line(remarks, &at));) say(r, "%s", line);
    wh_text_fini(remarks);
}

static enum wh_status write_in(const struct run *r, const char *name, const struct wh_text *text) {
    char *path = wh_path_join(r->options->out, name);
    enum wh_status status = wh_file_write_all(path, text->data, text->bytes);
    free(path);
    return status;
}

/* Going on with another configuration is legal where the numbers' contract allows it, but never silent. */
static void say_changes(struct run *r) {
    char *path = wh_path_join(r->options->out, "config.yaml"), *text = NULL;
    size_t bytes;
    struct wh_config before;
    struct wh_faults faults = {0};
    if (wh_file_exists(path) && wh_file_read(path, (size_t)1 << 20, &text, &bytes) == WH_OK) {
        wh_config_parse(text, bytes, path, NULL, 0, &before, &faults);
        for (int k = 0; k < WH_KEY_COUNT && faults.count == 0; k++) {
            struct wh_text was = {0}, is = {0};
            wh_config_value(&before, (enum wh_config_key)k, &was);
            wh_config_value(r->part->given, (enum wh_config_key)k, &is);
            if (strcmp(was.data, is.data) != 0)
                say(r, "%s is now %s; the run had %s", wh_config_key_info((enum wh_config_key)k).path, is.data,
                    was.data);
            wh_text_fini(&was);
            wh_text_fini(&is);
        }
        wh_config_free(&before);
        wh_text_fini(&faults.text);
    }
    free(text);
    free(path);
}

static enum wh_status write_config(const struct run *r) {
    struct wh_text text = {0};
    wh_config_effective(r->part->given, &text);
    enum wh_status status = write_in(r, "config.yaml", &text);
    wh_text_fini(&text);
    return status;
}

/* Generating and measuring need the tokenizer when the file it came from has moved, or from another folder. */
static enum wh_status write_tokenizer(const struct run *r) {
    struct wh_tokenizer *tokenizer;
    const char *path = r->config->tokenizer.path;
    if (strcmp(path, "bytes") == 0) return WH_OK;
    WH_TRY(wh_tokenizer_open(path, &tokenizer));
    char *copy = wh_path_join(r->options->out, "tokenizer.json");
    enum wh_status status = wh_tokenizer_write(tokenizer, copy);
    free(copy);
    wh_tokenizer_close(tokenizer);
    return status;
}

static enum wh_status save(struct run *r) {
    struct wh_text remarks = {0};
    if (r->saved_step == r->session.step) return WH_OK;
    at_step(r, "saving");
    const uint64_t since = wh_trace_now(r->session.engine.trace);
    enum wh_status status = wh_weights_save(&r->session, r->options->out, &remarks);
    wh_trace_span(r->session.engine.trace, WH_TRACK_DISK, "checkpoint", since);
    say_remarks(r, &remarks);
    if (status != WH_OK) return wh_while(status, "saving step %llu", (unsigned long long)r->session.step);
    r->saved_step = r->session.step;
    return WH_OK;
}

static enum wh_status resume_from(struct run *r, const char *path) {
    struct wh_text remarks = {0};
    char *folder;
    enum wh_status status = wh_ckpt_find(path, WH_CKPT_LATEST, &folder, &remarks);
    say_remarks(r, &remarks);
    if (status != WH_OK) return status;
    status = wh_weights_resume(&r->session, folder);
    if (status == WH_OK) say(r, "going on from %s, step %llu", folder, (unsigned long long)r->session.step);
    free(folder);
    return status;
}

static enum wh_status start_fresh(struct run *r) {
    const char *from = r->config->model.init_from;
    wh_net_init_weights(&r->session.net, r->config->general.seed);
    if (!*from) return WH_OK;
    char *folder;
    WH_TRY(wh_ckpt_find(from, WH_CKPT_LATEST, &folder, NULL));
    enum wh_status status = wh_weights_load(&r->session.net, folder);
    if (status == WH_OK) say(r, "weights from %s", folder);
    free(folder);
    return status;
}

static enum wh_status start(struct run *r) {
    const char *out = r->options->out, *resume = r->config->checkpoints.resume;
    const bool present = r->part->present;
    r->saved_step = UINT64_MAX;
    if (present)
        WH_TRY(resume_from(r, out));
    else if (*resume)
        WH_TRY(resume_from(r, resume));
    else
        WH_TRY(start_fresh(r));
    if (present) {
        say_changes(r);
        r->saved_step = r->session.step;
    } else if (r->options->start == WH_TRAIN_RESUME_IF_PRESENT && !*resume) {
        say(r, "%s holds no checkpoint: the run starts afresh", out); /* case B88 */
    }
    return leads(r) ? wh_metrics_rewind(r->metrics, r->session.step) : WH_OK;
}

static double step_tokens(const struct wh_config *c) {
    return (double)c->tokens.global_batch * c->tokens.sequence_length;
}

/* Share of the multiply-add peak; 0: the peak is not known. */
static double peak_share(const struct run *r, double tokens_per_s) {
    const double flops = wh_model_flops_per_token(&r->config->arch, r->config->tokens.sequence_length) * tokens_per_s;
    return r->summary.peak_gflops > 0.0 ? flops * 1e-9 / r->summary.peak_gflops : 0.0;
}

/* 1:05, 2:03:05, 1d 02:03:05 */
static void add_duration(struct wh_text *out, double seconds) {
    const unsigned long long s = (unsigned long long)(seconds + 0.5), hours = s / 3600;
    if (hours >= 24) wh_text_add(out, "%llud %02llu:", hours / 24, hours % 24);
    if (hours > 0 && hours < 24) wh_text_add(out, "%llu:", hours);
    wh_text_add(out, hours ? "%02llu:%02llu" : "%llu:%02llu", s / 60 % 60, s % 60);
}

/* Rate and time left are of the steps since the last line: one step's time says little. */
static void progress(struct run *r, const struct wh_metrics_step *m) {
    const struct wh_config *c = r->config;
    const double seconds = r->recent_seconds / (double)r->recent_steps;
    const double rate = step_tokens(c) / seconds, share = peak_share(r, rate);
    struct wh_text text = {0};
    wh_text_add(&text, "step %llu/%llu  loss %.4f  norm %.3f  lr %.2e  %.0f tok/s", (unsigned long long)m->step,
                (unsigned long long)c->tokens.train_steps, m->result.loss, m->result.grad_norm, m->result.lr, rate);
    if (share > 0.0 && share <= 1.0) /* above 1: others had the processors while the peak was measured */
        wh_text_add(&text, "  %4.1f%% of %.0f GFLOP/s", 100.0 * share, r->summary.peak_gflops);
    wh_text_add(&text, "  left ");
    add_duration(&text, (double)(c->tokens.train_steps - m->step) * seconds);
    emit(r, r->options->progress, text.data);
    wh_text_fini(&text);
    r->recent_seconds = 0.0, r->recent_steps = 0;
}

static enum wh_status validate(struct run *r) {
    struct wh_evaluation e;
    at_step(r, "validating");
    const struct wh_times times = r->session.net.times; /* those of the steps alone */
    const uint64_t since = wh_trace_now(r->session.engine.trace);
    WH_TRY(wh_session_validate(&r->session, &e));
    wh_trace_span(r->session.engine.trace, WH_TRACK_COMPUTE, "validation", since);
    r->session.net.times = times;
    r->summary.valid_loss = e.loss;
    say(r, "step %llu: validation loss %.4f (%llu sequences)", (unsigned long long)r->session.step, e.loss,
        (unsigned long long)e.sequences);
    return leads(r) ? wh_metrics_validation(r->metrics, r->session.step, &e) : WH_OK;
}

static bool every(uint64_t step, uint64_t interval) { return interval > 0 && step % interval == 0; }

static enum wh_status one_step(struct run *r) {
    const struct wh_config *c = r->config;
    struct wh_metrics_step m;
    at(r, (int64_t)r->session.step + 1, "computing");
    const uint64_t began = wh_clock_ns();
    wh_trace_step(r->session.engine.trace, r->session.step + 1);
    WH_TRY(wh_session_step(&r->session, &m.result));
    wh_trace_pause(r->session.engine.trace);
    const double seconds = (double)(wh_clock_ns() - began) * 1e-9;
    const double tokens = step_tokens(c);
    m.step = r->session.step, m.tokens = r->session.tokens, m.step_ms = 1e3 * seconds;
    m.tokens_per_s = tokens / seconds;
    m.mfu = peak_share(r, m.tokens_per_s);
    if (m.step == r->summary.first_step + 1)
        r->session.net.times = (struct wh_times){0}; /* first touch of memory */
    else
        r->summary.timed_seconds += seconds, r->summary.timed_steps++;
    r->step_seconds += seconds;
    r->step_tokens += (uint64_t)tokens;
    r->recent_seconds += seconds, r->recent_steps++;
    r->summary.loss = m.result.loss;
    if (!leads(r)) return WH_OK;
    WH_TRY(wh_metrics_step(r->metrics, &m));
    if (every(m.step, c->logging.interval) || m.step == c->tokens.train_steps)
        progress(r, &m);
    else if (m.step == r->summary.first_step + 1)
        r->recent_seconds = 0.0, r->recent_steps = 0;
    return WH_OK;
}

/* A signal may come to any rank, and to each at another moment: all stop after the same step. */
static enum wh_status agree_to_stop(struct run *r, uint32_t *signal_number) {
    at_step(r, "waiting for the other ranks");
    return wh_team_max(r->team, (uint32_t)wh_signal_pending(), signal_number);
}

static enum wh_status loop(struct run *r) {
    const struct wh_config *c = r->config;
    while (r->session.step < c->tokens.train_steps) {
        WH_TRY(one_step(r));
        const uint64_t step = r->session.step;
        const bool last = step == c->tokens.train_steps;
        uint32_t stop;
        if (r->session.valid && wh_session_validates(c, step)) WH_TRY(validate(r));
        if (every(step, c->checkpoints.interval) || (last && c->checkpoints.save_final_state)) WH_TRY(save(r));
        WH_TRY(agree_to_stop(r, &stop));
        if (stop && !last) {
            r->summary.stopped_by = (int)stop;
            WH_TRY(save(r));
            return WH_FAIL(WH_RETRY, "stopped by signal %u after step %llu, which is saved; --resume goes on", stop,
                           (unsigned long long)step);
        }
    }
    return WH_OK;
}

static void add_ranks(const struct run *r, struct wh_text *out) {
    const struct wh_config *c = r->config;
    const int threads = r->session.net.shape.threads;
    if (r->team) wh_text_add(out, "%u ranks of ", r->team->world);
    wh_text_add(out, "%d thread%s", threads, threads == 1 ? "" : "s");
    if (r->team && c->optimizer.zero_stage > 0) wh_text_add(out, ", ZeRO %u", c->optimizer.zero_stage);
}

/* 96 B, 2.8 KiB, 12.0 MiB */
static void add_bytes(struct wh_text *out, uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024.0;
    int unit = 0;
    if (bytes < 1024) {
        wh_text_add(out, "%llu B", (unsigned long long)bytes);
        return;
    }
    for (; value >= 1024.0 && unit < 3; unit++) value /= 1024.0;
    wh_text_add(out, "%.1f %s", value, units[unit]);
}

/* What a rank holds by the ledger (memory.total). */
static size_t rank_bytes(const struct run *r) {
    struct wh_session_bytes held;
    wh_session_measure(&r->session, &held);
    return held.total_bytes;
}

/* What ranks cost: bytes sent by row, of a step without validation and comparison; sums that ZeRO doesn't share out. */
static enum wh_status describe_traffic(struct run *r) {
    const struct wh_config *c = r->config;
    struct wh_traffic t;
    struct wh_text rows = {0}, sum = {0};
    uint64_t all = 0;
    if (!r->team) return WH_OK;
    WH_TRY(wh_traffic_new(&r->session.stage, c->optimizer.bucket_bytes, &t));
    wh_traffic_step(&t, false);
    for (int i = 0; i < WH_TRAFFIC_COUNT; i++) {
        if (t.row[i].sent_bytes == 0) continue;
        wh_text_add(&rows, "%s%s ", rows.bytes ? ", " : "", wh_traffic_row_name(&t, (enum wh_traffic_row)i));
        add_bytes(&rows, t.row[i].sent_bytes);
        all += t.row[i].sent_bytes;
    }
    add_bytes(&sum, all);
    say(r, "rank 0 sends %s a step: %s", sum.data, rows.data);
    if (c->optimizer.zero_stage >= 2 && c->tokens.accumulation > 1)
        say(r,
            "ZeRO %u shares out gradients only where tokens.batch_accumulation_per_replica is 1: here it is %u, and "
            "every rank keeps whole sums",
            c->optimizer.zero_stage, c->tokens.accumulation);
    wh_text_fini(&rows);
    wh_text_fini(&sum);
    wh_traffic_free(&t);
    return WH_OK;
}

static void describe_stages(struct run *r) {
    const struct wh_stage *s = &r->session.stage;
    struct wh_text text = {0};
    if (s->mesh.degrees.pp == 1 && !wh_config_wants_schedule(r->config)) return;
    if (wh_stages_describe(r->config, &s->plan, s->layer_border, &text) == WH_OK) say(r, "%s", text.data);
    wh_text_fini(&text);
}

/* The links between data-parallel ranks, and how their collectives are run because of them. */
static void describe_choices(struct run *r) {
    const struct wh_replica *replica = &r->session.engine.replica;
    struct wh_choice choice[WH_CHOICES_MAX];
    struct wh_text text = {0};
    if (!replica->net) return;
    wh_team_links_describe(r->team, &replica->links, &text);
    say(r, "%s", text.data);
    const uint32_t count = wh_choices(replica, choice);
    for (uint32_t i = 0; i < count; i++) {
        wh_text_clear(&text);
        wh_choice_describe(&choice[i], &text);
        say(r, "%s", text.data);
    }
    wh_text_fini(&text);
}

static void describe(struct run *r) {
    const struct wh_config *c = r->config;
    const struct wh_net *net = &r->session.net;
    const char *each = r->team ? " a rank" : "";
    struct wh_text ranks = {0};
    add_ranks(r, &ranks);
    say(r, "%s, %zu parameters, %s; batch %u x %u tokens in %u micro-batch%s of %u%s; %s, %s kernels",
        wh_family_name(c->arch.family), r->session.stage.whole.elems, wh_dtype_name(net->shape.dtype),
        c->tokens.global_batch, c->tokens.sequence_length, c->tokens.accumulation,
        c->tokens.accumulation == 1 ? "" : "es", c->tokens.micro_batch, each, ranks.data, net->vec->name);
    wh_text_fini(&ranks);
    describe_stages(r);
    if (!r->team && c->optimizer.zero_stage > 0)
        say(r, "optimizer.zero_stage %u has nothing to share out: there is one rank", c->optimizer.zero_stage);
    say(r, "grain: tensor %u, data %u, sequence %u%s; memory %.1f MiB%s; %llu sequences of text, %llu steps per epoch",
        c->grain.tensor, c->grain.data, c->grain.sequence, c->grain.wire == WH_BF16 ? ", wire bfloat16" : "",
        (double)rank_bytes(r) / 0x1p20, each, (unsigned long long)r->session.sampler.sequences,
        (unsigned long long)r->session.sampler.steps_per_epoch);
    if (c->grain.fast) /* the contract is given up */
        say(r, "comm.reduce fast: one gradient sum a replica, joined in any order: not the numbers of other layouts");
    describe_choices(r);
    if (r->session.sampler.left_over)
        say(r, "%llu sequences at the end of each epoch's order are left over",
            (unsigned long long)r->session.sampler.left_over);
}

/* The multiply-add peak of all ranks' threads, measured on all at once: what they can't have together doesn't count. */
static enum wh_status measure_peak(struct run *r) {
    uint32_t all;
    at_step(r, "waiting for the other ranks");
    WH_TRY(wh_team_max(r->team, 0, &all));
    at_step(r, "measuring the peak");
    r->summary.peak_gflops =
        wh_team_world(r->team) * wh_probe_fma_gflops(r->session.net.shape.threads, r->session.net.vec->name);
    return WH_OK;
}

/* ---- the timeline ---- */

/* The first steps are slower: memory is touched, ranks fall into step. */
enum { TRACE_AFTER = 2, TRACE_STEPS = 3 };

static enum wh_status open_trace(struct run *r) {
    static const char nothing[] = "{\"traceEvents\":[]}\n";
    const struct wh_config *c = r->config;
    const uint64_t done = r->session.step, all = c->tokens.train_steps;
    uint64_t first, last;
    if (!*c->logging.trace) return WH_OK;
    if (!wh_config_trace_steps(c, &first, &last)) {
        last = done + TRACE_AFTER + TRACE_STEPS < all ? done + TRACE_AFTER + TRACE_STEPS : all;
        first = last >= done + TRACE_STEPS ? last - TRACE_STEPS + 1 : done + 1;
    }
    if (last <= done) {
        say(r, "%s: steps %llu to %llu are done already; nothing is traced", c->logging.trace,
            (unsigned long long)first, (unsigned long long)last);
        return WH_OK;
    }
    if (leads(r)) /* before the steps: where nothing can be written */
        WH_TRY(wh_while(wh_file_write_all(c->logging.trace, nothing, sizeof nothing - 1), "making logging.trace"));
    WH_TRY(wh_trace_open(&r->session.stage, c->optimizer.bucket_bytes, first, last, &r->trace));
    wh_trace_watch(&r->trace, r->team);
    r->session.engine.trace = &r->trace;
    return WH_OK;
}

static enum wh_status write_trace(struct run *r) {
    struct wh_trace_shares s;
    if (!r->session.engine.trace) return WH_OK;
    at_step(r, "writing the timeline");
    WH_TRY(wh_while(wh_trace_write(&r->trace, r->team, r->config->logging.trace, &s), "writing logging.trace"));
    if (!leads(r)) return WH_OK;
    if (s.steps == 0)
        say(r, "%s: the run ended before the steps to be traced", r->config->logging.trace);
    else
        say(r, "%s: timeline of %llu steps; the pipeline idles %.1f %% of the time, predicted %.1f %%",
            r->config->logging.trace, (unsigned long long)s.steps, 100 * s.idle, 100 * s.predicted_idle);
    if (s.dropped) say(r, "%llu events had no room", (unsigned long long)s.dropped);
    return WH_OK;
}

static enum wh_status open_run(struct run *r) {
    const struct wh_config *c = r->config;
    at(r, -1, "reading weights");
    WH_TRY(start(r));
    if (leads(r)) WH_TRY(write_config(r));
    if (leads(r)) WH_TRY(write_tokenizer(r));
    describe(r);
    WH_TRY(describe_traffic(r));
    r->summary.first_step = r->session.step;
    if (r->session.step >= c->tokens.train_steps) {
        say(r, "all %llu steps are done", (unsigned long long)c->tokens.train_steps);
        return WH_OK;
    }
    WH_TRY(open_trace(r));
    if (c->checkpoints.save_initial_state && r->session.step == 0) WH_TRY(save(r));
    return measure_peak(r);
}

static enum wh_status finish(struct run *r) {
    struct wh_train_summary *s = &r->summary;
    uint32_t peak_kib;
    WH_TRY(wh_team_max(r->team, (uint32_t)(wh_memory_peak_bytes() >> 10), &peak_kib));
    s->ranks = wh_team_world(r->team), s->threads = (uint32_t)r->session.net.shape.threads;
    s->steps = r->session.step;
    s->seconds = (double)(wh_clock_ns() - r->began_ns) * 1e-9;
    s->peak_bytes = (size_t)peak_kib << 10;
    s->times = r->session.net.times;
    if (r->step_seconds <= 0.0) return WH_OK;
    s->tokens_per_s = (double)r->step_tokens / r->step_seconds;
    s->mfu = peak_share(r, s->tokens_per_s);
    return WH_OK;
}

static struct run begin(const struct wh_train_part *part, const struct wh_team *team) {
    return (struct run){.part = part,
                        .config = &part->config,
                        .options = part->options,
                        .team = team,
                        .metrics = wh_path_join(part->options->out, "metrics.jsonl"),
                        .log = wh_path_join(part->options->out, "log.txt"),
                        .began_ns = wh_clock_ns(),
                        .summary = {.loss = NAN, .valid_loss = NAN}};
}

static void end(struct run *r) {
    wh_trace_close(&r->trace);
    wh_session_close(&r->session);
    free(r->metrics);
    free(r->log);
}

/* The session is open, the folder locked. */
static enum wh_status run_steps(struct run *r, struct wh_train_summary *out) {
    WH_TRY(open_run(r));
    const enum wh_status status = loop(r);
    if (status != WH_OK && status != WH_RETRY) return status;
    WH_TRY(write_trace(r));
    WH_TRY(finish(r));
    *out = r->summary;
    return status == WH_RETRY ? status : wh_record_write(&r->session, &r->summary, r->options->out);
}

/* --- alone, or one of several --- */

enum wh_status wh_train_check_start(const struct wh_train_options *o) {
    const bool present = wh_ckpt_any(o->out);
    if (o->start == WH_TRAIN_RESUME && !present)
        return WH_FAIL(WH_DAMAGED, "%s holds no checkpoint to resume from; without --resume a run starts afresh",
                       o->out);
    if (o->start == WH_TRAIN_FRESH && present)
        return WH_FAIL(WH_CONFIG,
                       "%s already holds checkpoints: --resume goes on from them, another --out starts afresh", o->out);
    return WH_OK;
}

enum wh_status wh_train_check_folder(struct wh_train_part *part) {
    struct wh_params params;
    WH_TRY(wh_train_check_start(part->options));
    part->present = wh_ckpt_any(part->options->out);
    WH_TRY(wh_params_new(&part->config.arch, &params));
    const enum wh_status status = wh_ckpt_check_space(part->options->out, wh_ckpt_bytes(&params, true));
    wh_params_free(&params);
    return status;
}

enum wh_status wh_train_rank(const struct wh_train_part *part, struct wh_launch_rank *self,
                             struct wh_train_summary *out) {
    struct wh_team team;
    enum wh_status status;
    wh_signal_watch();
    WH_TRY(wh_team_open(self, &part->mesh, &team));
    team.links = &part->links;
    struct run r = begin(part, &team);
    at(&r, -1, "opening data, memory and links");
    WH_TRY_GOTO(wh_session_open(r.config, &team, &r.session), end);
    status = run_steps(&r, out);
end:
    end(&r);
    wh_team_close(&team);
    return status;
}

static enum wh_status run_alone(struct wh_train_part *part, struct wh_train_summary *out) {
    struct run r = begin(part, NULL);
    int lock = -1;
    enum wh_status status;
    WH_TRY_GOTO(wh_session_open(r.config, NULL, &r.session), end); /* before the folder: what can't run leaves none */
    WH_TRY_GOTO(wh_dir_create(r.options->out), end);
    WH_TRY_GOTO(wh_lock_take(r.options->out, &lock), end);
    wh_signal_watch();
    WH_TRY_GOTO(wh_train_check_folder(part), end);
    status = run_steps(&r, out);
end:
    end(&r);
    wh_lock_release(lock);
    return status;
}

enum wh_status wh_train_run(const struct wh_config *config, const struct wh_train_options *options,
                            struct wh_train_summary *out) {
    struct wh_train_part part = {.given = config, .config = *config, .options = options};
    /* before a mistyped folder is made; checkpoints that are in the way may be those of a run that has the folder locked */
    if (options->start == WH_TRAIN_RESUME) WH_TRY(wh_train_check_start(options));
    if (wh_config_ranks(config) > 1) return wh_train_launch(config, options, out);
    return run_alone(&part, out);
}
