#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* after its needs */
#include <cmocka.h>

#include "comm/comm.h"
#include "os/clock.h"
#include "os/file.h"
#include "run/launch.h"
#include "test/support/folder.h"

enum { RANKS = 4 };
#define MS ((uint64_t)1000000)

/* What the console was shown. */
static struct wh_text console;
static void show(void *context, const char *line) {
    (void)context;
    wh_text_add(&console, "%s\n", line);
}

static enum wh_status launch(struct wh_launch_options options, enum wh_status (*body)(struct wh_launch_rank *, void *),
                             void *context, struct wh_launch_result *result) {
    options.ranks = options.ranks ? options.ranks : RANKS;
    options.console = show;
    if (!options.grace_ns) options.grace_ns = 300 * MS;
    wh_text_clear(&console);
    wh_text_add(&console, "%s", "");
    const enum wh_status status = wh_launch_run(&options, body, context, result);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left, not even unreaped */
    return status;
}

static void message_has(const char *part) {
    if (!strstr(wh_error()->message, part)) fail_msg("'%s' does not say '%s'", wh_error()->message, part);
}

/* --- a good end --- */

static enum wh_status speak(struct wh_launch_rank *self, void *context) {
    const uint32_t *world = context;
    if (self->world != *world || self->job != NULL) return WH_FAIL(WH_INTERNAL, "wrong place");
    wh_launch_at(self, 0, "speaking");
    fprintf(stderr, "I am %u\n", self->rank);
    fprintf(stderr, "\033[33mwarning: \033[0mrank %u has no hat\n", self->rank);
    if (self->rank > 0) printf("to the log\n");
    fprintf(stderr, "no end of line %u", self->rank);
    return WH_OK;
}

static char *read_log(const char *folder, int rank) {
    char path[256], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/ranks/%d.log", folder, rank);
    assert_int_equal(wh_file_read(path, 1 << 20, &text, &bytes), WH_OK);
    return text;
}

static void test_speech(void **state) {
    (void)state;
    char folder[TEST_FOLDER_BYTES];
    struct wh_launch_result r;
    uint32_t world = 3;
    assert_true(test_folder_make(folder, "launch"));
    assert_int_equal(launch((struct wh_launch_options){.ranks = 3, .folder = folder}, speak, &world, &r), WH_OK);
    assert_int_equal(r.culprit, -1);
    assert_int_equal(r.killed, 0);
    assert_non_null(strstr(console.data, "I am 0\n"));
    assert_non_null(strstr(console.data, "\nno end of line 0\n"));
    assert_null(strstr(console.data, "I am 1"));
    assert_non_null(strstr(console.data, "[rank 1] \033[33mwarning: \033[0mrank 1 has no hat\n"));
    assert_non_null(strstr(console.data, "[rank 2] "));
    assert_null(strstr(console.data, "[rank 0] "));
    for (int rank = 0; rank < 3; rank++) {
        char *log = read_log(folder, rank), want[64];
        snprintf(want, sizeof want, "I am %d\n", rank);
        assert_non_null(strstr(log, want));
        assert_int_equal(strstr(log, "to the log\n") != NULL, rank > 0);
        free(log);
    }
    assert_int_equal(wh_dir_remove(folder), WH_OK);
}

/* Two jobs in one folder: the second is refused (case B73). */
static void test_locked(void **state) {
    (void)state;
    char folder[TEST_FOLDER_BYTES];
    struct wh_launch_result r;
    uint32_t world = RANKS;
    int lock;
    assert_true(test_folder_make(folder, "launch"));
    assert_int_equal(wh_lock_take(folder, &lock), WH_OK);
    assert_int_equal(launch((struct wh_launch_options){.folder = folder}, speak, &world, &r), WH_CONFIG);
    message_has("in use by process");
    wh_lock_release(lock);
    assert_int_equal(wh_dir_remove(folder), WH_OK);
}

/* --- failures (case B72): rank 2 at step 3 --- */

enum how { FAILS, THROWS_AWAY, ABORTS, IS_KILLED, EXITS, STOPS, FAILS_AFTER_PEER };

