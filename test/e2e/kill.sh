#!/bin/sh
# Killed (-9) at random moments and gone on with: the numbers of the unbroken run. More rounds in full_kill.sh.
set -- 5
. test/e2e/lib/kill.sh
