/* Memory shared between processes, sleeping on words in it, and watching processes.
 *
 * Segments have no name (memfd): no /dev/shm is needed, however small a container made it, and nothing is left behind. */
#ifndef WH_OS_SHM_H
#define WH_OS_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct wh_shm {
    void *data;
    size_t bytes;
    int fd; /* -1: none */
};

/* Maps `bytes` shared with every process that inherits or maps it. No page is there yet: touching one before
 * wh_shm_reserve may raise SIGBUS. Errors: NOMEM. */
enum wh_status wh_shm_create(size_t bytes, const char *label, struct wh_shm *out);

/* Gives the segment all its pages, on the calling process's memory node, zeroed. After that no access to it can fail.
 * Errors: NOMEM with needed and free bytes. */
enum wh_status wh_shm_reserve(const struct wh_shm *shm, const char *label);

/* Unmaps and closes here; other processes keep theirs. Takes an empty segment. */
void wh_shm_release(struct wh_shm *shm);

/* What can still be taken, in bytes: the machine's free memory or what the control group still allows; 0 if unknown. */
size_t wh_shm_free_bytes(void);

/* Sleeps while *word == expected, at most timeout_ns; may return early. Works across processes. */
void wh_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void wh_futex_wake_all(_Atomic uint32_t *word);

void wh_cpu_yield(void);
void wh_sleep_ns(uint64_t ns);

/* A handle on a process that stays the same process. -1 if there is none or the kernel has no pidfd. */
int wh_pidfd_open(int pid);
bool wh_pidfd_ended(int pidfd); /* false for -1 */
void wh_pidfd_close(int pidfd); /* takes -1 */

int wh_process_id(void);
int wh_process_parent_id(void);

/* State of a process: 'R' running, 'S' sleeping, 'T' stopped, 'Z' ended, ...; 0: there is none. cpu_ns: processor time it
 * has used so far. */
char wh_process_state(int pid, uint64_t *cpu_ns);

/* What a status of waitpid(2) says. */
struct wh_process_end {
    int exit_code; /* -1: ended by a signal */
    int signal;    /* 0: exited */
};
struct wh_process_end wh_process_end(int wait_status);

#endif
