#!/usr/bin/env python3
"""Checks every #include of src, ref, test and bench against the file LAYERS. Prints one line per fault; exit 1 if any."""
import fnmatch
import os
import re
import subprocess
import sys


def read_layers(path):
    """LAYERS as ({folder: all folders it may include}, [(system header pattern, folders)])."""
    direct, system = {}, []
    for number, line in enumerate(open(path), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        left, colon, right = line.partition(":")
        if not colon:
            sys.exit(f"{path}:{number}: expected 'folder: others'")
        if left.startswith("<"):
            system += [(header, right.split()) for header in left.split()]
        else:
            direct[left] = right.split()
    allowed = {}
    for folder, others in direct.items():  # in file order, so a cycle or a forward reference is an unknown name
        allowed[folder] = {folder}
        for other in others:
            if other not in allowed:
                sys.exit(f"{path}: '{folder}' names '{other}', which no earlier line explains")
            allowed[folder] |= allowed[other]
    return allowed, system


def folder_of(path):
    """src/tensor/vec.c -> tensor; test/unit/x.c -> test; None outside the tree."""
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]


def check_file(path, allowed, system):
    folder = folder_of(path)
    if folder not in allowed:
        yield f"{path}: folder '{folder}' is not in LAYERS"
        return
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        include = re.match(r'\s*#\s*include\s*(["<][^">]+[">])', line)
        if not include:
            continue
        name = include.group(1)
        if name[0] == "<":
            rules = [folders for pattern, folders in system if fnmatch.fnmatch(name, pattern)]
            if rules and folder not in rules[0]:
                yield f"{path}:{number}: {name} is for {', '.join(rules[0])} only"
            continue
        name = name.strip('"')
        if name.startswith("."):
            name = os.path.normpath(os.path.join(os.path.dirname(path), name))
        target = folder_of("src/" + name if os.path.exists("src/" + name) else name)
        if "/" not in name and folder != "ref":  # ref/ needs nothing from here and may be copied out
            yield f"{path}:{number}: write the folder too: #include \"folder/{name}\""
        elif "/" in name and target not in allowed[folder]:
            yield f"{path}:{number}: {folder} may not include {target} (see LAYERS)"


def main():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src", "ref", "test", "bench"],
                           capture_output=True, text=True, check=True).stdout.split()
    allowed, system = read_layers("LAYERS")
    faults = [fault for path in files if path.endswith((".c", ".h", ".def")) and os.path.exists(path)
              for fault in check_file(path, allowed, system)]
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(1 if faults else 0)


main()
