/* Requests to stop: SIGTERM, SIGUSR1 (a scheduler's warning: save and leave with 75), SIGHUP (the terminal went away: the
 * same, unless nohup has it ignored) and SIGINT (Ctrl-C: save and leave with 130). The handler only remembers the first; the training loop looks between steps. A second SIGINT kills.
 * A reader of the output that went away (SIGPIPE) doesn't end the run: its log is in the run folder too. */
#ifndef WH_OS_SIGNAL_H
#define WH_OS_SIGNAL_H

void wh_signal_watch(void);

/* Exit code of a run that `number` stopped after it saved: 130 for SIGINT, 75 (try again) for the others. */
int wh_signal_exit_code(int number);

/* 0, or the number of the signal that asked to stop. */
int wh_signal_pending(void);

#endif
