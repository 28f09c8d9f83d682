#include "run/launch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/process.h"
#include "os/shm.h"
#include "os/topology.h"

#define SECOND_NS ((uint64_t)1000000000)
#define TICK_NS   (SECOND_NS / 20)
#define LIFE_NS   (SECOND_NS / 50) /* of processor time are a sign of life; who sleeps on others' news takes far less */

enum { LINE_BYTES = 4096, WORDS_BYTES = 512, EXIT_RETRY = 75 };
enum { NOTE_WORDS = WH_LAUNCH_NOTE_BYTES / sizeof(uint64_t) };

/* What a rank tells the launcher, in memory that both map. Written by the rank alone. */
struct slot {
    _Alignas(128) _Atomic uint64_t beat_ns; /* last wh_launch_at */
    _Atomic int64_t step;
    _Atomic(const char *) doing;       /* a literal: the same address in both processes */
    _Atomic uint64_t note[NOTE_WORDS]; /* a text; the last word ends it */
    _Atomic uint64_t failed_ns;        /* 0: has not failed; else `error` is complete */
    struct wh_error error;
};

struct wh_launch_page {
    uint32_t ranks;
    struct slot slot[];
};

/* Rank as the launcher sees it. */
struct seen {
    char line[LINE_BYTES]; /* the beginning of a line */
    size_t bytes;
    char words[WORDS_BYTES]; /* the last line that had anything in it */
    char *log;               /* path; NULL: none */
    int wait_status;
    uint64_t ended_ns; /* 0: it runs */
    bool killed;       /* by us */
    uint64_t alive_ns; /* last sign of life, which changed these two */
    uint64_t beat_ns, processor_ns;
    bool stopped; /* SIGSTOP, or held by a debugger */
};

enum cause_kind {
    NO_CAUSE,
    CAUSE_RECORD,
    CAUSE_END,
    CAUSE_SILENT,
    CAUSE_SLOW_STOP,
    CAUSE_INTERRUPTED, /* twice */
    CAUSE_PEER_RECORD
};

struct cause {
    enum cause_kind kind;
    uint32_t rank;
    uint64_t ns;
};

struct launch {
    const struct wh_launch_options *options;
    enum wh_status (*body)(struct wh_launch_rank *, void *);
    void *context;
    struct wh_shm shm;
    struct wh_launch_page *page;
    struct wh_topology *topology;
    struct wh_children *children;
    struct seen *seen;
    uint64_t failing_ns; /* when the job began to fail; 0: it hasn't */
    uint64_t stopping_ns, looked_ns;
    struct cause hung; /* silent or not stopped in time, as found by the launcher */
    struct wh_launch_result result;
};

/* --- in the rank --- */

void wh_launch_at(struct wh_launch_rank *self, int64_t step, const char *doing) {
    if (!self || !self->page) return;
    struct slot *s = &self->page->slot[self->rank];
    atomic_store_explicit(&s->step, step, memory_order_relaxed);
    atomic_store_explicit(&s->doing, doing, memory_order_relaxed);
    atomic_store_explicit(&s->note[0], 0, memory_order_relaxed);
    atomic_store_explicit(&s->beat_ns, wh_clock_ns(), memory_order_release);
}

void wh_launch_note(struct wh_launch_rank *self, const char *text) {
    if (!self || !self->page) return;
    struct slot *s = &self->page->slot[self->rank];
    uint64_t word[NOTE_WORDS] = {0};
    memcpy(word, text, strnlen(text, WH_LAUNCH_NOTE_BYTES - 1));
    for (size_t i = 0; i < NOTE_WORDS; i++) atomic_store_explicit(&s->note[i], word[i], memory_order_relaxed);
    atomic_store_explicit(&s->beat_ns, wh_clock_ns(), memory_order_release);
}

struct start {
    struct launch *launch;
    uint32_t rank;
};

static int run_rank(void *argument) {
    const struct start *start = argument;
    const struct launch *l = start->launch;
    struct wh_launch_rank self = {start->rank, l->options->ranks, l->options->job, l->page};
    struct slot *s = &l->page->slot[self.rank];
    wh_launch_at(&self, -1, "starting");
    enum wh_status status = l->topology ? wh_topology_pin(l->topology, self.rank) : WH_OK;
    if (status == WH_OK) status = l->body(&self, l->context);
    if (status == WH_OK) return 0;
    s->error = *wh_error();
    s->error.code = status;
    atomic_store_explicit(&s->failed_ns, wh_clock_ns(), memory_order_release);
    return wh_status_exit_code(status);
}

