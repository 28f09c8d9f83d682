/* Schedule files: a plan as text that people write and read (docs/formats/schedule.md).
 *
 *     wanhe schedule 1
 *     ranks 2
 *     micro-batches 3
 *     messages derived          # or written: then the programs below hold them
 *
 *     rank 0
 *     F0 F1 B0 F2 B1 B2
 *     rank 1
 *     F0 B0 F1 B1 F2 B2 */
#ifndef WH_SCHED_FORMAT_H
#define WH_SCHED_FORMAT_H

#include "base/faults.h"
#include "base/text.h"
#include "sched/program.h"

enum { WH_SCHED_TEXT_BYTES_MAX = 1 << 26 };

/* Reads a schedule file; everything wrong with its text is added to `faults` with its line. Whether the schedule is right is
 * not looked at: wh_sched_check does that, and must, before it is run. True if *out was written; free it with
 * wh_sched_plan_free. `file` is its name in messages. Cost: linear in the text and in the number of blocks that it declares
 * (WH_SCHED_BLOCKS_MAX at most). */
bool wh_sched_parse(const char *text, size_t bytes, const char *file, struct wh_sched_plan *out,
                    struct wh_faults *faults);

/* Appends the plan as a file. `derived`: without messages, which reading derives again; they are those of a plan from a
 * generator or from a derived file, others may differ. */
void wh_sched_print(const struct wh_sched_plan *p, bool derived, struct wh_text *out);

#endif