static void go_wrong(struct wh_launch_rank *self, enum how how) {
    (void)self;
    switch (how) {
    case ABORTS:
        fprintf(stderr, "claim 'a == b' does not hold\n"), abort();
    case IS_KILLED:
        kill(getpid(), SIGKILL);
        break;
    case EXITS:
        fprintf(stderr, "giving up\n"), fflush(stderr), _exit(9);
    case STOPS:
        kill(getpid(), SIGSTOP);
        break;
    default:
        break;
    }
}

static enum wh_status stay(struct wh_launch_rank *self, void *context) {
    const enum how how = *(const enum how *)context;
    for (int step = 0; step < 1000; step++) {
        wh_launch_at(self, step, "reading data");
        if (self->rank == 2 && step == 3) {
            if (how == FAILS || how == FAILS_AFTER_PEER)
                return wh_while(WH_FAIL(WH_DATA, "%s", "tokens.bin: token 99 is not below 50"), "reading batch 7");
            if (how == IS_KILLED || how == STOPS) wh_launch_note(self, "B3 (backward of micro-batch 3)");
            go_wrong(self, how);
        }
        if (how == FAILS_AFTER_PEER && self->rank == 1 && step == 1) return WH_FAIL(WH_PEER, "rank 2 did not come");
        usleep(10000);
    }
    return WH_OK;
}

static void fails(enum how how, enum wh_status want, const char *const *parts) {
    struct wh_launch_result r;
    const uint64_t began = wh_clock_ns();
    const struct wh_launch_options options = {.silence_ns = how == STOPS ? 500 * MS : 0};
    assert_int_equal(launch(options, stay, &how, &r), want);
    assert_true(wh_clock_ns() - began < 5000 * MS); /* of the 10 s that the others would stay */
    assert_int_equal(r.culprit, 2);
    assert_int_equal(wh_error()->rank, 2);
    assert_int_equal(wh_error()->step, 3);
    for (; *parts; parts++) message_has(*parts);
    assert_string_equal(console.data, ""); /* the cause is the caller's to tell, once */
}

static void test_fails(void **state) {
    (void)state;
    fails(FAILS, WH_DATA, (const char *[]){"rank 2 (step 3, reading data): tokens.bin: token 99", NULL});
    assert_int_equal(wh_error()->frames, 1);
    assert_string_equal(wh_error()->frame[0], "reading batch 7");
}

static void test_dies(void **state) {
    (void)state;
    fails(ABORTS, WH_PEER,
          (const char *[]){"rank 2 (step 3, reading data) was ended by SIGABRT", "claim 'a == b' does not hold", NULL});
    fails(
        IS_KILLED, WH_PEER,
        (const char *[]){
            "rank 2 (step 3, reading data: B3 (backward of micro-batch 3)) was ended by SIGKILL (from outside", NULL});
    fails(EXITS, WH_PEER, (const char *[]){"rank 2 (step 3, reading data) ended with exit code 9", "giving up", NULL});
}

static void test_silent(void **state) {
    (void)state;
    fails(STOPS, WH_PEER,
          (const char *[]){
              "rank 2 (step 3, reading data: B3 (backward of micro-batch 3)) gave no sign of life for 0.5 s: its "
              "process is stopped",
              NULL});
}

/* Computing for long without a word is no silence. */
static enum wh_status compute(struct wh_launch_rank *self, void *context) {
    const uint64_t began = wh_clock_ns();
    (void)context;
    wh_launch_at(self, 1, "computing");
    while (wh_clock_ns() - began < 1500 * MS) continue;
    return WH_OK;
}

static void test_busy(void **state) {
    (void)state;
    struct wh_launch_result r;
    assert_int_equal(launch((struct wh_launch_options){.ranks = 2, .silence_ns = 500 * MS}, compute, NULL, &r), WH_OK);
}

/* What all find is told as of one. */
static enum wh_status agree(struct wh_launch_rank *self, void *context) {
    const uint32_t *other = context;
    wh_launch_at(self, 3, "computing");
    return WH_FAIL(WH_DATA, self->rank == *other ? "the loss is infinite" : "the loss is not finite");
}

static void test_same_words(void **state) {
    (void)state;
    struct wh_launch_result r;
    uint32_t other = RANKS;
    assert_int_equal(launch((struct wh_launch_options){0}, agree, &other, &r), WH_DATA);
    assert_string_equal(wh_error()->message, "the loss is not finite");
    other = 3;
    assert_int_equal(launch((struct wh_launch_options){0}, agree, &other, &r), WH_DATA);
    message_has(" (step 3, computing): the loss is ");
}

