#!/bin/sh
# tools/deps.sh is silent where all is there, and names what is missing in one line that can be run.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/bin"
for program in sh id gcc make pkg-config; do ln -s "$(command -v $program)" "$tmp/bin/$program"; done

said=$(tools/deps.sh --check build 2>&1) || { echo "expected all of build: $said"; exit 1; }
[ -z "$said" ] || { echo "expected silence: $said"; exit 1; }

if said=$(PATH=$tmp/bin tools/deps.sh --check demo 2>&1); then echo "bible-kjv is out of sight but not missed"; exit 1; fi
expected='missing packages; install them with:  sudo apt-get install --no-install-recommends bible-kjv'
[ "$said" = "$expected" ] || { printf 'expected: %s\nit said: %s\n' "$expected" "$said"; exit 1; }

rm "$tmp/bin/gcc"
said=$(PATH=$tmp/bin tools/deps.sh --check build 2>&1) && exit 1
case $said in *" gcc") ;; *) echo "expected gcc alone: $said"; exit 1 ;; esac

if tools/deps.sh --check nonsense 2>/dev/null; then echo "accepts a group that does not exist"; exit 1; fi
