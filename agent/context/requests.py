"""RequestStore: requests.jsonl, one line for every request that was sent to a model, whatever became of it.

A line is written when the request is over: answered, refused, cut, stalled or cancelled.  While it is under way its
beginning stands in `.requests.begun`, written before the first byte is sent; a process that dies leaves it there, and
the next opening closes it as `interrupted`, with the estimate.  So a kill loses no request that may have to be paid,
and a turn costs one `fdatasync` more at most: what was begun is not synced, what failed is synced at once, an answer
with the message that it becomes.

Totals are sums over the lines.  They are made once, when the file is opened, and kept up after that.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent import clock, disk
from agent.errors import ContextOverflow
from agent.security.redact import Redactor
from agent.store.jsonl import JsonlFile, parse
from agent.store.text import fit
from agent.store.text import line as to_line
from agent.values import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Json

NAME = "requests.jsonl"
BEGUN = ".requests.begun"
INTERRUPTED = "interrupted"
ANSWERED = "ok"
TOO_LONG = ContextOverflow.code
LONGEST_ERROR = 500  # characters of an error's text that are recorded

_under_way: dict[str, Path] = {}
"""The requests of this process, by id, with their file: another store of the same folder must not take them for a dead
process's."""


@dataclass(slots=True)
class Sums:
    """What all requests come to.  `estimated` is how many of the tokens no server has reported.

    `taken` is the longest prompt, in tokens as reported, that the server of a model has answered since it last refused
    one for its length; by name of the model.
    """

    count: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    estimated: int = 0
    cost: float = 0.0
    taken: dict[str, int] = field(default_factory=dict)

    def add(self, record: Json) -> None:
        """Take in one line."""
        usage = Usage.of(record.get("usage") or {})
        self.count += 1
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.cached += usage.cached
        self.estimated += int(record.get("estimated_tokens") or 0)
        self.cost += float(record.get("cost") or 0.0)
        self._take(str(record.get("model") or ""), record, usage)

    def _take(self, model: str, record: Json, usage: Usage) -> None:
        """Keep what the server has shown that it takes."""
        if str(record.get("error") or "").startswith(TOO_LONG):
            self.taken.pop(model, None)
        elif record.get("status") == ANSWERED and record.get("estimated_tokens") in (None, 0, usage.completion):
            self.taken[model] = max(usage.prompt, self.taken.get(model, 0))


class RequestStore:
    """The requests of one task.  It may be used from several threads."""

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redactor | None = None) -> None:
        self.redact = redact or Redactor(())
        self.path = Path(context_dir) / NAME
        self.begun_path = Path(context_dir) / BEGUN
        self.file = JsonlFile(self.path, durability=durability)
        self.repairs: list[str] = []
        self.failed: Callable[[Json], None] | None = None  # hears of each request that came to no answer
        self._lock = threading.Lock()
        self._descriptor = -1
        self._read()
        self._close_interrupted()

    def begin(self, *, purpose: str, provider: str, model: str, tokens: int, cost: float = 0.0) -> Json:
        """A request is about to be sent.  `tokens` is the estimate of its prompt, `cost` what those cost: they count
        should this process die before `end`.  DiskError when it cannot be written; then it must not be sent."""
        record: Json = {
            "seq": 0,
            "id": secrets.token_hex(6),
            "purpose": purpose,
            "provider": provider,
            "model": fit(model),
            "started_at": clock.stamp(),
            "tokens": tokens,
            "cost": cost,
        }
        with self._lock:
            _under_way[record["id"]] = self.begun_path
            try:
                disk.append(self._begun(), to_line(record), self.begun_path)
            except BaseException:
                self._over(record["id"])
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
        """The request is over: its line is written; returns its number, from 1.

        `usage` is what counts, part by part what the server reported or, where it did not, an estimate;
        `estimated_tokens` is how much of it is estimated.
        """
        record: Json = {
            "seq": 0,
            **{key: begun[key] for key in ("id", "purpose", "provider", "model", "started_at")},
            "first_token_ms": first_token_ms,
            "duration_ms": duration_ms,
            "status": status,
            "finish_reason": fit(finish_reason) if finish_reason else None,
            "usage": usage.to_dict(),
            "estimated": estimated_tokens > 0,
            "estimated_tokens": estimated_tokens,
            "cost": cost,
            "error": self.redact(fit(error))[:LONGEST_ERROR] if error else None,
            "timestamp": clock.stamp(),
        }
        with self._lock:
            if self.file.refresh():
                self._read()
            record["seq"] = self.file.next_id()
            self.file.append(record)
            self._sums.add(record)
            self._over(begun["id"])
            if status != "ok":
                self.file.sync()
        if status != "ok" and self.failed is not None:
            self.failed(record)
        return int(record["seq"])

    def drop(self, begun: Json) -> None:
        """It was not sent after all: nobody was reached."""
        with self._lock:
            if self._over(begun["id"]):
                disk.append(self._begun(), to_line({"seq": 0, "id": begun["id"], "dropped": True}), self.begun_path)

    def sums(self) -> Sums:
        """What all requests come to; counters, nothing is read."""
        with self._lock:
            if self.file.refresh():
                self._read()
            return self._sums

    def newest(self) -> int:
        """The number of the newest line, 0 before the first."""
        with self._lock:
            if self.file.refresh():
                self._read()
            return self.file.next_id() - 1

    def sync(self, *, force: bool = False) -> None:
        """Make them durable."""
        with self._lock:
            self.file.sync(force=force)

    def close(self) -> None:
        """Give the descriptors back; `.requests.begun` goes unless something is under way."""
        with self._lock:
            self.file.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            with suppress(OSError):
                if self.begun_path.stat().st_size == 0:
                    self.begun_path.unlink()

    def moved(self, context_dir: Path) -> None:
        """The folder has another place now; the files are closed."""
        self.path = self.file.path = context_dir / NAME
        self.begun_path = context_dir / BEGUN

    def _read(self) -> None:
        """Sum up the file."""
        self._sums = Sums()
        for _, record in self.file.records():
            self._sums.add(record)

    def _begun(self) -> int:
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with disk.writing(self.begun_path):
                self._descriptor = os.open(self.begun_path, flags, 0o600)
        return self._descriptor

    def _over(self, identifier: str) -> bool:
        """One request less is under way; after the last of them the file of the begun ones is emptied.  Whether there
        are others."""
        _under_way.pop(identifier, None)
        if self.begun_path in _under_way.values():
            return True
        if self._descriptor >= 0:
            with suppress(OSError):  # a line that stays is known by its id
                os.ftruncate(self._descriptor, 0)
        return False

    def _close_interrupted(self) -> None:
        """A line for each request that a dead process had under way."""
        try:
            lines = self.begun_path.read_bytes().split(b"\n")[:-1]  # a torn one was not sent
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
