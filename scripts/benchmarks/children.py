"""Processes of their own: `python -m benchmarks.X ARGUMENTS` that prints one line of JSON, and places to work in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    """Ours without what would choose another model or address, and with the packages in reach."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}", **more}


def run(module: str, *arguments: object, python: str = sys.executable, cwd: Path = ROOT, **more: str) -> Any:
    """Run one and read what it says in its last line.  What it writes to stderr is shown when it fails."""
    command = [python, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def workplace(needed: int = 0) -> Iterator[Path]:
    """A folder on the disk, removed afterwards; RuntimeError when less than `needed` bytes are free."""
    place = Path(tempfile.mkdtemp(prefix="makimono-bench-", dir=ROOT / "contexts" if needed else None))
    try:
        free = shutil.disk_usage(place).free
        if free < needed:
            raise RuntimeError(f"{place} has {free >> 20} MiB free; this bench needs {needed >> 20}")
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
