#!/bin/sh
# Collectives beside Open MPI, MPICH and Gloo (bench/collectives/run.py --help). On a machine with other work, as root:
#
#   setsid -w sh -c 'echo -20 >/proc/self/autogroup; exec bench/collectives/run.sh'
#
# keeps that work out of the measurement where the kernel groups processes by session.
set -eu
tools/deps.sh build bench
make -s all build/release/bench/machine/bench_machine
exec bench/collectives/run.py "$@"
