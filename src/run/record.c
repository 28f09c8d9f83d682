#include "run/record.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "os/memory.h"
#include "run/choices.h"

static enum wh_status write_in(const char *folder, const char *name, struct wh_text *text) {
    char *path = wh_path_join(folder, name);
    enum wh_status status = wh_file_write_all(path, text->data, text->bytes);
    free(path);
    wh_text_fini(text);
    return status;
}

/* ---- memory ---- */

static void add_bytes(const char *row, size_t predicted, size_t measured, const char *end, struct wh_text *out) {
    wh_text_add(out, "  {\"row\": \"%s\", \"predicted_bytes\": %zu, \"measured_bytes\": %zu}%s,\n", row, predicted,
                measured, end);
}

static enum wh_status write_memory(const struct wh_session *s, const char *folder) {
    struct wh_session_bytes predicted, measured;
    struct wh_text text = {0};
    WH_TRY(wh_session_predict_plan(s->config, &s->engine.plan, &predicted));
    wh_session_measure(s, &measured);
    wh_text_add(&text, "{\"schema\": \"wanhe.memory/1\", \"rows\": [\n");
    for (int i = 0; i < WH_ROW_COUNT; i++)
        add_bytes(wh_row_name((enum wh_row)i), predicted.row_bytes[i], measured.row_bytes[i], "", &text);
    add_bytes("memory.total", predicted.total_bytes, measured.total_bytes, "]", &text);
    wh_text_add(&text, " \"peak_resident_bytes\": %zu}\n", wh_memory_peak_bytes());
    return write_in(folder, "memory.json", &text);
}

/* ---- time ---- */

/* Milliseconds per step by ledger row, the first step left out. */
static enum wh_status write_times(const struct wh_train_summary *s, const char *folder) {
    struct wh_text text = {0};
    double rest = s->timed_seconds * 1e3;
    if (s->timed_steps == 0) return WH_OK;
    wh_text_add(&text, "{\"schema\": \"wanhe.times/1\", \"steps\": %llu, \"step_ms\": %.3f, \"rows\": [\n",
                (unsigned long long)s->timed_steps, s->timed_seconds * 1e3 / (double)s->timed_steps);
    for (int i = 0; i < WH_TIME_COUNT; i++) {
        const double ms = (double)s->times.ns[i] * 1e-6;
        rest -= ms;
        wh_text_add(&text, "  {\"row\": \"%s\", \"ms\": %.3f},\n", wh_time_name((enum wh_time)i),
                    ms / (double)s->timed_steps);
    }
    wh_text_add(&text, "  {\"row\": \"time.rest\", \"ms\": %.3f}]}\n", rest / (double)s->timed_steps);
    return write_in(folder, "times.json", &text);
}

/* ---- communication ---- */

/* Text as a JSON string. */
static void add_quoted(struct wh_text *out, const char *text) {
    json_t *j = json_string(text);
    char *quoted = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    wh_text_add(out, "%s", quoted ? quoted : "\"\"");
    free(quoted);
    json_decref(j);
}

/* How data-parallel ranks' collectives were run, and by which figures that was chosen. */
static void add_choices(const struct wh_session *s, struct wh_text *out) {
    const struct wh_replica *replica = &s->engine.replica;
    struct wh_choice choice[WH_CHOICES_MAX];
    struct wh_text text = {0};
    if (!replica->net) return;
    wh_team_links_describe(s->team, &replica->links, &text);
    wh_text_add(out, ",\n \"links\": ");
    add_quoted(out, text.data);
    wh_text_add(out, ", \"choices\": [");
    const uint32_t count = wh_choices(replica, choice);
    for (uint32_t i = 0; i < count; i++) {
        wh_text_clear(&text);
        wh_choice_describe(&choice[i], &text);
        wh_text_add(out, "%s\n  {\"row\": \"%s\", \"plans\": %u, \"way\": \"%s\", \"text\": ", i ? "," : "",
                    choice[i].row, choice[i].plans, wh_comm_plan_way(choice[i].largest));
        add_quoted(out, text.data);
        wh_text_add(out, "}");
    }
    wh_text_add(out, "]");
    wh_text_fini(&text);
}

enum wh_status wh_record_predict(const struct wh_session *s, uint64_t first, uint64_t last, struct wh_traffic *out) {
    const struct wh_config *c = s->config;
    WH_TRY(wh_traffic_new(&s->stage, c->optimizer.bucket_bytes, out));
    for (uint64_t step = first + 1; step <= last; step++) {
        wh_traffic_step(out, c->checks.replicas && step % c->checks.replicas == 0);
        if (s->valid && wh_session_validates(c, step)) wh_traffic_evaluate(out, wh_session_validation_sequences(s));
    }
    return WH_OK;
}

static const struct wh_comm_row *find_row(const struct wh_session *s, const char *name) {
    uint32_t count;
    const struct wh_comm_row *rows = wh_comm_rows(s->team->job, &count);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static enum wh_status write_traffic(const struct wh_session *s, uint64_t first, const char *folder) {
    struct wh_traffic predicted;
    struct wh_text text = {0};
    WH_TRY(wh_record_predict(s, first, s->step, &predicted));
    wh_text_add(&text,
                "{\"schema\": \"wanhe.communication/1\", \"ranks\": %u, \"rank\": %u, \"steps\": %llu, \"rows\": [",
                s->team->world, s->team->rank, (unsigned long long)(s->step - first));
    for (int i = 0; i < WH_TRAFFIC_COUNT; i++) {
        const char *name = wh_traffic_row_name(&predicted, (enum wh_traffic_row)i);
        if (!name) continue;
        const struct wh_comm_row *row = find_row(s, name), none = {0};
        if (!row) row = &none;
        wh_text_add(
            &text,
            "%s\n  {\"row\": \"%s\", \"predicted_calls\": %llu, \"calls\": %llu, \"predicted_sent_bytes\": %llu, "
            "\"sent_bytes\": %llu, \"ms\": %.3f, \"exposed_ms\": %.3f}",
            i ? "," : "", name, (unsigned long long)predicted.row[i].calls, (unsigned long long)row->calls,
            (unsigned long long)predicted.row[i].sent_bytes, (unsigned long long)row->sent_bytes,
            (double)row->ns * 1e-6, (double)row->exposed_ns * 1e-6);
    }
    wh_text_add(&text, "]");
    add_choices(s, &text);
    wh_text_add(&text, "}\n");
    wh_traffic_free(&predicted);
    return write_in(folder, "communication.json", &text);
}

static enum wh_status write_all(const struct wh_session *s, const struct wh_train_summary *summary,
                                const char *folder) {
    WH_TRY(wh_dir_create(folder));
    WH_TRY(write_memory(s, folder));
    WH_TRY(write_times(summary, folder));
    return s->team ? write_traffic(s, summary->first_step, folder) : WH_OK;
}

enum wh_status wh_record_write(const struct wh_session *s, const struct wh_train_summary *summary, const char *folder) {
    char name[32];
    if (wh_team_rank(s->team) == 0) return write_all(s, summary, folder);
    snprintf(name, sizeof name, "ranks/%u", s->team->rank);
    char *own = wh_path_join(folder, name);
    enum wh_status status = write_all(s, summary, own);
    free(own);
    return status;
}
