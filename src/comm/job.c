/* The job: its memory, its ranks, its groups. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/faults.h"
#include "comm/comm_int.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/probe.h"

enum { SKEW_LINES = 9, LINE = 64, PAGE = 4096 };
static const uint64_t default_deadline_ns = 600000000000u;
_Static_assert(sizeof(struct wh_ring) % LINE == 0 && PAGE % LINE == 0, "rings keep the alignment");
static const size_t pipes_bytes = (size_t)4 << 20, pipe_bytes_least = 4096, pipe_bytes_most = 131072;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static enum wh_status check_config(const struct wh_comm_job_config *c) {
    struct wh_faults f = {0};
    if (c->ranks < 1 || c->ranks > WH_COMM_RANKS_MAX)
        wh_faults_add(&f, NULL, 0, "%u ranks on one machine; 1 to %u are possible", c->ranks,
                      (unsigned)WH_COMM_RANKS_MAX);
    if (!wh_reduce_select(c->kernels))
        wh_faults_add(&f, NULL, 0, "kernels '%s' don't exist or don't run on this processor", c->kernels);
    return wh_faults_status(&f, WH_CONFIG);
}

/* Sizes of what lies in a rank's segment; the same for all. */
static size_t lay_out(struct wh_comm_job *job, size_t arena_bytes) {
    size_t rings = (size_t)WH_COMM_GROUPS_MAX * job->ranks, pipe = pipes_bytes / rings / PAGE * PAGE;
    if (pipe < pipe_bytes_least) pipe = pipe_bytes_least;
    if (pipe > pipe_bytes_most) pipe = pipe_bytes_most;
    job->pipe_bytes = pipe;
    job->ring_bytes = sizeof(struct wh_ring) + pipe;
    job->arena_offset = (size_t)WH_COMM_GROUPS_MAX * WH_PIECES * WH_PIECE_BYTES + rings * job->ring_bytes;
    job->arena_bytes = round_up(arena_bytes, LINE);
    return round_up(job->arena_offset + job->arena_bytes, PAGE) + PAGE; /* the last page: room for the skew */
}

static size_t control_bytes_of(uint32_t ranks) {
    return sizeof(struct wh_control) + ranks * sizeof(struct wh_rank_lines) +
           WH_COMM_GROUPS_MAX * ranks * sizeof(struct wh_group_lines);
}

size_t wh_comm_job_own_bytes(uint32_t ranks) {
    struct wh_comm_job job = {.ranks = ranks};
    return lay_out(&job, 0) + control_bytes_of(ranks) / ranks;
}

static enum wh_status create_memory(struct wh_comm_job *job, size_t arena_bytes) {
    size_t segment_bytes = lay_out(job, arena_bytes), available = wh_shm_free_bytes();
    size_t control_bytes = control_bytes_of(job->ranks);
    size_t needed = control_bytes + job->ranks * segment_bytes;
    if (available && needed > available)
        return WH_FAIL(WH_NOMEM, "%u ranks need %zu bytes of shared memory (%zu each), %zu are free", job->ranks,
                       needed, segment_bytes, available);
    WH_TRY(wh_shm_create(control_bytes, "wanhe-control", &job->control_shm));
    WH_TRY(wh_shm_reserve(&job->control_shm, "control block"));
    for (uint32_t r = 0; r < job->ranks; r++) {
        WH_TRY(wh_shm_create(segment_bytes, "wanhe-rank", &job->segment_shm[r]));
        job->segment[r] = (char *)job->segment_shm[r].data + r * SKEW_LINES % (PAGE / LINE) * LINE;
    }
    job->control = job->control_shm.data;
    job->lines = (struct wh_rank_lines *)(void *)(job->control + 1);
    job->groups = (struct wh_group_lines *)(void *)(job->lines + job->ranks);
    return WH_OK;
}

enum wh_status wh_comm_job_create(const struct wh_comm_job_config *config, struct wh_comm_job **out) {
    WH_TRY(check_config(config));
    struct wh_comm_job *job = calloc(1, sizeof *job);
    if (!job) return WH_FAIL(WH_NOMEM, "no memory for the description of a job");
    job->ranks = config->ranks;
    job->rank = WH_COMM_RANKS_MAX;
    job->deadline_ns = config->deadline_ns ? config->deadline_ns : default_deadline_ns;
    job->crowded = config->ranks > (uint32_t)wh_probe_processors();
    job->launcher_process = wh_process_id();
    job->launcher_pidfd = -1;
    job->reduce = wh_reduce_select(config->kernels);
    job->control_shm.fd = -1;
    for (uint32_t r = 0; r < job->ranks; r++) job->segment_shm[r].fd = -1;
    enum wh_status status = create_memory(job, config->arena_bytes);
    if (status != WH_OK) {
        wh_comm_job_destroy(job);
        return status;
    }
    *out = job;
    return WH_OK;
}

void wh_comm_job_destroy(struct wh_comm_job *job) {
    if (!job) return;
    while (job->comms) wh_comm_close(job->comms);
    for (uint32_t r = 0; r < job->ranks; r++) wh_shm_release(&job->segment_shm[r]);
    wh_shm_release(&job->control_shm);
    wh_pidfd_close(job->launcher_pidfd);
    free(job);
}

