"""Limits the requests to one forge host; the daemon and all workers of this machine share the limits in a small file.

The file of the rate limiter stores the limits that the forge announced (requests left and the time of the reset, pauses
and their ends); the limiter also puts pauses between requests that change something, so that ten workers together
behave like one polite client (docs/forges.md, "What it asks of the host"). Each adapter reads the limits from its
forge's answers and passes them to the rate limiter, which works the same for all forges. The file of the rate limiter
is `{base_dir}/limits/{host}.json`, changed under a flock on the file `{host}.lock` in the same folder. An unreadable
file of limits counts as empty; when the file cannot be written, each process limits only its own requests. Times in the
file of limits are Unix seconds.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, durable_files
from agent.errors import DiskError, ForgeLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EVERYTHING = "*"
BURST = 20  # number of requests that change something on the forge that may be sent without a pause
# number of requests per second that change something, after BURST requests (GitHub: "at least one second between each",
# 80 a minute)
PER_SECOND = 1.0
FIRST_PAUSE = 60.0  # Pause in seconds when the forge asks the program to send fewer requests and names no time.
LONGEST_PAUSE = 900.0
LOOK_AGAIN = 30.0
OTHER_FILES = (".refused", ".facts")
"""Ends of the names (without `.json`) of a host's other files in the same folder (`refused_changes.py`,
`host_facts_cache.py`)."""
KEPT_SECONDS = 600.0  # Facts about repositories and people are requested from the forge again after this many seconds.


def file_name(host: str) -> str:
    """The name of a host as the beginning of the names of its files in the folder `limits`."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", host).strip(".") or "host"


class RateLimiter:
    """Delays requests to one forge host: all of them by the limits and pauses that the forge reported, and those that
    change something also by a pace that the processes of this machine share.

    `folder` is created when the file of limits is first written.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.host = host
        self.folder = folder
        self.path = folder / f"{file_name(host)}.json"
        # the content for the file of limits as long as the file cannot be written, else None
        self._unwritten: dict[str, Any] | None = None

    def wait(self, bucket: str, *, change: bool, patience: float, reserve: float = 0.0) -> float:
        """Sleep until one request to the host may be sent; raises ForgeLimited if that takes more than `patience`
        seconds. Returns the number of seconds that `wait` slept.

        `bucket` is the forge's name for a rate limit ("core", "search").  With `change` the request changes something
        on the forge, so the pauses between such requests apply to it.  `reserve` is the share of the rate limit that
        this request must leave for other requests (a poll leaves a share for running tasks).
        """
        waited = 0.0
        while True:
            seconds, why = self._reserve_request(bucket, change, reserve)
            if seconds <= 0:
                return waited
            if waited + seconds > patience:
                raise ForgeLimited(f"{self.host}: {why}; asked again in {seconds:.0f} s", retry_after=seconds)
            pause = min(seconds, LOOK_AGAIN)
            clock.sleep(pause)
            waited += pause

    def note_budget(self, bucket: str, *, remaining: int, limit: int, reset_in: float) -> None:
        """Record the rate limit from an answer: `remaining` of `limit` requests until `reset_in` seconds from now."""

        def change(state: dict[str, Any]) -> None:
            state.setdefault("buckets", {})[bucket] = {
                "remaining": remaining,
                "limit": limit,
                "reset": _now() + max(0.0, reset_in),
            }

        self._update_file(change)

    def went_well(self) -> None:
        """Record an answer of the host that did not demand a pause, so that `slow_down` begins again with its shortest
        pause."""
        if self._read().get("strikes"):
            self._update_file(lambda state: state.pop("strikes", None))

    def slow_down(self, bucket: str, seconds: float | None, why: str) -> float:
        """Send no requests of the kind `bucket` (or, for `EVERYTHING`, no requests at all) to the host for `seconds`.

        If `seconds` is None, the pause is 60 s, and doubles with each call of `slow_down` since the last `went_well`,
        up to 15 min.  Returns the length of the pause in seconds.
        """
        pause = 0.0

        def change(state: dict[str, Any]) -> None:
            nonlocal pause
            strikes = int(state.get("strikes") or 0)
            pause = seconds if seconds is not None else min(FIRST_PAUSE * 2**strikes, LONGEST_PAUSE)
            state["strikes"] = strikes + 1
            blocks = state.setdefault("blocked", {})
            until = _now() + pause
            if until > (blocks.get(bucket) or {}).get("until", 0.0):
                blocks[bucket] = {"until": until, "why": why}

        self._update_file(change)
        return pause

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """A context that holds the host's lock, so that only one process of this machine at a time changes labels or
        opens a pull request on the host."""
        durable_files.make_dir(self.folder)
        with durable_files.locked(self.path.with_suffix(".changes.lock")):
            yield

    # --- the file ---------------------------------------------------------------------------------------------

    def _reserve_request(self, bucket: str, change: bool, reserve: float) -> tuple[float, str]:
        """Reserve the right to send one request now: (seconds to wait before the request may be sent, 0 if at once; the
        reason).

        A request that changes something on the forge is counted if it may be sent at once.
        """
        seconds, why = _blocked(self._read(), bucket, reserve)
        if seconds > 0 or not change:
            return seconds, why
        missing = 0.0

        def pace(state: dict[str, Any]) -> None:
            nonlocal missing
            passed = max(0.0, _now() - float(state.get("paced_at") or 0.0))
            tokens = min(float(BURST), float(state.get("tokens", BURST)) + passed * PER_SECOND)
            missing = 0.0 if tokens >= 1.0 else (1.0 - tokens) / PER_SECOND
            state["tokens"] = tokens if missing else tokens - 1.0
            state["paced_at"] = _now()

        self._update_file(pace)
        return missing, "changes are paced"

    def _read(self) -> dict[str, Any]:
        if self._unwritten is not None:
            return self._unwritten
        try:
            state = orjson.loads(self.path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return state if _is_ours(state) else {}

    def _update_file(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Apply `change` to the content of the file of limits.

        When the file of limits cannot be written, the content stays in the memory of this process, so that the process
        can still report why a task waits.
        """
        state: dict[str, Any] | None = None
        try:
            durable_files.make_dir(self.folder)
            with durable_files.locked(self.path.with_suffix(".lock")):
                state = self._read()
                change(state)
                durable_files.write_file(self.path, orjson.dumps(state), sync=False)
        except DiskError:
            if state is None:
                state = self._read()
                change(state)
            self._unwritten = state
        else:
            self._unwritten = None


