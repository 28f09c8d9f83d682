#!/bin/sh
# Thread sanitizer over the protocol of src/comm: ranks as threads of one process (unit/comm/test_threads.c).
# full_mutants.sh shows that it finds a wrong memory order.
set -eu
program=build/tsan/test/unit/comm/test_threads
${MAKE:-make} -s CONFIG=tsan CC=gcc "$program"
# Without randomized addresses: the sanitizer's own memory has fixed places, which newer kernels may give away.
TSAN_OPTIONS=halt_on_error=1 setarch "$(uname -m)" -R "$program"