/* --- what ranks say --- */

static const char *without_colors(const char *line, char *room, size_t bytes) {
    size_t n = 0;
    for (const char *p = line; *p && n + 1 < bytes; p++) {
        if (p[0] == '\033' && p[1] == '[') {
            p += 2;
            while (*p && !(*p >= '@' && *p <= '~')) p++;
            if (!*p) break;
            continue;
        }
        room[n++] = *p;
    }
    room[n] = '\0';
    return room;
}

static bool starts_with(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static void say_line(struct launch *l, uint32_t rank, const char *line) {
    struct seen *s = &l->seen[rank];
    char plain[LINE_BYTES], prefixed[LINE_BYTES + 32];
    without_colors(line, plain, sizeof plain);
    if (plain[strspn(plain, " \t")]) snprintf(s->words, sizeof s->words, "%.*s", WORDS_BYTES - 1, plain);
    if (!l->options->console) return;
    if (rank == 0) {
        l->options->console(l->options->console_context, line);
    } else if (starts_with(plain, "warning: ") || starts_with(plain, "error: ")) {
        snprintf(prefixed, sizeof prefixed, "[rank %u] %s", rank, line);
        l->options->console(l->options->console_context, prefixed);
    }
}

static void end_line(struct launch *l, uint32_t rank) {
    struct seen *s = &l->seen[rank];
    s->line[s->bytes] = '\0';
    s->bytes = 0;
    say_line(l, rank, s->line);
}

static void add_to_log(struct launch *l, uint32_t rank, const char *text, size_t bytes) {
    struct seen *s = &l->seen[rank];
    if (!s->log || wh_file_append(s->log, text, bytes) == WH_OK) return;
    free(s->log); /* told once; the job goes on */
    s->log = NULL;
    if (l->options->console) l->options->console(l->options->console_context, wh_error()->message);
}

static void take_output(struct launch *l, uint32_t rank, const char *text, size_t bytes) {
    struct seen *s = &l->seen[rank];
    add_to_log(l, rank, text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n' || s->bytes + 1 == LINE_BYTES) end_line(l, rank);
        if (text[i] != '\n') s->line[s->bytes++] = text[i] ? text[i] : '?';
    }
}

/* --- how ranks end --- */

/* "rank 2 (step 3, reading data)", "rank 2 (step 3, computing: F1 (forward of micro-batch 1))" */
static void name_rank(const struct launch *l, uint32_t rank, struct wh_text *out) {
    const struct slot *s = &l->page->slot[rank];
    const int64_t step = atomic_load_explicit(&s->step, memory_order_relaxed);
    const char *doing = atomic_load_explicit(&s->doing, memory_order_relaxed);
    uint64_t note[NOTE_WORDS];
    for (size_t i = 0; i < NOTE_WORDS; i++) note[i] = atomic_load_explicit(&s->note[i], memory_order_relaxed);
    const char *gap = note[0] ? ": " : "";
    wh_text_add(out, "rank %u", rank);
    if (step >= 0)
        wh_text_add(out, " (step %lld, %s%s%s)", (long long)step, doing, gap, (const char *)note);
    else if (doing)
        wh_text_add(out, " (%s%s%s)", doing, gap, (const char *)note);
}

/* What all were doing, into rank 0's log. */
static void begin_to_fail(struct launch *l) {
    struct wh_text text = {0};
    if (l->failing_ns) return;
    l->failing_ns = wh_clock_ns();
    for (uint32_t r = 0; r < l->options->ranks; r++) {
        name_rank(l, r, &text);
        wh_text_add(&text, l->seen[r].ended_ns ? ", ended\n" : "\n");
    }
    add_to_log(l, 0, text.data, text.bytes);
    wh_text_fini(&text);
}

static bool is_failure(int wait_status) {
    const struct wh_process_end e = wh_process_end(wait_status);
    return e.signal != 0 || (e.exit_code != 0 && e.exit_code != EXIT_RETRY);
}

/* The console gets the first cause alone, in the end. */
static void log_record(struct launch *l, uint32_t rank) {
    const struct slot *slot = &l->page->slot[rank];
    struct wh_text text = {0};
    if (!atomic_load_explicit(&slot->failed_ns, memory_order_acquire)) return;
    wh_text_add(&text, "%s: %s\n", wh_status_text(slot->error.code), slot->error.message);
    for (int i = 0; i < slot->error.frames; i++) wh_text_add(&text, "  while %s\n", slot->error.frame[i]);
    add_to_log(l, rank, text.data, text.bytes);
    wh_text_fini(&text);
}

/* It has no handler for the signal that was passed on: that is an end as asked for. */
static bool stopped_as_asked(const struct launch *l, int wait_status) {
    return l->stopping_ns && wh_process_end(wait_status).signal == l->result.stopped_by;
}

static void take_end(struct launch *l, uint32_t rank, int wait_status) {
    struct seen *s = &l->seen[rank];
    if (s->bytes > 0) end_line(l, rank);
    log_record(l, rank);
    s->wait_status = wait_status;
    s->ended_ns = wh_clock_ns();
    if (is_failure(wait_status) && !stopped_as_asked(l, wait_status)) begin_to_fail(l);
    /* Who stopped in order has done its part of everything: like an exit with 0 that ends nobody else. */
    const bool in_order = wh_process_end(wait_status).exit_code == EXIT_RETRY;
    if (l->options->job) wh_comm_job_ended(l->options->job, rank, in_order ? 0 : wait_status);
}

static void kill_all(struct launch *l) {
    for (uint32_t r = 0; r < l->options->ranks; r++)
        if (!l->seen[r].ended_ns && !l->seen[r].killed) {
            l->seen[r].killed = true;
            l->result.killed++;
            wh_child_kill(l->children, r);
        }
}

static void take_signal(struct launch *l, int number) {
    if (l->stopping_ns && wh_signal_is_interrupt(number)) {
        l->hung = (struct cause){CAUSE_INTERRUPTED, 0, wh_clock_ns()};
        begin_to_fail(l);
        kill_all(l);
    }
    if (!l->stopping_ns) {
        l->stopping_ns = wh_clock_ns();
        l->result.stopped_by = number;
    }
    for (uint32_t r = 0; r < l->options->ranks; r++)
        if (!l->seen[r].ended_ns) wh_child_signal(l->children, r, number);
}

static void look_for_life(struct launch *l, uint32_t rank, uint64_t now) {
    struct seen *s = &l->seen[rank];
    const uint64_t beat = atomic_load_explicit(&l->page->slot[rank].beat_ns, memory_order_acquire);
    uint64_t processor_ns;
    const char state = wh_process_state(wh_child_pid(l->children, rank), &processor_ns);
    const bool ready = state == 'R'; /* if others have the processors */
    s->stopped = state == 'T' || state == 't';
    if (s->alive_ns && !ready && beat == s->beat_ns && processor_ns < s->processor_ns + LIFE_NS) return;
    s->alive_ns = now, s->beat_ns = beat, s->processor_ns = processor_ns;
}

/* A stopped process is the likeliest cause, then the longest silence. */
static bool likelier(const struct seen *a, const struct seen *b) {
    return a->stopped != b->stopped ? a->stopped : a->alive_ns < b->alive_ns;
}

static void log_stall(struct launch *l) {
    struct wh_text text = {0};
    if (!l->options->job) return;
    wh_comm_job_describe(l->options->job, &text);
    add_to_log(l, 0, text.data, text.bytes);
    wh_text_fini(&text);
}

/* It waits for others in a call of comm/, where it shows itself. */
static bool waits(const struct launch *l, uint32_t rank, uint64_t now) {
    return l->options->job && wh_comm_job_seen_ns(l->options->job, rank) + l->options->silence_ns / 2 > now;
}

/* The rank to blame; NULL: none yet. Who waits for others is not to blame while any of them lives. */
static const struct seen *silent_rank(struct launch *l, uint64_t now) {
    const struct seen *worst = NULL, *worst_waiting = NULL;
    bool any_lives = false;
    for (uint32_t r = 0; r < l->options->ranks; r++) {
        const struct seen *s = &l->seen[r];
        if (s->ended_ns) continue;
        look_for_life(l, r, now);
        const struct seen **as = waits(l, r, now) ? &worst_waiting : &worst;
        if (now < s->alive_ns + l->options->silence_ns)
            any_lives = true;
        else if (!*as || likelier(s, *as))
            *as = s;
    }
    return worst || any_lives ? worst : worst_waiting;
}

static void look_for_silence(struct launch *l, uint64_t now) {
    const uint64_t silence = l->options->silence_ns;
    if (now < l->looked_ns + (silence / 8 < SECOND_NS ? silence / 8 : SECOND_NS)) return;
    l->looked_ns = now;
    const struct seen *worst = silent_rank(l, now);
    if (!worst) return;
    l->hung = (struct cause){CAUSE_SILENT, (uint32_t)(worst - l->seen), now};
    begin_to_fail(l);
    log_stall(l);
    if (l->options->job) wh_comm_job_abort(l->options->job, WH_PEER, "rank %u is silent", l->hung.rank);
}

static void look_at_clock(struct launch *l) {
    const uint64_t now = wh_clock_ns();
    const uint64_t grace = l->options->grace_ns ? l->options->grace_ns : 3 * SECOND_NS;
    const uint64_t stop_grace = l->options->stop_grace_ns ? l->options->stop_grace_ns : 60 * SECOND_NS;
    if (l->failing_ns) {
        if (now >= l->failing_ns + grace) kill_all(l);
    } else if (l->stopping_ns && now >= l->stopping_ns + stop_grace) {
        l->hung = (struct cause){CAUSE_SLOW_STOP, 0, now};
        begin_to_fail(l);
        kill_all(l);
    } else if (l->options->silence_ns) {
        look_for_silence(l, now);
    }
}

static void watch(struct launch *l) {
    while (wh_children_running(l->children) > 0) {
        const struct wh_child_event e = wh_children_next(l->children, TICK_NS);
        switch (e.kind) {
        case WH_CHILD_TIMEOUT:
            break;
        case WH_CHILD_OUTPUT:
            take_output(l, e.child, e.text, e.bytes);
            break;
        case WH_CHILD_ENDED:
            take_end(l, e.child, e.wait_status);
            break;
        case WH_CHILD_SIGNAL:
            take_signal(l, e.signal);
            break;
        }
        look_at_clock(l);
    }
}

/* --- the first cause --- */

/* What one rank has to say about how the job failed. An error that another rank caused (PEER) counts only if there is
 * nothing else: then it tells of a stall. */
static struct cause cause_of(const struct launch *l, uint32_t rank) {
    const struct slot *slot = &l->page->slot[rank];
    const struct seen *s = &l->seen[rank];
    const uint64_t failed_ns = atomic_load_explicit(&slot->failed_ns, memory_order_acquire);
    const bool follows = failed_ns && slot->error.code == WH_PEER;
    if (failed_ns && (slot->error.code == WH_RETRY || (follows && l->stopping_ns))) return (struct cause){0};
    if (failed_ns) return (struct cause){follows ? CAUSE_PEER_RECORD : CAUSE_RECORD, rank, failed_ns};
    if (s->ended_ns && !s->killed && is_failure(s->wait_status) && !stopped_as_asked(l, s->wait_status))
        return (struct cause){CAUSE_END, rank, s->ended_ns};
    return (struct cause){0};
}

static bool before(const struct cause *a, const struct cause *b) {
    if (a->kind == NO_CAUSE) return false;
    if (b->kind == NO_CAUSE) return true;
    const bool a_follows = a->kind == CAUSE_PEER_RECORD, b_follows = b->kind == CAUSE_PEER_RECORD;
    return a_follows != b_follows ? b_follows : a->ns < b->ns;
}

static struct cause first_cause(const struct launch *l) {
    struct cause first = l->hung;
    for (uint32_t r = 0; r < l->options->ranks; r++) {
        const struct cause c = cause_of(l, r);
        if (before(&c, &first)) first = c;
    }
    return first;
}

static void tell_end(const struct launch *l, uint32_t rank, struct wh_text *out) {
    const struct wh_process_end e = wh_process_end(l->seen[rank].wait_status);
    char room[16];
    if (e.signal)
        wh_text_add(out, " was ended by %s", wh_signal_name(e.signal, room));
    else
        wh_text_add(out, " ended with exit code %d", e.exit_code);
    if (wh_signal_is_kill(e.signal))
        wh_text_add(out, " (from outside: by hand, by a scheduler, or by the kernel for want of memory)");
    else if (l->seen[rank].words[0])
        wh_text_add(out, "; the last it said: %s", l->seen[rank].words);
}

static enum wh_status tell_slow_stop(const struct launch *l, const struct cause *c) {
    char room[16];
    if (c->kind == CAUSE_INTERRUPTED)
        return WH_FAIL(WH_RETRY,
                       "interrupted twice: %u of %u ranks were killed; steps since the newest checkpoint are lost",
                       l->result.killed, l->options->ranks);
    return WH_FAIL(WH_PEER, "stopped by %s, but %u of %u ranks did not end and were killed",
                   wh_signal_name(l->result.stopped_by, room), l->result.killed, l->options->ranks);
}

static bool all_say(const struct launch *l, const struct wh_error *record) {
    for (uint32_t r = 0; r < l->options->ranks; r++) {
        const struct slot *s = &l->page->slot[r];
        if (!atomic_load_explicit(&s->failed_ns, memory_order_acquire) || s->error.code != record->code ||
            strcmp(s->error.message, record->message) != 0)
            return false;
    }
    return true;
}

/* The rank's own record, with the rank in front of its message unless it is everybody's. */
static enum wh_status tell_record(const struct launch *l, const struct wh_error *record, const char *rank) {
    struct wh_error *e = wh_error();
    const bool shared = all_say(l, record);
    wh_fail(record->file, record->line, record->code, "%s%s%s", shared ? "" : rank, shared ? "" : ": ",
            record->message);
    e->frames = record->frames;
    memcpy(e->frame, record->frame, sizeof e->frame);
    return record->code;
}

static enum wh_status tell_cause(struct launch *l, const struct cause *c) {
    const struct slot *slot = &l->page->slot[c->rank];
    struct wh_text text = {0};
    enum wh_status status;
    if (c->kind == CAUSE_SLOW_STOP || c->kind == CAUSE_INTERRUPTED) return tell_slow_stop(l, c);
    name_rank(l, c->rank, &text);
    if (c->kind == CAUSE_END) tell_end(l, c->rank, &text);
    if (c->kind == CAUSE_SILENT)
        wh_text_add(&text, " gave no sign of life for %.3g s%s", (double)l->options->silence_ns / 1e9,
                    l->seen[c->rank].stopped ? ": its process is stopped" : "");
    if (c->kind == CAUSE_RECORD || c->kind == CAUSE_PEER_RECORD)
        status = tell_record(l, &slot->error, text.data);
    else
        status = WH_FAIL(WH_PEER, "%s", text.data);
    wh_error()->rank = (int)c->rank;
    wh_error()->step = (int)atomic_load_explicit(&slot->step, memory_order_relaxed);
    l->result.culprit = (int32_t)c->rank;
    wh_text_fini(&text);
    return status;
}

/* No failure. A rank's own word for a stop is better than ours. */
static enum wh_status tell_stop(const struct launch *l) {
    bool stopped = false;
    char room[16];
    for (uint32_t r = 0; r < l->options->ranks; r++) {
        const struct slot *slot = &l->page->slot[r];
        const struct wh_process_end e = wh_process_end(l->seen[r].wait_status);
        stopped = stopped || e.signal || e.exit_code;
        if (atomic_load_explicit(&slot->failed_ns, memory_order_acquire) && slot->error.code == WH_RETRY)
            return WH_FAIL(WH_RETRY, "%s", slot->error.message);
    }
    if (!stopped) return WH_OK;
    if (!l->result.stopped_by) return WH_FAIL(WH_RETRY, "a rank asks to be started again");
    return WH_FAIL(WH_RETRY, "stopped by %s", wh_signal_name(l->result.stopped_by, room));
}

/* All ranks are reaped. */
static enum wh_status conclude(struct launch *l) {
    const struct cause c = first_cause(l);
    if (l->failing_ns) l->result.ended_ns = wh_clock_ns() - l->failing_ns;
    return c.kind == NO_CAUSE ? tell_stop(l) : tell_cause(l, &c);
}

/* Files and folders that were being written when their writer died (os/file.h): nobody will finish them, and the lock
 * keeps others from having any here. What can't be removed is left for the next run to overwrite. */
static void sweep(const char *folder) {
    char **names;
    size_t count;
    if (wh_dir_list(folder, &names, &count) != WH_OK) return;
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(names[i]);
        if (length < 5 || strcmp(names[i] + length - 5, ".part") != 0) continue;
        char *path = wh_path_join(folder, names[i]);
        if (wh_dir_exists(path))
            wh_dir_remove(path);
        else
            remove(path);
        free(path);
    }
    wh_dir_list_free(names, count);
}

