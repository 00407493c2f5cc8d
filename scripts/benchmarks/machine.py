"""What the figures were measured on, without its name, and what a process has used."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

MIB = 1 << 20


def describe() -> dict[str, object]:
    """Cores, memory, kernel and interpreter; the load tells whether others were at work."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 30), 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "orjson": version("orjson"),
        "root": os.geteuid() == 0,
        "load": round(os.getloadavg()[0], 1),
    }


def peak(pid: int | None = None) -> int:
    """Peak resident bytes of a process, or of this one.  Not `ru_maxrss`, which begins with what the parent had."""
    path = Path(f"/proc/{pid or 'self'}/status")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmHWM in {path}; the benches need Linux")


def cpu_of_self() -> float:
    """CPU seconds of this process and its threads, without children."""
    times = os.times()
    return times.user + times.system


def say(text: str) -> None:
    """Progress."""
    print(f"bench:   {text}", file=sys.stderr, flush=True)