/* Nothing starts where the folder does not allow it. */
static enum wh_status refuse(void *context) {
    (void)context;
    return WH_FAIL(WH_CONFIG, "%s", "not here");
}

static void test_prepare(void **state) {
    (void)state;
    struct wh_launch_result r;
    assert_int_equal(launch((struct wh_launch_options){.prepare = refuse}, agree, NULL, &r), WH_CONFIG);
    assert_string_equal(wh_error()->message, "not here");
}

/* What others cause is never the first cause, though it was told earlier. */
static void test_first_cause(void **state) {
    (void)state;
    fails(FAILS_AFTER_PEER, WH_DATA, (const char *[]){"rank 2 (step 3, reading data): tokens.bin", NULL});
}

/* A rank is killed in the middle of a checkpoint: what is half written goes, what is complete stays. */
static enum wh_status die_while_saving(struct wh_launch_rank *self, void *context) {
    const char *folder = context;
    struct wh_file_writer w;
    char path[256], *part;
    if (self->rank != 2) return stay(self, &(enum how){THROWS_AWAY});
    snprintf(path, sizeof path, "%s/checkpoints/step-1", folder);
    WH_TRY(wh_dir_create(path));
    snprintf(path, sizeof path, "%s/checkpoints/step-2", folder);
    WH_TRY(wh_dir_begin(path, &part));
    snprintf(path, sizeof path, "%s/memory.json", folder);
    WH_TRY(wh_file_create(path, &w));
    kill(getpid(), SIGKILL);
    return WH_OK;
}

static void test_half_written(void **state) {
    (void)state;
    char folder[TEST_FOLDER_BYTES], **names;
    struct wh_launch_result r;
    size_t count;
    assert_true(test_folder_make(folder, "launch"));
    assert_int_equal(launch((struct wh_launch_options){.folder = folder}, die_while_saving, folder, &r), WH_PEER);
    assert_int_equal(r.culprit, 2);
    assert_int_equal(wh_dir_list(folder, &names, &count), WH_OK);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "checkpoints");
    assert_string_equal(names[1], "lock");
    assert_string_equal(names[2], "ranks");
    wh_dir_list_free(names, count);
    char *checkpoints = wh_path_join(folder, "checkpoints");
    assert_int_equal(wh_dir_list(checkpoints, &names, &count), WH_OK);
    assert_int_equal(count, 1);
    assert_string_equal(names[0], "step-1");
    wh_dir_list_free(names, count);
    free(checkpoints);
    assert_int_equal(wh_dir_remove(folder), WH_OK);
}

/* --- signals --- */

static volatile sig_atomic_t asked;
static void remember(int number) { asked = number; }

struct signalled {
    int number, deaf_rank; /* deaf_rank: pays no attention; -1: none */
    int times;
};

static enum wh_status until_asked(struct wh_launch_rank *self, void *context) {
    const struct signalled *s = context;
    if ((int)self->rank == s->deaf_rank)
        signal(s->number, SIG_IGN);
    else
        signal(s->number, remember);
    if (self->rank == 0) {
        usleep(100000);
        for (int i = 0; i < s->times; i++) kill(getppid(), s->number), usleep(100000);
    }
    for (int i = 0; i < 3000 && !asked; i++) usleep(1000);
    if ((int)self->rank == s->deaf_rank) sleep(20);
    return asked == s->number ? WH_FAIL(WH_RETRY, "saved step 5") : WH_FAIL(WH_INTERNAL, "was not asked");
}

static void test_signals(void **state) {
    (void)state;
    const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        struct signalled s = {numbers[i], -1, 1};
        struct wh_launch_result r;
        assert_int_equal(launch((struct wh_launch_options){0}, until_asked, &s, &r), WH_RETRY);
        assert_int_equal(r.stopped_by, numbers[i]);
        assert_int_equal(r.culprit, -1);
        assert_int_equal(r.killed, 0);
        assert_string_equal(wh_error()->message, "saved step 5");
    }
}