@dataclass(frozen=True, slots=True)
class HostLimit:
    """One rate limit of a host, as the forge last reported it: `remaining` of `limit` requests, None if the forge
    reported no numbers. `seconds` is the time until a request may be sent, 0.0 if a request may be sent now; `why` is
    the reason of the wait."""

    host: str
    bucket: str
    remaining: int | None = None
    limit: int | None = None
    seconds: float = 0.0
    why: str = ""


def host_limits(folder: Path) -> list[HostLimit]:
    """The rate limits of all hosts that have a file in `folder`, without limits that have ended."""
    found = []
    for host, state in known_limits(folder).items():
        buckets = state.get("buckets") or {}
        for bucket in sorted({*buckets, *(state.get("blocked") or {})}):
            numbers = buckets.get(bucket)
            seconds, why = _blocked(state, bucket, 0.0)
            if numbers is not None and numbers["reset"] > _now():
                counts = int(numbers["remaining"]), int(numbers["limit"])
                found.append(HostLimit(host, bucket, *counts, seconds=seconds, why=why))
            elif seconds > 0:
                found.append(HostLimit(host, bucket, seconds=seconds, why=why))
    return found


def _blocked(state: dict[str, Any], bucket: str, reserve: float) -> tuple[float, str]:
    """(seconds until the next request of the kind `bucket` may be sent, the reason), computed from the content of a
    file of limits."""
    now = _now()
    for name in (bucket, EVERYTHING):
        block = (state.get("blocked") or {}).get(name) or {}
        if block.get("until", 0.0) > now:
            return block["until"] - now, str(block.get("why") or "asked to slow down")
    known = (state.get("buckets") or {}).get(bucket)
    if known and known["reset"] > now and known["remaining"] <= known["limit"] * reserve:
        left = f"{known['remaining']} of {known['limit']} requests are left"
        return known["reset"] - now + 1.0, f"{left} until the reset"
    return 0.0, ""


def known_limits(folder: Path) -> dict[str, dict[str, Any]]:
    """Host → the content of its file of limits (`buckets`, `blocked`), for every host of the folder; the function
    changes nothing."""
    names = [path.stem for path in sorted(folder.glob("*.json")) if not path.stem.endswith(OTHER_FILES)]
    return {name: RateLimiter(folder, name)._read() for name in names}  # noqa: SLF001 - `_read` is private to this module's class


def learnt_anew(interval: float, kept: float = KEPT_SECONDS) -> float:
    """The number of requests per hour by which polls every `interval` seconds refresh one fact that is read again when
    it is older than `kept` seconds."""
    return 3600 / (interval * math.ceil(kept / interval))


def _is_ours(state: Any) -> bool:
    """Whether the content of the file of limits has the format that `rate_limiter.py` writes."""
    if not isinstance(state, dict):
        return False
    rows = {"buckets": ("remaining", "limit", "reset"), "blocked": ("until",)}
    for part, names in rows.items():
        entries = state.get(part, {})
        if not isinstance(entries, dict) or not all(isinstance(one, dict) for one in entries.values()):
            return False
        if not all(isinstance(one.get(name), int | float) for one in entries.values() for name in names):
            return False
    return all(isinstance(state.get(name, 0), int | float) for name in ("strikes", "tokens", "paced_at"))


def _now() -> float:
    return clock.now().timestamp()
