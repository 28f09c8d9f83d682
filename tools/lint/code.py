#!/usr/bin/env python3
"""Rules of STYLE.md that a line-by-line look can check. Prints one line per fault; exit 1 if any.

It relies on clang-format's layout: a function starts in column 0 with a line ending in ") {" and ends with "}" there."""
import os
import re
import subprocess
import sys

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 800

# What no C file may contain: (folders it holds for, pattern, reason).
BANNED = [
    ("src ref", r"\b(strcat|vsprintf|gets|strtok|alloca|tmpnam|mktemp)\(", "has no bound or no reason; use its n- or _r form"),
    ("src ref", r"\b(sprintf|strcpy)\(", "only right below the line that sizes the buffer with strlen"),
    ("src", r"\b(atoi|atol|atof)\(", "hides errors; use strtol and look"),
    ("src", r"\b(rand|srand|random|drand48)\(", "not reproducible; use base/rng.h"),
    ("src ref test bench", r"__attribute__\(\(weak|#\s*pragma\s+weak", "weak symbols make the link order decide"),
    ("src ref", r"fast-math|FP_CONTRACT|#\s*pragma\s+GCC\s+optimize|__attribute__\(\(optimize", "floating-point rules are set once, in the makefile"),
    ("src/tensor src/model src/optim",
     r"(?<![\w.>])(exp|exp2|expm1|log|log2|log1p|sin|cos|sincos|tan|tanh|erf|pow|cbrt)f?\(",
     "libm differs between machines; use Sleef_finz_* (docs/numbers.md)"),
    ("src", r"(?<!\w)(printf|puts|putchar|exit|_exit|abort|perror)\(|\bfprintf\(std(err|out)", "library code neither prints nor exits"),
]
# Where a rule of BANNED does not hold: the word -> files.
EXEMPT = {
    "fprintf": ["src/base/status.c"],                    # wh_assert_failed
    "_exit": ["src/os/process.c"],                       # the end of a forked child
    "abort": ["src/base/status.c", "src/base/text.c"],   # the same; no memory for a message
}
PATHS = re.compile(r"(?<![\w.$}])/(work|root|home/\w+|tmp)\b(?!-)")
OPEN_ENDS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
FUNCTION = re.compile(r"^(?!static|typedef|enum|union|extern|__)\w[^;={(]*?\b(\w+)\(")


def without_comments(text):
    """The text with comments and string contents blanked, line numbers kept."""
    def blank(match):
        piece = match.group(0)
        return '""' if piece[0] == '"' else re.sub(r"[^\n]", " ", piece)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def applies(folders, path):
    return any(path.startswith(f + "/") for f in folders.split())


def banned_calls(path, code):
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        for folders, pattern, reason in BANNED:
            found = re.search(pattern, line)
            if not found or not applies(folders, path) or (path.startswith("src/cli/") and "neither prints" in reason):
                continue
            word = re.match(r"\w*", found.group(0)).group(0)
            if word in ("sprintf", "strcpy") and "strlen(" in "".join(lines[max(0, number - 8):number]):
                continue
            if path not in EXEMPT.get(word, []):
                yield f"{path}:{number}: '{found.group(0)}': {reason}"


def function_lengths(path, code):
    start = None
    for number, line in enumerate(code.split("\n"), 1):
        if start is None and re.match(r"^\w.*\)\s*\{$|^\s+.*\)\s*\{$", line) and not line.startswith(" "):
            start = number
        elif start is None and re.match(r"^ .*\) \{$", line):  # parameters broken over lines
            start = number
        elif start and line == "}":
            if number - start + 1 > MAX_FUNCTION_LINES:
                yield f"{path}:{start}: function of {number - start + 1} lines; {MAX_FUNCTION_LINES} are the most"
            start = None


def exported_functions(path, code, headers):
    """Every function of src that isn't static is declared in a header and is called wh_..."""
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        match = FUNCTION.match(line)
        is_definition = match and re.match(r"[^;{}]*\)\s*\{", "\n".join(lines[number - 1:number + 8]))
        if not is_definition or match.group(1) == "main":
            continue
        name = match.group(1)
        if not name.startswith("wh_"):
            yield f"{path}:{number}: {name} is neither static nor called wh_..."
        elif not re.search(r"\b" + name + r"\s*\(", headers):
            yield f"{path}:{number}: {name} is in no header; make it static or declare it"


def header_rules(path, text):
    guard = "WH_" + re.sub(r"\W", "_", path.removeprefix("src/")).upper()
    if not text.startswith("/*"):
        yield f"{path}:1: a header starts with a comment that says what it promises"
    found = re.search(r"^#ifndef (WH_\w+)_H$", text, re.M)
    if "#ifndef" in text and not (found and guard.startswith(found.group(1))):  # variants of one header may share a guard
        yield f"{path}: the include guard should be {guard}"
    if "#ifndef" not in text and "included" not in text[:text.find("*/")].lower():
        yield f"{path}: no include guard {guard}; a file to be included several times says so at its top"


def text_rules(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if OPEN_ENDS.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()[:80]}"
        if PATHS.search(line) and not (path.startswith("test/") and "XXXXXX" in line):
            yield f"{path}:{number}: path of one machine: {line.strip()[:80]}"


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    faults, texts = [], {}
    for path in listed.stdout.split("\n"):
        if path and os.path.isfile(path):
            try:
                texts[path] = open(path, encoding="utf-8").read()
            except UnicodeDecodeError:
                pass  # binary test vectors
    headers = "\n".join(t for p, t in texts.items() if p.startswith("src/") and p.endswith((".h", ".def")))
    for path, text in texts.items():
        if not path.startswith("tools/lint/"):
            faults += text_rules(path, text)
        if not path.endswith((".c", ".h")):
            continue
        if text.count("\n") > MAX_FILE_LINES:
            faults.append(f"{path}: {text.count(chr(10))} lines; {MAX_FILE_LINES} are the most")
        code = without_comments(text)
        faults += banned_calls(path, code)
        faults += function_lengths(path, code)
        if path.startswith("src/") and path.endswith(".c"):
            faults += exported_functions(path, code, headers)
        if path.startswith("src/") and path.endswith(".h"):
            faults += header_rules(path, text)
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults else 0)


main()
