#!/bin/sh
# `make help`: every target of the makefile whose line ends in "## what it does", and the knobs named at its top.
awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $1, $2 }' "$1"
echo
awk '/^#   [A-Z_]+=/ { print substr($0, 3) }' "$1"
