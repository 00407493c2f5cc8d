"""Detects changes of the ledger and of the tasks that open pages show, once for all these pages.

While a page is open, one asyncio task checks for changes every SECONDS, or every SHARED_SECONDS for a ledger without a
change counter, and when another page is opened. The change counter of a SQLite file (`PRAGMA data_version`) shows
whether another connection has changed the ledger, so that no rows are read while nothing changes; of other ledgers a
query reads a few sums. The sizes of the files in WATCHED show whether a task has changed.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.dashboard.conversation import COMPACTIONS, MESSAGES, REQUESTS, TOOLS
from agent.errors import MakimonoError
from agent.wiring.folders import folder_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from agent.config import Settings
    from agent.dashboard.ledger_reader import LedgerReader
    from agent.store.base import Database

SECONDS = 1.0
SHARED_SECONDS = 3.0
"""Seconds between two checks of a ledger that has no change counter."""
OPEN_SECONDS = 10.0
"""The maximum number of seconds that a page waits for the first check of what it shows."""
MOST_PAGES = 100
WATCHED = (MESSAGES, TOOLS, REQUESTS, COMPACTIONS)


class ChangeWatcher:
    """Detects the changes for any number of open pages. `run` runs a blocking function in a thread."""

    def __init__(
        self, settings: Settings, reader: LedgerReader, run: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
    ) -> None:
        self.settings = settings
        self.reader = reader
        self.run = run
        self.pages: dict[asyncio.Event, str] = {}
        self._new: list[asyncio.Event] = []
        """For each open page that was not checked yet, an event that its first check sets."""
        self._woken = asyncio.Event()
        self._lock = Lock()
        self._state: Any = None
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._database: Database | None = None
        self._identity: Any = None
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def page(self, uuid: str = "") -> AsyncIterator[asyncio.Event | None]:
        """A context manager for an open page. `page` yields an event that is set when any row of the ledger, or a file
        in WATCHED of the task `uuid`, has changed; None if MOST_PAGES pages are open already.

        The body of the `with` statement begins when the rows and the watched files were checked once, or after
        OPEN_SECONDS if that takes longer. Each later check that finds a change sets the yielded event.
        """
        if len(self.pages) >= MOST_PAGES:
            yield None
            return
        changed, seen = asyncio.Event(), asyncio.Event()
        self.pages[changed] = uuid
        self._new.append(seen)
        self._woken.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(seen.wait(), OPEN_SECONDS)
            yield changed
        finally:
            del self.pages[changed]

    async def close(self) -> None:
        """End the detection of changes."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        seconds = SECONDS if self.reader.kind.is_local else SHARED_SECONDS
        try:
            while self.pages:
                self._woken.clear()
                new, self._new = self._new, []
                uuids = {uuid for uuid in self.pages.values() if uuid}
                rows, tasks = await self.run(partial(self._find_changes, uuids))
                for page, uuid in self.pages.items():
                    if rows or uuid in tasks:
                        page.set()
                for seen in new:
                    seen.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), seconds)
        finally:
            # a page that is opened after this assignment starts a new asyncio task, even before `_drop` is done
            self._task = None
            await self.run(self._drop)

    def _find_changes(self, uuids: set[str]) -> tuple[bool, set[str]]:
        """(whether rows have changed since the last check, the tasks of `uuids` with changed files)."""
        with self._lock:
            before, self._state = self._state, self._rows()
            sizes = {uuid: self._files(uuid) for uuid in uuids}
            changed = {uuid for uuid, found in sizes.items() if uuid in self._sizes and self._sizes[uuid] != found}
            self._sizes = sizes
            return before is not None and before != self._state, changed

    def _rows(self) -> Any:
        """A value that differs after a row has changed; an error of the ledger is such a value too."""
        try:
            if self.reader.kind.is_local:
                return self._counter()
            with self.reader.ledger() as ledger:
                return ledger.db.run("page_state")
        except (MakimonoError, OSError) as error:
            self._close()
            return str(error)

    def _counter(self) -> Any:
        """The identity of the ledger's file and the file's counter of changes by other connections; "none" if there is
        no file."""
        path = getattr(self._database, "path", None)
        identity = None if path is None else durable_files.identity(path)
        if self._database is None or identity != self._identity:
            self._close()
            if not self.reader.kind.exists():
                return "none"
            self._database = self.reader.connect()
            path = getattr(self._database, "path", None)
            self._identity = None if path is None else durable_files.identity(path)
        (found,) = self._database.execute("PRAGMA data_version")
        return self._identity, found

    def _files(self, uuid: str) -> tuple[int, ...]:
        folder = folder_of(self.settings, uuid)
        return () if folder is None else tuple(_size(folder / name) for name in WATCHED)

    def _drop(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            with suppress(MakimonoError):
                self._database.close()
            self._database = None


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - this runs once a second for each task that a page shows
    except OSError:
        return -1
