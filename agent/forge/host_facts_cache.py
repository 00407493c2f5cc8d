"""Shares facts about the accounts and repositories of one host between the daemon and its workers: while a fact that
one of these processes has read from the host is valid, the other processes need not request it.

A worker is a process of its own, so without a shared file the worker of each task would request again to which account
the token belongs, which repository the task's key means, who asked for the work, and whether that person has write
access. The file of shared facts is `{base_dir}/limits/{host}.facts.json`; it contains no token. Each shared fact is
valid for KEPT_SECONDS after the host reported it, unless it is dropped before. An unreadable file of facts counts as
empty; if the file cannot be written, each process remembers only the facts that it has read itself. Times in the file
of facts are Unix seconds.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, durable_files
from agent.errors import DiskError
from agent.forge.rate_limiter import KEPT_SECONDS, file_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST = 2000
"""The maximum number of facts in the file; if there are more, the oldest are removed."""


class HostFactsCache:
    """The shared facts about one forge host that one account has read.

    `account` returns a text that is the same for the same account in each process, such as the token; the file of facts
    contains only the digest of that text. `folder` is created when the first shared fact is stored.
    """

    def __init__(self, folder: Path, host: str, account: Callable[[], str]) -> None:
        self.folder = folder
        self.path = folder / f"{file_name(host)}.facts.json"
        self.account = account
        self._own: dict[str, list[Any]] = {}  # the facts that this process has read from the host itself
        # inode, size and time of change of the file when it was last parsed, and its facts
        self._parsed: tuple[tuple[int, ...], dict[str, list[Any]]] | None = None

    def find(self, name: str) -> Any:
        """The value of the shared fact `name`; None if the fact is unknown or too old."""
        key = self._key(name)
        fact = self._own.get(key)
        if fact is None or not _is_valid(fact):
            fact = self._read().get(key)
        return fact[1] if fact is not None and _is_valid(fact) else None

    def put(self, name: str, value: Any) -> None:
        """Store a fact that the host has just reported; `value` is JSON and not None."""
        key, fact = self._key(name), [clock.now().timestamp(), value]
        self._own[key] = fact
        if len(self._own) > MOST:
            self._own = {one: own for one, own in self._own.items() if _is_valid(own)}
        self._write(lambda found: found | {key: fact})

    def drop(self, name: str) -> None:
        """Remove the fact `name`, which may have changed, from the file and from the memory of this process. If another
        process has read this fact from the host, that process uses its own copy until KEPT_SECONDS have passed."""
        if self.find(name) is None:
            return
        key = self._key(name)
        self._own.pop(key, None)
        self._write(lambda found: {one: known for one, known in found.items() if one != key})

    def _write(self, change: Callable[[dict[str, list[Any]]], dict[str, list[Any]]]) -> None:
        """Replace the valid facts in the file by the result of `change`, of which only the newest MOST are written. If
        the file cannot be written, it stays as it is."""
        with suppress(DiskError):
            durable_files.make_dir(self.folder)
            with durable_files.locked(self.path.with_suffix(".lock")):
                found = {one: known for one, known in self._read().items() if _is_valid(known)}
                facts = sorted(change(found).items(), key=lambda one: float(one[1][0]))
                durable_files.write_file(self.path, orjson.dumps(dict(facts[-MOST:])), sync=False)

    def _key(self, name: str) -> str:
        return f"{blake2b(self.account().encode(), digest_size=12).hexdigest()} {name}"

    def _read(self) -> dict[str, list[Any]]:
        """The facts in the file: key → [time at which the host reported the fact, value]; {} if the file cannot be
        read.

        The file is parsed again only if its inode, size or time of change differs, because a poll looks up facts for
        each issue.
        """
        try:
            found = self.path.stat()
            state = found.st_ino, found.st_size, found.st_mtime_ns
            if self._parsed is not None and self._parsed[0] == state:
                return self._parsed[1]
            stored = orjson.loads(self.path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        facts = {key: fact for key, fact in stored.items() if _is_fact(fact)} if isinstance(stored, dict) else {}
        self._parsed = state, facts
        return facts


def _is_valid(fact: list[Any]) -> bool:
    """Whether a shared fact is younger than KEPT_SECONDS and has no time in the future."""
    return 0 <= clock.now().timestamp() - float(fact[0]) < KEPT_SECONDS


def _is_fact(fact: object) -> bool:
    return isinstance(fact, list) and len(fact) == 2 and isinstance(fact[0], int | float) and fact[1] is not None