static void sweep_run_folder(const char *folder) {
    char *checkpoints = wh_path_join(folder, "checkpoints");
    sweep(folder);
    if (wh_dir_exists(checkpoints)) sweep(checkpoints);
    free(checkpoints);
}

/* --- start and end --- */

static enum wh_status open_logs(struct launch *l) {
    if (!l->options->folder) return WH_OK;
    char *folder = wh_path_join(l->options->folder, "ranks");
    enum wh_status status = wh_dir_create(folder);
    for (uint32_t r = 0; r < l->options->ranks && status == WH_OK; r++) {
        char name[32];
        snprintf(name, sizeof name, "%u.log", r);
        l->seen[r].log = wh_path_join(folder, name);
        status = wh_file_append(l->seen[r].log, "", 0); /* now, not in the middle of the run */
    }
    free(folder);
    return status;
}

static enum wh_status set_up(struct launch *l) {
    const uint32_t ranks = l->options->ranks;
    l->seen = calloc(ranks, sizeof *l->seen);
    if (!l->seen) return WH_FAIL(WH_NOMEM, "no memory for %u ranks", ranks);
    WH_TRY(open_logs(l));
    WH_TRY(wh_shm_create(sizeof *l->page + ranks * sizeof l->page->slot[0], "wanhe-ranks", &l->shm));
    WH_TRY(wh_shm_reserve(&l->shm, "the page of the ranks"));
    l->page = l->shm.data;
    l->page->ranks = ranks;
    if (l->options->pin) WH_TRY(wh_topology_new(ranks, &l->topology));
    return wh_children_new(ranks, &l->children);
}

