"""Tasks that run while their templates change, for `benchmarks.deliberation`, in a process of its own.

`python -m benchmarks.template_reloads FOLDER RELOADS TASKS`: real workers, whose server checks each system prompt.
Every version of the template has its number at its beginning, in its middle and at its end.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks import project
from benchmarks.settings import settings

TURNS = 6
PATIENCE = 600.0
NUMBER = re.compile(r"version (\d+)\.")


class Asked(ThreadingHTTPServer):
    """A model server that reads a file for some turns and then finishes; `seen` has the versions by task."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.turns: dict[str, int] = defaultdict(int)
        self.seen: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """OpenAI's wire, not streamed."""

    protocol_version = "HTTP/1.1"
    server: Asked

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._send(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        system = next(one["content"] for one in body["messages"] if one["role"] == "system")
        part = re.search(r"in part (\d+)", json.dumps(body["messages"]))
        task = part[1] if part else ""
        with self.server.lock:
            turn = self.server.turns[task] = self.server.turns[task] + 1
            self.server.seen[task].append(tuple(NUMBER.findall(system)))
        time.sleep(0.2)
        name, arguments = "read_file", {"path": "data.txt", "offset": turn * 10, "limit": 5}
        if turn > TURNS:
            name, arguments = "finish", {"title": "Done", "summary": "Done."}
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        message = {"role": "assistant", "content": f"Turn {turn}.", "tool_calls": [call]}
        usage = {"prompt_tokens": len(json.dumps(body)) // 4, "completion_tokens": 20}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        self._send(200, {"id": "c", "model": body["model"], "choices": [choice], "usage": usage})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def text_of(number: int) -> str:
    """One version of the template of the system prompt."""
    mark = f"This is version {number}.\n"
    return mark + "Work on the task.\n" * 400 + mark + "Call finish at the end.\n" * 400 + mark


def main(place: Path, reloads: int, tasks: int) -> dict[str, Any]:
    """Let the tasks run, one batch after the other, until the template has changed so often."""
    from agent import prompts
    from agent.daemon.supervisor import Supervisor
    from agent.intake.poller import fetch_and_enqueue_tasks
    from agent.observe.events import Events
    from agent.prompts.loader import TemplateLoader
    from agent.values import Status
    from agent.wiring.wiring import Wiring

    place.mkdir()
    folder = place / "texts"
    folder.mkdir(mode=0o755)
    server = Asked()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    chosen = settings(
        place / "contexts",
        url=url,
        durability="turn",
        local=project.make(place, tasks),
        scheduling={"max_workers": 2},
        prompts={"folder": str(folder)},
    )
    loader = TemplateLoader(chosen)
    write(folder, 0)
    wiring = Wiring(chosen, events=Events([]))
    fetch_and_enqueue_tasks(chosen, wiring.ledger, wiring.forges, wiring.events)
    supervisor = Supervisor(wiring)
    taken, before, until = 0, 0, time.monotonic() + PATIENCE
    try:
        while taken < reloads or supervisor.children or wiring.ledger.counts().get(Status.QUEUED):
            if time.monotonic() > until:
                raise RuntimeError(f"after {PATIENCE:g} s: {taken} reloads, {dict(server.turns)}")
            supervisor.step()
            supervisor.reap()
            if taken < reloads:
                write(folder, taken + 1)
                prompts.set_replacements(loader.refresh(force=True))
                taken += 1
                before = before or (resident() if taken == 100 else 0)
    finally:
        supervisor.kill()
        while supervisor.children:
            supervisor.reap()
            time.sleep(0.02)
        wiring.close()
    whole = sum(
        len(numbers) == 3 and set(numbers) == set(found[0]) for found in server.seen.values() for numbers in found
    )
    requests = sum(map(len, server.seen.values()))
    return {"whole": whole, "requests": requests, "tasks": len(server.seen), "grown": resident() - before}


def resident() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def write(folder: Path, number: int) -> None:
    """Replace the template by its next version in one step."""
    new = folder / ".next"
    new.write_text(text_of(number), encoding="utf-8")
    new.rename(folder / "system.md.j2")


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
