/* Runs a function in several rank processes of one job, as a launcher would: creates the job, forks, waits, reports ends
 * to the job, kills what is left at a limit. The verdict of a rank is the status it returns, with its error record. */
#ifndef WH_TEST_SUPPORT_RANKS_H
#define WH_TEST_SUPPORT_RANKS_H

#include "comm/comm.h"

enum { TEST_RANKS_SHARED_BYTES = 1 << 20 };

struct test_rank_end {
    bool started, killed_at_limit;
    int exit_code, signal; /* exit_code: 0 if the function returned */
    enum wh_status status; /* what it returned */
    double seconds;        /* from the fork to the end */
    char message[WH_ERROR_MESSAGE_BYTES];
    char frame[WH_ERROR_FRAME_BYTES];
};

struct test_ranks {
    struct wh_comm_job_config config;
    /* Rank: has joined already unless `no_join`. */
    enum wh_status (*body)(struct wh_comm_job *job, uint32_t rank, const struct test_ranks *t);
    const void *context;
    bool no_join;
    double limit_s;       /* 0: 60 */
    uint32_t stopped;     /* bits of ranks that stop themselves: killed once all others have ended */
    void *shared;         /* TEST_RANKS_SHARED_BYTES, zeroed, that all ranks see */
    double first_death_s; /* out: when the first rank had ended otherwise than by returning; since the fork */
    struct test_rank_end end[WH_COMM_RANKS_MAX]; /* out */
};

/* Returns how many ranks did not end with WH_OK. Call test_ranks_free afterwards. */
uint32_t test_ranks_run(struct test_ranks *t);
void test_ranks_free(struct test_ranks *t);

/* Prints how each rank ended; for a test that is about to fail. */
void test_ranks_print(const struct test_ranks *t);

/* For ranks of which all should end with WH_OK: runs them, prints how they ended if one didn't, frees. Returns how many. */
uint32_t test_ranks_bad(struct test_ranks *t);

/* In a body: leaves with a message if the claim doesn't hold. */
#define RANK_CHECK(claim, ...)                                              \
    do {                                                                    \
        if (!(claim)) return WH_FAIL(WH_INTERNAL, #claim ": " __VA_ARGS__); \
    } while (0)

#endif