static void test_deaf_rank(void **state) {
    (void)state;
    struct signalled term = {SIGTERM, 3, 1}, twice = {SIGINT, 3, 2};
    struct wh_launch_result r;
    assert_int_equal(launch((struct wh_launch_options){.stop_grace_ns = 500 * MS}, until_asked, &term, &r), WH_PEER);
    message_has("stopped by SIGTERM, but 1 of 4 ranks did not end and were killed");
    assert_int_equal(launch((struct wh_launch_options){0}, until_asked, &twice, &r), WH_RETRY); /* Ctrl-C again */
    message_has("interrupted twice: ");
    assert_int_equal(r.stopped_by, SIGINT);
}

/* --- nothing is left --- */

/* A rank has started a process of its own, which goes with it. */
static enum wh_status start_another(struct wh_launch_rank *self, void *context) {
    int *pipe_fds = context;
    if (self->rank == 1 && fork() == 0) {
        sleep(20);
        _exit(0);
    }
    close(pipe_fds[1]);
    return WH_OK;
}

static void test_grandchild(void **state) {
    (void)state;
    struct wh_launch_result r;
    int pipe_fds[2];
    char byte;
    const uint64_t began = wh_clock_ns();
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(launch((struct wh_launch_options){0}, start_another, pipe_fds, &r), WH_OK);
    close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0); /* ends when the last process that held the pipe is gone */
    close(pipe_fds[0]);
    assert_true(wh_clock_ns() - began < 5000 * MS);
}

static enum wh_status hold(struct wh_launch_rank *self, void *context) {
    (void)context;
    if (self->rank == 0) kill(getppid(), SIGKILL);
    sleep(20);
    return WH_OK;
}

/* The launcher itself is killed: its ranks go with it. */
static void test_launcher_dies(void **state) {
    (void)state;
    int pipe_fds[2], wait_status;
    char byte;
    const uint64_t began = wh_clock_ns();
    assert_int_equal(pipe(pipe_fds), 0);
    const int launcher = fork();
    if (launcher == 0) {
        struct wh_launch_result r;
        const struct wh_launch_options options = {.ranks = RANKS};
        wh_launch_run(&options, hold, pipe_fds, &r);
        _exit(0);
    }
    close(pipe_fds[1]);
    assert_int_equal(waitpid(launcher, &wait_status, 0), launcher);
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0);
    close(pipe_fds[0]);
    assert_true(wh_clock_ns() - began < 5000 * MS);
}

/* --- with a job --- */

static enum wh_status reduce_and_fail(struct wh_launch_rank *self, void *context) {
    const enum how how = *(const enum how *)context;
    uint32_t members[RANKS];
    struct wh_comm *comm;
    float *x;
    for (uint32_t i = 0; i < RANKS; i++) members[i] = i;
    WH_TRY(wh_comm_job_join(self->job, self->rank));
    WH_TRY(wh_comm_buffer(self->job, 4096, (void **)&x));
    WH_TRY(wh_comm_open(self->job, 0, "dp", members, RANKS, &comm));
    const struct wh_comm_call call = {.op = WH_ALL_REDUCE, .in = x, .out = x, .count = 1024, .dtype = WH_F32};
    for (int step = 0; step < 6; step++) {
        wh_launch_at(self, step, "all_reduce");
        if (self->rank == 2 && step == 3) {
            if (how == FAILS) return WH_FAIL(WH_DATA, "tokens.bin is damaged");
            go_wrong(self, how);
        }
        WH_TRY(wh_comm_run(comm, &call));
    }
    return WH_OK;
}

static void test_job(void **state) {
    (void)state;
    const enum how hows[] = {THROWS_AWAY, FAILS, IS_KILLED, EXITS};
    const enum wh_status want[] = {WH_OK, WH_DATA, WH_PEER, WH_PEER};
    for (int i = 0; i < 4; i++) {
        const struct wh_comm_job_config config = {.ranks = RANKS, .arena_bytes = 1 << 16};
        struct wh_comm_job *job;
        struct wh_launch_result r;
        enum how how = hows[i];
        assert_int_equal(wh_comm_job_create(&config, &job), WH_OK);
        assert_int_equal(launch((struct wh_launch_options){.job = job, .grace_ns = 5000 * MS, .pin = true},
                                reduce_and_fail, &how, &r),
                         want[i]);
        wh_comm_job_destroy(job);
        assert_int_equal(r.killed, 0); /* woken, not killed */
        assert_int_equal(r.culprit, want[i] ? 2 : -1);
        if (want[i]) message_has("rank 2 (step 3, all_reduce)");
        if (want[i]) assert_true(r.ended_ns < 1000 * MS);
    }
}