void wh_comm_job_leave(struct wh_comm_job *job) { wh_comm_job_destroy(job); }

uint32_t wh_comm_job_ranks(const struct wh_comm_job *job) { return job->ranks; }

enum wh_status wh_comm_job_status(struct wh_comm_job *job) { return wh_cause_status(&job->control->cause); }

void wh_comm_job_abort(struct wh_comm_job *job, enum wh_status code, const char *format, ...) {
    char message[WH_CAUSE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    wh_cause_set(&job->control->cause, code, message);
    wh_comm_wake_job(job);
}

/* ---- joining ---- */

static enum wh_status reserve_own(struct wh_comm_job *job) {
    char label[32];
    snprintf(label, sizeof label, "rank %u", job->rank);
    enum wh_status status = wh_shm_reserve(&job->segment_shm[job->rank], label);
    if (status != WH_OK) wh_comm_job_abort(job, status, "%s", wh_error()->message);
    return status;
}

static enum wh_status late(struct wh_comm_job *job) {
    struct wh_text t = {0};
    for (uint32_t r = 0; r < job->ranks; r++)
        if (atomic_load(&job->lines[r].state) == WH_RANK_AWAITED) wh_text_add(&t, "%s%u", t.bytes ? ", " : "", r);
    wh_comm_job_abort(job, WH_PEER, "ranks that have not joined: %s", t.data ? t.data : "none");
    wh_text_fini(&t);
    return wh_comm_job_status(job);
}

static enum wh_status wait_for_all(struct wh_comm_job *job) {
    uint64_t begin = wh_clock_ns();
    while (atomic_load_explicit(&job->control->joined, memory_order_acquire) < job->ranks) { /* with the add in join */
        WH_TRY(wh_comm_job_status(job));
        if (wh_pidfd_ended(job->launcher_pidfd)) return WH_FAIL(WH_PEER, "the launcher has ended");
        if (wh_clock_ns() - begin > job->deadline_ns) return late(job);
        if (wh_clock_ns() - begin < 1000000)
            wh_cpu_yield();
        else
            wh_sleep_ns(500000);
    }
    return wh_comm_job_status(job);
}

enum wh_status wh_comm_job_join(struct wh_comm_job *job, uint32_t rank) {
    WH_ASSERT(rank < job->ranks && job->rank == WH_COMM_RANKS_MAX);
    struct wh_rank_lines *l = &job->lines[rank];
    job->rank = rank;
    job->launcher_pidfd = wh_pidfd_open(job->launcher_process);
    atomic_store(&l->process, (uint32_t)wh_process_id());
    WH_TRY(reserve_own(job));
    atomic_store(&l->heartbeat_ns, wh_clock_ns());
    atomic_store(&l->state, WH_RANK_JOINED);
    atomic_fetch_add_explicit(&job->control->joined, 1, memory_order_release); /* the arena is reserved and zero */
    return wait_for_all(job);
}

static void add_last_operation(struct wh_comm_job *job, uint32_t rank, struct wh_text *t) {
    const struct wh_rank_lines *l = &job->lines[rank];
    uint64_t next = atomic_load_explicit(&l->log_next, memory_order_acquire);
    if (next == 0) {
        wh_text_add(t, " before its first operation");
        return;
    }
    const struct wh_log_entry *e = &l->log[(next - 1) % WH_LOG_ENTRIES];
    wh_text_add(t, atomic_load(&e->finished) ? " after " : " in ");
    wh_comm_describe_entry(e, t);
    wh_text_add(t, " of group %s", e->group_name);
}

/* Others may depend on what it had begun: a chunk that it took is nobody else's. */
static bool has_unfinished(struct wh_comm_job *job, uint32_t rank) {
    const struct wh_rank_lines *l = &job->lines[rank];
    uint64_t next = atomic_load_explicit(&l->log_next, memory_order_acquire);
    for (uint64_t i = 0; i < next && i < WH_LOG_ENTRIES; i++)
        if (!atomic_load(&l->log[i].finished)) return true;
    return false;
}

void wh_comm_job_ended(struct wh_comm_job *job, uint32_t rank, int wait_status) {
    struct wh_process_end end = wh_process_end(wait_status);
    bool joined = atomic_load(&job->lines[rank].state) == WH_RANK_JOINED;
    if (end.signal || end.exit_code || !joined || has_unfinished(job, rank)) {
        struct wh_text t = {0};
        wh_text_add(&t, "rank %u (process %u) ", rank, atomic_load(&job->lines[rank].process));
        if (end.signal) wh_text_add(&t, "was ended by signal %d (%s)", end.signal, strsignal(end.signal));
        if (!end.signal) wh_text_add(&t, "ended with exit code %d", end.exit_code);
        add_last_operation(job, rank, &t);
        wh_comm_job_abort(job, WH_PEER, "%s", t.data);
        wh_text_fini(&t);
    }
    atomic_store(&job->lines[rank].state, WH_RANK_ENDED);
    wh_comm_wake_job(job);
}

void wh_comm_job_describe(struct wh_comm_job *job, struct wh_text *out) {
    static const char *const state[] = {"awaited", "joined", "ended"};
    uint64_t now = wh_clock_ns();
    for (uint32_t r = 0; r < job->ranks; r++) {
        uint64_t beat = atomic_load(&job->lines[r].heartbeat_ns), cpu_ns;
        int process = (int)atomic_load(&job->lines[r].process);
        char kernel_state = process ? wh_process_state(process, &cpu_ns) : 0;
        wh_text_add(out, "rank %u: %s, process %d (%c), seen %.1f s ago,", r, state[atomic_load(&job->lines[r].state)],
                    process, kernel_state ? kernel_state : '-', beat && now > beat ? 1e-9 * (double)(now - beat) : 0.0);
        add_last_operation(job, r, out);
        wh_text_add(out, "\n");
    }
}

uint64_t wh_comm_job_seen_ns(const struct wh_comm_job *job, uint32_t rank) {
    return atomic_load_explicit(&job->lines[rank].heartbeat_ns, memory_order_relaxed);
}

/* ---- buffers and groups ---- */

enum wh_status wh_comm_buffer(struct wh_comm_job *job, size_t bytes, void **out) {
    size_t left = job->arena_bytes - job->arena_used_bytes;
    if (bytes > left)
        return WH_FAIL(WH_NOMEM, "a shared buffer of %zu bytes: the arena has %zu, %zu of them are taken", bytes,
                       job->arena_bytes, job->arena_used_bytes);
    *out = job->segment[job->rank] + job->arena_offset + job->arena_used_bytes;
    job->arena_used_bytes += round_up(bytes, LINE) < left ? round_up(bytes, LINE) : left;
    return WH_OK;
}

static enum wh_status check_group(const struct wh_comm_job *job, uint32_t id, const char *name, const uint32_t *members,
                                  uint32_t size) {
    struct wh_faults f = {0};
    bool among = false;
    if (id >= WH_COMM_GROUPS_MAX)
        wh_faults_add(&f, NULL, 0, "group %s: id %u; 0 to %d are possible", name, id, WH_COMM_GROUPS_MAX - 1);
    else if (job->opened >> id & 1)
        wh_faults_add(&f, NULL, 0, "group %s: id %u was opened before", name, id);
    if (size < 1 || size > job->ranks)
        wh_faults_add(&f, NULL, 0, "group %s: %u members; 1 to %u are possible", name, size, job->ranks);
    for (uint32_t i = 0; i < size && i < job->ranks; i++) {
        among |= members[i] == job->rank;
        if (members[i] >= job->ranks)
            wh_faults_add(&f, NULL, 0, "group %s: rank %u; the job has %u", name, members[i], job->ranks);
        if (i > 0 && members[i] <= members[i - 1])
            wh_faults_add(&f, NULL, 0, "group %s: rank %u after rank %u; members ascend", name, members[i],
                          members[i - 1]);
    }
    if (!among) wh_faults_add(&f, NULL, 0, "group %s: rank %u is no member", name, job->rank);
    return wh_faults_status(&f, WH_CONFIG);
}

enum wh_status wh_comm_open(struct wh_comm_job *job, uint32_t id, const char *name, const uint32_t *members,
                            uint32_t size, struct wh_comm **out) {
    WH_TRY(check_group(job, id, name, members, size));
    struct wh_comm *c = calloc(1, sizeof *c);
    if (!c) return WH_FAIL(WH_NOMEM, "no memory for the description of group %s", name);
    *c = (struct wh_comm){.job = job, .name = name, .id = id, .size = size, .oldest = 1, .next = job->comms};
    for (uint32_t m = 0; m < size; m++) {
        c->member[m] = members[m];
        c->lines[m] = &job->groups[id * job->ranks + members[m]];
        c->segment[m] = job->segment[members[m]];
        c->members_hash = (c->members_hash ^ (members[m] + 1)) * 16777619u;
        if (members[m] == job->rank) c->rank = m;
    }
    for (uint32_t i = 0; i < WH_PIECES; i++)
        c->staging[i] = job->segment[job->rank] + ((size_t)id * WH_PIECES + i) * WH_PIECE_BYTES;
    c->once.border = c->once_border;
    job->opened |= 1u << id;
    job->comms = c;
    *out = c;
    return WH_OK;
}

void wh_comm_close(struct wh_comm *comm) {
    if (!comm) return;
    struct wh_comm **p = &comm->job->comms;
    while (*p != comm) p = &(*p)->next;
    *p = comm->next;
    wh_messages_drop(comm);
    free(comm->links);
    wh_memory_release(comm->room, comm->room_bytes);
    wh_order_forget(comm);
    free(comm);
}

uint32_t wh_comm_rank(const struct wh_comm *comm) { return comm->rank; }
uint32_t wh_comm_size(const struct wh_comm *comm) { return comm->size; }

const struct wh_comm_row *wh_comm_rows(const struct wh_comm_job *job, uint32_t *count) {
    *count = job->rows;
    return job->row;
}
