"""Times of one deliberation on servers with three slots and with one, and templates that change while tasks run.

The server streams each vote for a fixed time, and makes a request wait until a slot is free, as llama.cpp does; it
reports its slots at `/props`.  `deliberate --stream` runs as a process of its own on a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine
from benchmarks.figures import at_most, share

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 3.0
"""Seconds of one answer."""
PIECES = 20
PHASES = 3
"""A deliberation with one round of debate: thinking, debate, vote."""
FIRST = 1.0
"""Seconds within which the first token is shown after the server has sent it."""
RELOADS = 1000
TASKS = 6
GROWN = 8.0
"""MiB that a process may grow in these reloads."""


class Slots(ThreadingHTTPServer):
    """A model server that answers `slots` requests at the same time."""

    daemon_threads = True

    def __init__(self, slots: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.total = slots
        self.free = threading.Semaphore(slots)
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.durations: list[float] = []
        self.first_sent = 0.0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def begin(self) -> float:
        self.free.acquire()
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        return time.monotonic()

    def end(self, started: float) -> None:
        with self.lock:
            self.now -= 1
            self.durations.append(time.monotonic() - started)
        self.free.release()


class Handler(BaseHTTPRequestHandler):
    """OpenAI's wire, streamed; `/props` as llama.cpp answers it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Slots

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        known = self.path.endswith("/props")
        props = {"default_generation_settings": {"n_ctx": 32_000}, "total_slots": self.server.total}
        self._send(200 if known else 404, props if known else {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        started = self.server.begin()
        try:
            self._stream(body)
        finally:
            self.server.end(started)

    def _stream(self, body: dict[str, Any]) -> None:
        tool = body["tools"][0]["function"]["name"]
        answer: dict[str, Any] = {"reason": "I see nothing. " * 10, "findings": []}
        if tool == "cast_vote":
            answer |= {"conditions": [], "vote": "APPROVE"}
        text = json.dumps(answer)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        step = -(-len(text) // PIECES)
        for number, at in enumerate(range(0, len(text), step)):
            function: dict[str, Any] = {"arguments": text[at : at + step]} | ({} if number else {"name": tool})
            call: dict[str, Any] = {"index": 0, "function": function}
            self._chunk({"tool_calls": [call if number else {**call, "id": "call_1", "type": "function"}]})
            self.server.first_sent = self.server.first_sent or time.monotonic()
            time.sleep(SECONDS / PIECES)
        self._chunk({}, "tool_calls")
        self._write(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        usage = {"prompt_tokens": 900, "completion_tokens": 60, "total_tokens": 960} if finish else None
        event = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], "usage": usage}
        self._write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def measure() -> dict[str, Any]:
    with children.workplace() as place:
        three, one = on_slots(place, 3), on_slots(place, 1)
        reloads = children.run("template_reloads", place / "reloads", RELOADS, TASKS)
    assert three["most"] == 3, three
    assert one["most"] == 1, one
    machine.say(f"three slots: {three}; one slot: {one}; reloads: {reloads}")
    return {
        "deliberation.three_slots": at_most(
            three["wall"], three["longest"], 4, "s", "wall time of a deliberation, against its longest request"
        ),
        "deliberation.one_slot": at_most(
            one["wall"], one["longest"], 3 * 4, "s", "… on a server with one slot: one request after the other"
        ),
        "deliberation.first_token": at_most(
            max(three["first"], one["first"]), FIRST, 1, "s", "first token on the terminal after the server's first"
        ),
        "deliberation.reloads": share(
            reloads["whole"], reloads["requests"], 1, "requests", f"whole system prompts in {RELOADS} reloads"
        ),
        "deliberation.reloads_memory": at_most(
            reloads["grown"] / machine.MIB, GROWN, 1, "MiB", "… growth of the process after the first 100"
        ),
    }


def on_slots(place: Path, slots: int) -> dict[str, Any]:
    """One deliberation on a terminal: seconds from the first token of the server to the decision, of the longest
    request, and from the first token that the server sent to the first that is shown."""
    server = Slots(slots)
    config = place / f"slots-{slots}.yaml"
    keys = {"model": "m", "base_url": server.url, "api_key": "bench-key-0000", "dialect": "llamacpp"}
    settings = {"llm": {"provider": "openai", "openai": keys}, "context_storage": {"base_dir": str(place / "contexts")}}
    config.write_text(json.dumps(settings), encoding="utf-8")
    config.chmod(0o600)
    command = [sys.executable, str(children.ROOT / "main.py"), "deliberate", "Shall we?", "--stream"]
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(
            [*command, "--config", str(config)],
            cwd=place,
            env=children.environment(),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.STDOUT,
        )
        os.close(theirs)
        shown, ended, text = _watch(ours)
        code = child.wait()
    finally:
        os.close(ours)
        server.shutdown()
        server.server_close()
    if code != 0:
        raise RuntimeError(f"deliberate ended with {code}:\n{text}")
    return {
        "wall": ended - server.first_sent,
        "longest": max(server.durations),
        "first": shown - server.first_sent,
        "most": server.most,
        "requests": len(server.durations),
    }


def _watch(terminal: int) -> tuple[float, float, str]:
    """(time of the beginning of a vote on the terminal, time of the decision there, all that it showed)."""
    shown, decided, text = 0.0, 0.0, ""
    while True:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # Linux: the other side is closed
            return shown, decided, text
        if not more:
            return shown, decided, text
        text += more.decode("utf-8", "replace")
        if not shown and '{"rea' in text:
            shown = time.monotonic()
        if not decided and "APPROVED: " in text:
            decided = time.monotonic()
