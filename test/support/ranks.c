#include "test/support/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"

struct board {
    struct test_rank_end end[WH_COMM_RANKS_MAX];
    char user[TEST_RANKS_SHARED_BYTES];
};

static void run_rank(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t, struct test_rank_end *end) {
    enum wh_status status = t->no_join ? WH_OK : wh_comm_job_join(job, rank);
    if (status == WH_OK) status = t->body(job, rank, t);
    end->status = status;
    if (status != WH_OK) snprintf(end->message, sizeof end->message, "%s", wh_error()->message);
    if (status != WH_OK && wh_error()->frames) snprintf(end->frame, sizeof end->frame, "%s", wh_error()->frame[0]);
    wh_comm_job_leave(job);
    _exit(0);
}

struct launcher {
    struct test_ranks *t;
    struct wh_comm_job *job;
    pid_t pid[WH_COMM_RANKS_MAX];
    uint32_t alive; /* bits */
    uint64_t begin_ns;
};

static double since(const struct launcher *l) { return 1e-9 * (double)(wh_clock_ns() - l->begin_ns); }

static void ended(struct launcher *l, uint32_t rank, int status, struct test_rank_end *end) {
    end->seconds = since(l);
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (status != 0 && l->t->first_death_s == 0) l->t->first_death_s = end->seconds;
    l->alive &= ~(1u << rank);
    wh_comm_job_ended(l->job, rank, status);
}

static void kill_ranks(struct launcher *l, uint32_t which) {
    for (uint32_t r = 0; r < l->t->config.ranks; r++)
        if (which & l->alive & 1u << r) kill(l->pid[r], SIGKILL);
}

static void wait_for_ranks(struct launcher *l, struct board *board) {
    double limit = l->t->limit_s > 0 ? l->t->limit_s : 60;
    while (l->alive) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        for (uint32_t r = 0; r < l->t->config.ranks && pid > 0; r++)
            if (l->pid[r] == pid) ended(l, r, status, &board->end[r]);
        if (pid > 0) continue;
        if ((l->alive & ~l->t->stopped) == 0) kill_ranks(l, l->alive);
        if (since(l) > limit) {
            for (uint32_t r = 0; r < l->t->config.ranks; r++) board->end[r].killed_at_limit = l->alive >> r & 1;
            kill_ranks(l, l->alive);
        }
        usleep(300);
    }
}

uint32_t test_ranks_run(struct test_ranks *t) {
    struct launcher l = {.t = t};
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    t->shared = board->user;
    t->first_death_s = 0;
    if (wh_comm_job_create(&t->config, &l.job) != WH_OK) {
        fprintf(stderr, "%s\n", wh_error()->message);
        return t->config.ranks;
    }
    l.begin_ns = wh_clock_ns();
    fflush(NULL);
    for (uint32_t r = 0; r < t->config.ranks; r++) {
        l.pid[r] = fork();
        if (l.pid[r] == 0) run_rank(l.job, r, t, &board->end[r]);
        l.alive |= 1u << r;
        board->end[r].started = l.pid[r] > 0;
    }
    wait_for_ranks(&l, board);
    wh_comm_job_destroy(l.job);
    memcpy(t->end, board->end, sizeof t->end);
    uint32_t bad = 0;
    for (uint32_t r = 0; r < t->config.ranks; r++)
        bad += t->end[r].status != WH_OK || t->end[r].exit_code != 0 || t->end[r].killed_at_limit;
    return bad;
}

void test_ranks_free(struct test_ranks *t) {
    if (t->shared) munmap((char *)t->shared - offsetof(struct board, user), sizeof(struct board));
    t->shared = NULL;
}

void test_ranks_print(const struct test_ranks *t) {
    for (uint32_t r = 0; r < t->config.ranks; r++) {
        const struct test_rank_end *e = &t->end[r];
        fprintf(stderr, "rank %u after %.3f s: exit %d, signal %d%s, %s: %s%s%s\n", r, e->seconds, e->exit_code,
                e->signal, e->killed_at_limit ? ", killed at the limit" : "",
                e->status ? wh_status_name(e->status) : "OK", e->message, e->frame[0] ? " | " : "", e->frame);
    }
}

uint32_t test_ranks_bad(struct test_ranks *t) {
    const uint32_t bad = test_ranks_run(t);
    if (bad) test_ranks_print(t);
    test_ranks_free(t);
    return bad;
}