static enum wh_status start_all(struct launch *l) {
    for (uint32_t r = 0; r < l->options->ranks; r++) {
        struct start start = {l, r};
        WH_TRY(wh_children_start(l->children, r, r == 0, run_rank, &start));
    }
    return WH_OK;
}

static void tear_down(struct launch *l) {
    wh_children_free(l->children);
    wh_topology_free(l->topology);
    wh_shm_release(&l->shm);
    for (uint32_t r = 0; l->seen && r < l->options->ranks; r++) free(l->seen[r].log);
    free(l->seen);
}

static void say_topology(const struct launch *l) {
    struct wh_text text = {0};
    if (!l->topology || !l->options->console) return;
    wh_topology_describe(l->topology, &text);
    l->options->console(l->options->console_context, text.data);
    wh_text_fini(&text);
}

enum wh_status wh_launch_run(const struct wh_launch_options *options,
                             enum wh_status (*body)(struct wh_launch_rank *self, void *context), void *context,
                             struct wh_launch_result *result) {
    struct launch l = {.options = options, .body = body, .context = context, .shm = {.fd = -1}};
    int lock = -1;
    *result = l.result = (struct wh_launch_result){.culprit = -1};
    WH_ASSERT(options->ranks > 0);
    if (options->folder) {
        WH_TRY(wh_dir_create(options->folder));
        WH_TRY(wh_lock_take(options->folder, &lock));
    }
    enum wh_status status = options->prepare ? options->prepare(context) : WH_OK;
    if (status == WH_OK) status = set_up(&l);
    if (status == WH_OK) {
        say_topology(&l);
        status = start_all(&l);
    }
    if (status == WH_OK) {
        watch(&l);
        if (l.failing_ns && options->folder) sweep_run_folder(options->folder);
        status = conclude(&l);
    }
    *result = l.result;
    tear_down(&l);
    wh_lock_release(lock);
    return status;
}
