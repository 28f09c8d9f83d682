#!/bin/sh
# Checks that what this project needs is installed, and installs what is missing where that is possible.
#
#   tools/deps.sh [--check] GROUP...     build | demo | test | bench   (build is always checked)
#
# Missing packages are installed with apt-get where we are root or sudo needs no password; otherwise, and with --check,
# the one line that installs them is printed and the exit code is 1. Silent when everything is there.
# Why each library is used: docs/dependencies.md.
set -u
missing=
want() { # PACKAGE COMMAND...: the package is needed unless the command succeeds
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
found() { # any of these files exists
    for file; do [ -e "$file" ] && return; done
    return 1
}

check_build() {
    want gcc command -v gcc
    want libc6-dev found /usr/include/stdio.h
    want make command -v make
    want pkg-config command -v pkg-config
    if ! pkg-config --exists jansson yaml-0.1 libxxhash libpcre2-8 sleef hwloc 2>/dev/null; then
        want libjansson-dev pkg-config --exists jansson
        want libyaml-dev pkg-config --exists yaml-0.1
        want libxxhash-dev pkg-config --exists libxxhash
        want libpcre2-dev pkg-config --exists libpcre2-8
        want libsleef-dev pkg-config --exists sleef
        want libhwloc-dev pkg-config --exists hwloc
    fi
}
check_demo() { want bible-kjv command -v bible; }
check_test() {
    want libcmocka-dev pkg-config --exists cmocka
    want python3 command -v python3
    want clang command -v clang
    want libclang-rt-dev found /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
    want libomp-dev found /usr/lib/llvm-*/lib/libomp.so
    want clang-format command -v clang-format
    want spin command -v spin
}
check_bench() {
    want libopenblas0-pthread found /usr/lib/*/openblas-pthread/libopenblas.so.0
    want libdnnl2 found /usr/lib/*/libdnnl.so.2
    want python3-torch found /usr/lib/python3/dist-packages/torch
    want python3-numpy found /usr/lib/python3/dist-packages/numpy
    want openmpi-bin command -v mpirun.openmpi
    want libopenmpi-dev command -v mpicc.openmpi
    want mpich command -v mpirun.mpich
    want libmpich-dev command -v mpicc.mpich
}

check_only=
[ "${1:-}" = --check ] && check_only=1 && shift
check_build
for group; do
    case $group in
        build) ;;
        demo | test | bench) "check_$group" ;;
        *) echo "tools/deps.sh: no group '$group'; there are: build demo test bench" >&2 && exit 2 ;;
    esac
done
[ -z "$missing" ] && exit 0

as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
if [ -n "$check_only" ] || ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! sudo -n true 2>/dev/null; }; then
    echo "missing packages; install them with:  sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "installing:$missing" >&2
log=$(mktemp) && trap 'rm -f "$log"' EXIT
install() {
    # shellcheck disable=SC2086  # both are lists of words
    $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
install >"$log" 2>&1 && exit 0
tail -n 20 "$log" >&2
echo "cannot install; by hand:  sudo apt-get install --no-install-recommends$missing" >&2
exit 1
