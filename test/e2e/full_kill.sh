#!/bin/sh
# As kill.sh, 20 rounds (case B42).
set -- 20
. test/e2e/lib/kill.sh
