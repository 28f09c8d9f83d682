#!/bin/sh
# `make lint` finds what it is for: a small tree with one fault of each kind.
set -eu
root=$PWD tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
git init -q .
mkdir -p src/base src/arch src/tensor tools
cp -r "$root/tools/lint" tools
cp "$root/LAYERS" .
# In two halves, so that lint finds nothing in this file.
todo=TO todo=${todo}DO home=/ho home=${home}me

cat >src/arch/good.h <<'E2'
/* A header. */
#ifndef WH_ARCH_GOOD_H
#define WH_ARCH_GOOD_H
int wh_good(int x);
#endif
E2
cat >src/arch/good.c <<'E2'
#include "arch/good.h"

int wh_good(int x) { return x; }
E2
python3 tools/lint/layers.py
python3 tools/lint/code.py

expect() { # TOOL TEXT: the tool fails and says the text
    if python3 "tools/lint/$1.py" >out; then echo "$1 found nothing; expected: $2"; exit 1; fi
    grep -q -- "$2" out || { echo "$1 did not say: $2"; cat out; exit 1; }
}
bad() { # FILE LINE...: a file with these lines
    file=$1
    shift
    printf '%s\n' "$@" >"$file"
}

bad src/base/a.c '#include "arch/good.h"' && expect layers 'base may not include arch'
bad src/base/a.c '#include <unistd.h>' && expect layers '<unistd.h> is for os'
bad src/base/a.c '#include "a.h"' && expect layers 'write the folder too'
mkdir src/novel && bad src/novel/a.c && expect layers 'not in LAYERS' && rm -r src/novel src/base/a.c
bad src/base/b.c "/* $todo: finish */" && expect code 'unfinished'
bad src/base/b.c "static const char *p = \"$home/someone/x\";" && expect code 'path of one machine'
bad src/base/b.c 'static void f(char *a) { strcpy(a, a); }' && expect code 'strcpy'
bad src/base/b.c 'static void f(void) { printf("x"); }' && expect code 'neither prints'
bad src/tensor/b.c 'static float f(float x) { return expf(x); }' && expect code 'libm differs' && rm src/tensor/b.c
bad src/base/b.c 'int wh_undeclared(void) { return 1; }' && expect code 'in no header'
bad src/base/b.c 'int other(void) { return 1; }' && expect code 'neither static nor'
{ echo 'static void f(void) {'; seq -f '    x(%g);' 70; echo '}'; } >src/base/b.c && expect code 'function of 72 lines'
seq -f '/* %g */' 801 >src/base/b.c && expect code '801 lines'
bad src/base/b.c && bad src/base/b.h 'int x;' && expect code 'a header starts with a comment' && expect code 'no include guard WH_BASE_B_H'
bad src/base/b.h '/* B. */' '#ifndef B_H' '#endif' && expect code 'guard should be WH_BASE_B_H'
