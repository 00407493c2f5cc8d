"""The loopback server in a process of its own: one `ReplayServer` for each recording, and what it has seen.

`Server` starts it and asks it; the process ends when its standard input does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks import children

if TYPE_CHECKING:
    from collections.abc import Mapping


class Server:
    """A running server: `urls` are those of the recordings, in order."""

    def __init__(self, *recordings: Path, latency: float = 0.0) -> None:
        command = [sys.executable, "-m", "benchmarks.server", str(latency), *map(str, recordings)]
        self.process = subprocess.Popen(
            command,
            cwd=children.ROOT,
            env=children.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.urls: list[str] = self._line()

    def seen(self) -> list[list[float]]:
        """For each recording, the monotonic times at which its requests had been read."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: list[list[float]] = self._line()
        return found

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main(latency: float, paths: list[Path]) -> None:
    """The process."""
    from agent.llm.replay_server import ReplayServer

    class Watched(ReplayServer):
        """Notes when each request was there."""

        def __init__(self, path: Path) -> None:
            super().__init__(path, latency=latency, model="bench-model")
            self.times: list[float] = []
            self.lock = threading.Lock()

        def answer(self, headers: Mapping[str, str], body: dict[str, Any]) -> Any:
            with self.lock:
                self.times.append(time.monotonic())
            return super().answer(headers, body)

    servers = [Watched(path) for path in paths]
    for server in servers:
        server.start()
    print(json.dumps([server.url for server in servers]), flush=True)
    for _ in sys.stdin:
        print(json.dumps([list(server.times) for server in servers]), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), [Path(path) for path in sys.argv[2:]])
