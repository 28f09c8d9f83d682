#include "os/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "os/memory.h"

enum wh_status wh_shm_create(size_t bytes, const char *label, struct wh_shm *out) {
    *out = (struct wh_shm){NULL, 0, -1};
    if (bytes == 0) return WH_OK;
    int fd = memfd_create(label, MFD_CLOEXEC);
    if (fd < 0) return WH_FAIL(WH_NOMEM, "%s: cannot create shared memory: %s", label, strerror(errno));
    if (ftruncate(fd, (off_t)bytes) != 0) goto failed;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) goto failed;
    madvise(p, bytes, MADV_HUGEPAGE); /* an advice: most kernels give shared memory none */
    *out = (struct wh_shm){p, bytes, fd};
    return WH_OK;
failed:;
    int reason = errno;
    close(fd);
    return WH_FAIL(WH_NOMEM, "%s: cannot map %zu bytes of shared memory: %s", label, bytes, strerror(reason));
}

enum wh_status wh_shm_reserve(const struct wh_shm *shm, const char *label) {
    size_t available = wh_shm_free_bytes();
    if (shm->bytes == 0) return WH_OK;
    /* Asked before the kernel is: it would rather kill a process than refuse the last page. */
    if (available && shm->bytes > available) {
        return WH_FAIL(WH_NOMEM, "%s: needs %zu bytes of shared memory, %zu are free", label, shm->bytes, available);
    }
    int rc;
    do rc = fallocate(shm->fd, 0, 0, (off_t)shm->bytes);
    while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        return WH_FAIL(WH_NOMEM, "%s: needs %zu bytes of shared memory, %zu are free: %s", label, shm->bytes, available,
                       strerror(errno));
    }
    for (size_t i = 0; i < shm->bytes; i += 4096) ((volatile char *)shm->data)[i] = 0;
    return WH_OK;
}

void wh_shm_release(struct wh_shm *shm) {
    if (shm->data) munmap(shm->data, shm->bytes);
    if (shm->data && shm->fd >= 0) close(shm->fd);
    *shm = (struct wh_shm){NULL, 0, -1};
}

/* The number in a file of the control group, SIZE_MAX for "max" or no such file. */
static size_t group_number(const char *name) {
    char path[64];
    size_t value = SIZE_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", name);
    FILE *f = fopen(path, "re");
    if (!f) return SIZE_MAX;
    if (fscanf(f, "%zu", &value) != 1) value = SIZE_MAX;
    fclose(f);
    return value;
}

size_t wh_shm_free_bytes(void) {
    size_t machine = wh_memory_available_bytes(), most = group_number("memory.max");
    if (most == SIZE_MAX) return machine;
    size_t used = group_number("memory.current");
    size_t group = used == SIZE_MAX ? most : used < most ? most - used : 0;
    return machine && machine < group ? machine : group;
}

void wh_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns) {
    struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAIT, expected, &t, NULL, 0);
}

void wh_futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wh_cpu_yield(void) { sched_yield(); }

void wh_sleep_ns(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

int wh_pidfd_open(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

bool wh_pidfd_ended(int pidfd) {
    struct pollfd p = {pidfd, POLLIN, 0};
    return pidfd >= 0 && poll(&p, 1, 0) == 1;
}

void wh_pidfd_close(int pidfd) {
    if (pidfd >= 0) close(pidfd);
}

int wh_process_id(void) { return (int)getpid(); }
int wh_process_parent_id(void) { return (int)getppid(); }

char wh_process_state(int pid, uint64_t *cpu_ns) {
    char path[40], text[512];
    unsigned long long user = 0, system = 0;
    *cpu_ns = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name || after_name[1] != ' ') return 0;
    char state = after_name[2];
    if (sscanf(after_name + 3, "%*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2) {
        *cpu_ns = (uint64_t)((user + system) * (1000000000u / (unsigned long long)sysconf(_SC_CLK_TCK)));
    }
    return state;
}

struct wh_process_end wh_process_end(int wait_status) {
    if (WIFSIGNALED(wait_status)) return (struct wh_process_end){-1, WTERMSIG(wait_status)};
    return (struct wh_process_end){WEXITSTATUS(wait_status), 0};
}
