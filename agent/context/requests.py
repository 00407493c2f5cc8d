"""RequestStore writes requests.jsonl: one line for each request to a model, successful or not.

The line of a request is written at its end: when it was answered, refused, cut, stalled or cancelled. While the request
runs, the file `.requests.begun` has the beginning of the request, written before the first byte is sent. After a crash
`.requests.begun` still has the beginning, and the next opening of the store records the request as `interrupted`, with
its estimated tokens. A killed process thus loses no record of a request that may be billed, and a turn costs at most
one additional `fdatasync`: the beginning of a request is not synced, a failure is synced at once, an answer together
with its message.

Totals of requests are sums over the lines of requests.jsonl. The totals are computed once, when the file is opened, and
after that updated with each new line.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent import clock, durable_files
from agent.context.base import Store
from agent.context.secret_masking import unmasked
from agent.errors import ContextOverflow
from agent.store.jsonl import parse
from agent.store.storable_text import line as to_line
from agent.store.storable_text import replace_surrogates
from agent.values import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from agent.observe.events import EventSink
    from agent.values import Json, Redact

NAME = "requests.jsonl"
BEGUN = ".requests.begun"
INTERRUPTED = "interrupted"
ANSWERED = "ok"
TOO_LONG = ContextOverflow.code
LONGEST_ERROR = 500  # maximum characters of an error's text in a record

_under_way: dict[str, Path] = {}
"""The requests that this process is sending, by id, with the path of their file.

