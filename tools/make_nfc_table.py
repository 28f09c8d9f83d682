#!/usr/bin/env python3
"""Writes src/data/nfc_table.c: what NFC's quick check has to know of each character, from Python's unicodedata.

Class 255: the character is not in NFC, or may join the one before it (NFC_Quick_Check No or Maybe). Others: the
canonical combining class, where it is not 0. Usage: tools/make_nfc_table.py > src/data/nfc_table.c
"""
import unicodedata

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def joins_the_one_before():
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals
    for c in CODE_POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(p, 16)) for p in parts)
            if unicodedata.normalize("NFC", pair) == chr(c):
                found.add(int(parts[1], 16))
    return found


def main():
    joins = joins_the_one_before()
    runs = []
    for c in CODE_POINTS:
        stable = unicodedata.normalize("NFC", chr(c)) == chr(c) and c not in joins
        kind = unicodedata.combining(chr(c)) if stable else 255
        if kind and runs and runs[-1][1] == c - 1 and runs[-1][2] == kind:
            runs[-1][1] = c
        elif kind:
            runs.append([c, c, kind])
    print("/* Written by tools/make_nfc_table.py from Unicode %s; see nfc.h. */" % unicodedata.unidata_version)
    print('#include "data/nfc.h"\n\nconst struct wh_nfc_run wh_nfc_table[] = {')
    for at in range(0, len(runs), 4):
        print("    " + " ".join("{0x%x, 0x%x, %d}," % tuple(r) for r in runs[at:at + 4]))
    print("};\n\nconst size_t wh_nfc_table_count = sizeof wh_nfc_table / sizeof *wh_nfc_table;")


main()