/* --- being started by others --- */

static const char *const *environment;
static const char *look_up(const char *name) {
    for (const char *const *e = environment; *e; e++)
        if (strncmp(*e, name, strlen(name)) == 0 && (*e)[strlen(name)] == '=') return *e + strlen(name) + 1;
    return NULL;
}

static struct wh_launch_place detect(const char *const *variables) {
    struct wh_launch_place p;
    environment = variables;
    assert_int_equal(wh_launch_detect(look_up, &p), WH_OK);
    return p;
}

static void test_detect(void **state) {
    (void)state;
    struct wh_launch_place p = detect((const char *[]){"HOME=/", NULL});
    assert_int_equal(p.world, 1);
    assert_null(p.launcher);
    p = detect((const char *[]){"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                                "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", NULL});
    assert_int_equal(p.world, 8);
    assert_int_equal(p.rank, 3);
    assert_int_equal(p.local_rank, 1);
    assert_int_equal(p.local_world, 2);
    p = detect((const char *[]){"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
                                "OMPI_COMM_WORLD_LOCAL_SIZE=2", NULL});
    assert_int_equal(p.world, 4);
    assert_int_equal(p.local_world, 2);
    assert_string_equal(p.launcher, "mpirun (Open MPI)");
    p = detect((const char *[]){"PMI_SIZE=4", "PMI_RANK=1", NULL});
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.local_world, 4);
    /* inside sbatch or salloc, without srun: alone */
    p = detect((const char *[]){"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=7", NULL});
    assert_int_equal(p.world, 1);
    p = detect((const char *[]){"SLURM_NTASKS=4", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4", NULL}); /* case B69 */
    assert_int_equal(p.world, 4);
    assert_int_equal(p.rank, 3);
    p = detect((const char *[]){"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3", "SLURM_LOCALID=1",
                                "SLURM_STEP_TASKS_PER_NODE=2(x2)", NULL});
    assert_int_equal(p.local_world, 2);
    assert_int_equal(p.local_rank, 1);
}

static void test_singletons(void **state) {
    (void)state;
    environment = (const char *[]){"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", NULL};
    assert_int_equal(wh_launch_refuse_singletons(look_up), WH_UNSUPPORTED);
    message_has("mpirun (Open MPI) says 4 tasks (OMPI_COMM_WORLD_SIZE=4, this is rank 2)");
    environment = (const char *[]){"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", NULL};
    assert_int_equal(wh_launch_refuse_singletons(look_up), WH_OK);
    environment = (const char *[]){"PMI_SIZE=4", NULL};
    assert_int_equal(wh_launch_refuse_singletons(look_up), WH_CONFIG);
    message_has("PMI_SIZE says 4 tasks, but PMI_RANK is not set");
    environment = (const char *[]){"PMI_SIZE=1", NULL};
    assert_int_equal(wh_launch_refuse_singletons(look_up), WH_OK);
    environment = (const char *[]){"PMI_SIZE=four", "PMI_RANK=0", NULL};
    assert_int_equal(wh_launch_refuse_singletons(look_up), WH_CONFIG);
    environment = (const char *[]){"PMI_SIZE=4", "PMI_RANK=4", NULL};
    assert_int_equal(wh_launch_refuse_singletons(look_up), WH_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speech),       cmocka_unit_test(test_locked),        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_dies),         cmocka_unit_test(test_silent),        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_same_words),   cmocka_unit_test(test_prepare),       cmocka_unit_test(test_first_cause),
        cmocka_unit_test(test_half_written), cmocka_unit_test(test_signals),       cmocka_unit_test(test_deaf_rank),
        cmocka_unit_test(test_grandchild),   cmocka_unit_test(test_launcher_dies), cmocka_unit_test(test_job),
        cmocka_unit_test(test_detect),       cmocka_unit_test(test_singletons)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    wh_text_fini(&console);
    return failed;
}