Another store of the same folder must not record a request in this table as the request of a dead process."""


@dataclass(slots=True)
class Sums:
    """The sums over all requests of a task. `estimated` is the number of tokens that no server reported.

    `taken` has for each model the longest prompt, in reported tokens, that its server has answered since that server
    last refused a prompt as too long.
    """

    count: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    estimated: int = 0
    cost: float = 0.0
    taken: dict[str, int] = field(default_factory=dict)

    def add(self, record: Json) -> None:
        """Add one line of requests.jsonl."""
        usage = Usage.from_dict(record.get("usage") or {})
        self.count += 1
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.cached += usage.cached
        self.estimated += int(record.get("estimated_tokens") or 0)
        self.cost += float(record.get("cost") or 0.0)
        self._update_longest_prompt(str(record.get("model") or ""), record, usage)

    def _update_longest_prompt(self, model: str, record: Json, usage: Usage) -> None:
        """Update the longest prompt that the server of `model` accepted."""
        if str(record.get("error") or "").startswith(TOO_LONG):
            self.taken.pop(model, None)
        elif record.get("status") == ANSWERED and record.get("estimated_tokens") in (None, 0, usage.completion):
            self.taken[model] = max(usage.prompt, self.taken.get(model, 0))


class RequestStore(Store):
    """The requests of one task.  Thread-safe."""

    NAME = NAME

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redact = unmasked) -> None:
        super().__init__(context_dir, durability=durability, redact=redact)
        self.begun_path = self.context_dir / BEGUN
        # Announces each request that has another status than "ok"; the client of the model announces the answers.
        self.events: EventSink | None = None
        self._lock = threading.Lock()
        self._descriptor = -1
        self._read()
        self._close_interrupted()

    def begin(self, *, purpose: str, provider: str, model: str, tokens: int, cost: float = 0.0) -> Json:
        """Record that a request is about to be sent.

        `tokens` is the estimate of the request's prompt, `cost` the cost of those tokens: both count if this process
        dies before `end`.  Raises DiskError when the record cannot be written; then the request must not be sent.
        """
        record: Json = {
            "seq": 0,
            "id": secrets.token_hex(6),
            "purpose": purpose,
            "provider": provider,
            "model": replace_surrogates(model),
            "started_at": clock.stamp(),
            "tokens": tokens,
            "cost": cost,
        }
        with self._lock:
            _under_way[record["id"]] = self.begun_path
            try:
                durable_files.append(self._begun(), to_line(record), self.begun_path)
            except BaseException:
                self._remove_running(record["id"])
                raise
        return record

    def end(
        self,
        begun: Json,
        *,
        status: str,
        usage: Usage,
        estimated_tokens: int = 0,
        cost: float = 0.0,
        first_token_ms: int | None = None,
        duration_ms: int | None = None,
        finish_reason: str | None = None,
        error: str | None = None,
    ) -> int:
        """Write the line of a request that has ended; returns the line's number, from 1.

        `usage` is the usage to count, each part as reported by the server or estimated; `estimated_tokens` is the
        number of estimated tokens in it.
        """
        record: Json = {
            "seq": 0,
            **{key: begun[key] for key in ("id", "purpose", "provider", "model", "started_at")},
            "first_token_ms": first_token_ms,
            "duration_ms": duration_ms,
            "status": status,
            "finish_reason": replace_surrogates(finish_reason) if finish_reason else None,
            "usage": usage.to_dict(),
            "estimated": estimated_tokens > 0,
            "estimated_tokens": estimated_tokens,
            "cost": cost,
            "error": self.redact(replace_surrogates(error))[:LONGEST_ERROR] if error else None,
            "timestamp": clock.stamp(),
        }
        with self._lock:
            if self.file.refresh():
                self._read()
            record["seq"] = self.file.next_id()
            self.file.append(record)
            self._sums.add(record)
            self._remove_running(begun["id"])
            if status != "ok":
                self.file.sync()
        if status != "ok" and self.events is not None:
            names = ("purpose", "provider", "model", "status", "estimated", "cost", "error")
            self.events.emit("request_failed", **{name: record[name] for name in names}, **record["usage"])
        return int(record["seq"])

    def drop(self, begun: Json) -> None:
        """Record that the request `begun` was not sent after all, so that it no longer counts as running."""
        with self._lock:
            if self._remove_running(begun["id"]):
                durable_files.append(
                    self._begun(), to_line({"seq": 0, "id": begun["id"], "dropped": True}), self.begun_path
                )

    def sums(self) -> Sums:
        """The sums over all requests, from counters; the file is read only if another program has changed it."""
        with self._lock:
            if self.file.refresh():
                self._read()
            return self._sums

    def newest(self) -> int:
        """The number of the newest line, 0 if there is none."""
        with self._lock:
            if self.file.refresh():
                self._read()
            return self.file.next_id() - 1

    def sync(self, *, force: bool = False) -> None:
        """Sync the lines of requests.jsonl."""
        with self._lock:
            self.file.sync(force=force)

    def close(self) -> None:
        """Close the file descriptors of the store; `.requests.begun` is removed if it is empty."""
        with self._lock:
            self.file.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            with suppress(OSError):
                if self.begun_path.stat().st_size == 0:
                    self.begun_path.unlink()

    def move_to(self, context_dir: Path) -> None:
        """Set the paths of the files after the task's folder was moved; the files are closed then."""
        super().move_to(context_dir)
        self.begun_path = context_dir / BEGUN

    def _read(self) -> None:
        """Compute the sums from the lines of requests.jsonl."""
        self._sums = Sums()
        for _, record in self.file.records():
            self._sums.add(record)

    def _begun(self) -> int:
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with durable_files.writing(self.begun_path):
                self._descriptor = os.open(self.begun_path, flags, 0o600)
        return self._descriptor

    def _remove_running(self, identifier: str) -> bool:
        """Remove a request from the table of running requests; after the last one, empty the file `.requests.begun`.

        Returns whether other requests of this folder are still running.
        """
        _under_way.pop(identifier, None)
        if self.begun_path in _under_way.values():
            return True
        if self._descriptor >= 0:
            # if truncation fails, the ids of the lines show that the requests in `.requests.begun` have ended
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        return False

    def _close_interrupted(self) -> None:
        """Write a line for each unfinished request of a dead process."""
        try:
            # An unfinished line belongs to a request that was not sent.
            lines = self.begun_path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return
        found = [record for one in lines if not isinstance(record := parse(one, "seq"), str)]
        dropped = {record.get("id") for record in found if record.get("dropped")}
        left = {one["id"]: one for one in found if one.get("id") not in (dropped | _under_way.keys() | {None})}
        if left:
            for _, record in self.file.records():
                left.pop(record.get("id"), None)
        for record in left.values():
            estimate = Usage(int(record.get("tokens") or 0))
            self.end(
                {"purpose": "turn", "provider": "", "model": "", "started_at": "", **record},
                status=INTERRUPTED,
                usage=estimate,
                estimated_tokens=estimate.prompt,
                cost=float(record.get("cost") or 0.0),
                error="the process ended while the request was under way",
            )
            self.repairs.append(
                f"{NAME}: a request ({record.get('purpose')}) of {record.get('started_at')} was under way when its "
                f"process ended; its estimate counts"
            )
        if self.begun_path not in _under_way.values():
            self.begun_path.unlink(missing_ok=True)
