"""One task of 6,000 turns: CPU of a turn at its end against that at its beginning, and its memory.

The worker's own path with a whole task of the local tracker, in a window of 16,000 tokens: it compacts every few dozen
turns, masks, summaries and all.  CPU is that of the worker's process and threads, sampled over stretches of turns that
hold many compactions; the server is a process of its own and answers what comes next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks import children, machine, project
from benchmarks.figures import at_most
from benchmarks.settings import settings

if TYPE_CHECKING:
    from agent.config import Settings

TURNS = 6_000
EARLY, LATE = (100, 600), (TURNS - 510, TURNS - 10)
"""Turns between which the CPU of one is taken."""
WINDOW = 16_000
MEMORY = 8.0  # MiB that the worker may grow from the first stretch to its end
EVERY = 0.2  # seconds between two samples
SUMMARY = """## 1. What the person asked for and forbade
- look at every part of data.txt
## 2. Code changes made
- none: data.txt was read part by part with read_file, from its beginning, and nothing had to be changed in it
## 3. State of the work
- the parts up to the newest one were looked at, in their order, and each of them was as it has to be; no test failed,
  no command was run and no error was seen so far, so that nothing stands in the way of what is left
## 4. Next step
- read the part of data.txt behind the newest one, then the others
"""


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        command = [sys.executable, "-m", "benchmarks.long", "serve"]
        server = subprocess.Popen(
            command,
            cwd=children.ROOT,
            env=children.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())
            uuid = children.run("long", "queue", place, url)
            samples = children.run("long", "work", place, url, uuid)
        finally:
            server.communicate()
    early, late = (cost(samples, *stretch) for stretch in (EARLY, LATE))
    first = next(resident for turn, _, resident in samples if turn >= EARLY[1])
    last = max(resident for turn, _, resident in samples if turn >= LATE[0])
    return {
        "long.cpu": at_most(late * 1e3, early * 1e3, 1.2, "ms of CPU a turn", f"turn {TURNS} against turn {EARLY[0]}"),
        "long.memory": at_most(
            max(0.0, last - first) / machine.MIB, MEMORY, 1, "MiB", f"growth of RSS from turn {EARLY[1]} to {TURNS}"
        ),
    }


def cost(samples: list[tuple[int, float, int]], start: int, end: int) -> float:
    """CPU seconds of a turn between two turns."""
    inside = [(turn, cpu) for turn, cpu, _ in samples if start <= turn <= end]
    (first, before), (last, after) = inside[0], inside[-1]
    return (after - before) / (last - first)


def settings_of(place: Path, url: str) -> Settings:
    local = {"tracker": str(place / "tracker"), "repos": {"default": str(place / "repo")}}
    limits = {"turns": TURNS * 2, "wall_seconds": 36_000}
    return settings(place / "contexts", url=url, durability="turn", window=WINDOW, local=local, limits=limits)


def queue(place: Path, url: str) -> None:
    """The daemon's part."""
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.wiring.wiring import Wiring

    project.make(place)
    chosen = settings_of(place, url)
    wiring = Wiring(chosen, events=Events([]))
    (uuid,) = fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
    wiring.close()
    print(json.dumps(uuid))


class Sampler(threading.Thread):
    """(turn, CPU seconds, resident bytes) every now and then; turns are the lines of requests.jsonl of that purpose."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.samples: list[tuple[int, float, int]] = []
        self.over = threading.Event()

    def run(self) -> None:
        turns, read = 0, 0
        while not self.over.wait(EVERY):
            if not self.path.exists():
                continue
            with self.path.open("rb") as file:
                file.seek(read)
                new = file.read()
            read += len(new)
            turns += new.count(b'"purpose":"turn"')
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            self.samples.append((turns, machine.cpu_of_self(), pages * os.sysconf("SC_PAGE_SIZE")))


def work(place: Path, url: str, uuid: str) -> None:
    """The worker's part."""
    from agent.worker import worker

    sampler = Sampler(place / "contexts" / "running" / uuid / "requests.jsonl")
    sampler.start()
    code = None
    try:
        worker.main(settings_of(place, url), uuid)
    except SystemExit as ended:
        code = ended.code
    sampler.over.set()
    sampler.join()
    assert code == 0, code
    assert sampler.samples[-1][0] >= LATE[1], sampler.samples[-1]
    print(json.dumps(sampler.samples))


class Model(BaseHTTPRequestHandler):
    """Answers a request with tools with the next step, one without with a summary."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    turns: ClassVar[int] = 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message: dict[str, Any] = {"role": "assistant", "content": SUMMARY}
        if b'"tools":' in body[:4_000]:
            Model.turns += 1
            arguments = {"path": "data.txt", "offset": 1 + 7 * (Model.turns % 997), "limit": 30}
            name = "read_file"
            if Model.turns > TURNS:
                name, arguments = "finish", {"title": "Nothing to do", "summary": "Nothing had to be changed."}
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"id": f"call_{Model.turns:06d}", "type": "function", "function": function}
            message = {"role": "assistant", "content": f"I look at part {Model.turns}.", "tool_calls": [call]}
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 60}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = json.dumps({"model": "bench-model", "choices": [choice], "usage": usage}).encode()
        self.reply(200, answer)

    def do_GET(self) -> None:
        self.reply(200, b'{"data": [{"id": "bench-model", "owned_by": "vllm"}]}')

    def reply(self, status: int, body: bytes) -> None:
        """Send it."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve() -> None:
    """The server's process, until its standard input ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps(f"http://127.0.0.1:{server.server_address[1]}/v1"), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        {"queue": queue, "work": work}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
