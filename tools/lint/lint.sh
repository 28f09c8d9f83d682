#!/bin/sh
# `make lint`: everything about the sources that needs no running. All checks run; exit 1 if one found a fault.
set -u
faults=0
check() { # NAME COMMAND...
    name=$1
    shift
    "$@" || { echo "lint: $name failed" >&2; faults=$((faults + 1)); }
}
sources() { git ls-files -co --exclude-standard "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }

format=$(command -v clang-format-14 || command -v clang-format) || { echo "lint: clang-format is missing" >&2; exit 1; }
formatted() { sources 'src/*.[ch]' 'ref/*.[ch]' 'test/*.[ch]' 'bench/*.[ch]' | xargs "$format" --dry-run -Werror; }

headers_alone() { # each header compiles without help from what was included before it
    bad=0
    for h in $(sources 'src/*.h' 'ref/*.h' | xargs grep -l '^#ifndef'); do
        echo "#include \"${h#src/}\"" | ${CC:-gcc} -std=c11 -Wall -Werror ${CPPFLAGS:--Isrc -I. -D_GNU_SOURCE} -march=x86-64-v4 -fsyntax-only -x c - ||
            { echo "$h does not compile alone"; bad=1; }
    done
    return $bad
}

check "format (make format mends it)" formatted
check "layers" python3 tools/lint/layers.py
check "code rules" python3 tools/lint/code.py
check "headers alone" headers_alone
[ "$faults" -eq 0 ] && echo "lint: fine"
