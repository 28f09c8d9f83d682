/* How OpenMP's threads wait for each other.
 *
 * Left to itself GNU OpenMP spins for milliseconds at the end of each parallel region, which on a machine that does
 * other work too takes the processor from the very thread that is waited for (a tiny run on two busy cores: 22 s instead
 * of 0.5 s). Sleeping at once costs a wake-up, about 50 us, for each of the thousands of regions of a step. Between the
 * two: spin for about as long as a wake-up takes, then sleep. */
#ifndef WH_OS_THREADS_H
#define WH_OS_THREADS_H

/* First thing in main: where neither OMP_WAIT_POLICY nor the runtime's own variable is set, sets the latter and starts
 * this program again (the runtime reads them before main). Returns if there is nothing to do or it can't be done. */
void wh_threads_prepare(char **argv);

#endif
