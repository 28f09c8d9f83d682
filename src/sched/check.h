/* Proves a schedule, or says what is wrong with it. A schedule is right if
 *
 *   1. on each rank, every micro-batch goes through every chunk once forward and once backward, in one part or in two (input,
 *      then weights), each after what it needs; the backward takes the micro-batches of a chunk in ascending order, its
 *      weight parts likewise;
 *   2. slots balance: none is taken twice, used before it is taken or after it is freed, or left at the end; the numbers in
 *      the instructions are such that no two that are taken at a time are the same. An output is sent or passed on before
 *      the next is made, and goes to the stage that waits for it;
 *   3. between any two ranks, what is received is what is sent, in the same order;
 *   4. no wait runs in a circle: the programs are executed with queues of `depth` messages between two ranks (timing.h;
 *      0 is rendezvous). That is a proof for every greater depth, and for any speed of the ranks. */
#ifndef WH_SCHED_CHECK_H
#define WH_SCHED_CHECK_H

#include "base/faults.h"
#include "sched/program.h"

/* Adds what is wrong to `faults`, at most 16 lines: "FILE:LINE: rank 1, instruction 7 (B3): ...", with file and line where
 * the instruction has one. 1 and 2 are reported together; 3 only if they hold, 4 only if 3 holds. `file` may be NULL. True if
 * nothing is wrong. Running out of memory is a fault, too. */
bool wh_sched_check(const struct wh_sched_plan *p, uint32_t depth, const char *file, struct wh_faults *faults);

#endif
