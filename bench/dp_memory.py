"""Memory of a job of several processes, for `bench/dp.py`.

The resident size of a process counts shared pages in full, so that the sum over ranks that map one arena, or libraries,
counts them once for each. The proportional size (PSS) gives each of n processes that map a page 1/n of it: its sum is what
the job takes from the machine. A shared arena is reserved in full before use; pages of it that nobody touched yet are in no
PSS but taken all the same, so arenas (memfd) count with what is reserved."""
import os
import time

PERIOD_SECONDS = 0.02
SHARE = 0.1  # of a processor that looking may take: the kernel walks all page tables


def tree(roots):
    """Process ids: the roots and all that descend from them."""
    parent = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            pass  # ended meanwhile
    found = set(roots)
    while more := {pid for pid, p in parent.items() if p in found} - found:
        found |= more
    return found


def rollup(pid):
    """KiB by name: /proc/PID/smaps_rollup."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    return {words[0].rstrip(":"): int(words[1]) for words in lines}


def reserved(pid):
    """{inode: KiB} of the memory files that a process holds open."""
    files = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        if os.readlink(path).startswith("/memfd:"):
            status = os.stat(path)
            files[status.st_ino] = status.st_blocks // 2
    return files


def job_mib(roots):
    """What all processes under `roots` take at this moment, MiB."""
    private, shared, arenas = 0, 0, {}
    for pid in tree(roots):
        try:
            sizes, files = rollup(pid), reserved(pid)
        except OSError:
            continue  # ended meanwhile
        private += sizes.get("Pss", 0) - sizes.get("Pss_Shmem", 0)
        shared += sizes.get("Pss_Shmem", 0)
        arenas.update(files)
    return (private + max(shared, sum(arenas.values()))) / 1024


def peak_mib(children):
    """The most that the children (subprocess.Popen) and their descendants take until all have ended, MiB."""
    peak = 0
    while any(child.poll() is None for child in children):
        began = time.perf_counter()
        peak = max(peak, job_mib(child.pid for child in children if child.returncode is None))
        time.sleep(max(PERIOD_SECONDS, (time.perf_counter() - began) / SHARE))
    return peak
