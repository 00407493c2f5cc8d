"""The real daemon, `main.py run`, over a local tracker, and what it uses while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks import children, machine
from benchmarks.settings import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKS = os.sysconf("SC_CLK_TCK")


class Daemon:
    """A running one.  `log` is what it says, `contexts` its base_dir."""

    def __init__(self, place: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.log = place / "daemon.log"
        self.contexts = place / "contexts"

    @property
    def proc(self) -> Path:
        return Path("/proc") / str(self.process.pid)

    def cpu(self) -> float:
        """CPU seconds of the daemon and of the children that it has waited for."""
        fields = (self.proc / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS

    def memory(self) -> float:
        """MiB that are in memory."""
        for line in (self.proc / "status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / machine.MIB
        raise RuntimeError("the daemon has ended")

    def descriptors(self) -> int:
        """How many are open."""
        return len(list((self.proc / "fd").iterdir()))

    def file(self, name: str) -> int:
        """Bytes of a file of the base_dir, 0 when there is none."""
        path = self.contexts / name
        return path.stat().st_size if path.exists() else 0


def configured(place: Path, url: str, local: dict[str, Any], **sections: Any) -> Path:
    """The config.yaml that is written for a daemon in `place`; `sections` are further ones."""
    config = {
        "task_sources": ["local"],
        "local": local,
        "context_storage": {"base_dir": str(place / "contexts")},
        "llm": {
            "provider": "openai",
            "openai": {"model": MODEL, "context_length": 200_000, "base_url": url, "api_key": "bench-key-0000"},
        },
        "sandbox": {"kind": "none"},
        **sections,
    }
    path = place / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def command(config: Path, *arguments: str) -> list[str]:
    """`main.py run` with `arguments`."""
    return [sys.executable, str(children.ROOT / "main.py"), "run", *arguments, "--config", str(config)]


@contextmanager
def running(place: Path, *arguments: str, url: str, local: dict[str, Any], **sections: Any) -> Iterator[Daemon]:
    """`main.py run` with `arguments`; ended with SIGTERM if it has not ended by itself."""
    started = command(configured(place, url, local, **sections), *arguments)
    with (place / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            started, cwd=place, env=children.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield Daemon(place, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
