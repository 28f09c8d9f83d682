/* Runs step lists of coll/plan.h: any algorithm of the table for real, over messages between ranks. Slower than the
 * operations of comm.h on one machine (a message is a copy or two), and the order of sums is the algorithm's: canonical only
 * where wh_coll_algorithm.canonical says so. For measuring algorithms, for proving them, and as what a transport between
 * machines will run.
 *
 *     WH_TRY(wh_comm_exec_make(comm, &call, "ring", 0, &e));    each member, with the same call and algorithm
 *     WH_TRY(wh_comm_exec_run(e));                              any number of times, in the same order on all members
 *
 * Call, buffers, errors and ledger row are those of comm.h; MAX and MIN take the place of the plan's ADD. */
#ifndef WH_COMM_EXEC_H
#define WH_COMM_EXEC_H

#include "comm/comm.h"

struct wh_comm_exec;

/* `chunks`: for algorithms that pipeline; 0: one. Local. Errors: CONFIG, UNSUPPORTED (with the algorithms that would do),
 * NOMEM. */
enum wh_status wh_comm_exec_make(struct wh_comm *comm, const struct wh_comm_call *call, const char *algorithm,
                                 uint32_t chunks, struct wh_comm_exec **out);

/* Blocks until all members have come and this rank has done its part. */
enum wh_status wh_comm_exec_run(struct wh_comm_exec *e);
void wh_comm_exec_free(struct wh_comm_exec *e); /* takes NULL */

/* Bytes in which messages from outside the arena travel: what does not fit one piece is received while its rest is sent. */
size_t wh_comm_piece_bytes(const struct wh_comm *comm);
/* Messages from the arena that are longer are read where they lie. */
size_t wh_comm_piped_most_bytes(void);

#endif
