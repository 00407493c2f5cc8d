"""The only place that builds adapters: forge, ledger, model client, sandbox, tools, window.

One `Wiring` per process (connections are opened after the fork).  Everything above it gets its parts from here, and
everything below it is told what to use instead of choosing.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent import disk
from agent.errors import ConfigError
from agent.forge.base import FORGES
from agent.observe.events import Events, to_log
from agent.observe.items import Items
from agent.run import solo
from agent.store.learnt import LearntModels
from agent.store.ratios import RatioTable
from agent.taskqueue import LEDGERS
from agent.taskqueue.identity import owner
from agent.tokens import LearntRatios
from agent.window.base import MEMORIES
from agent.window.recall import Unbuilt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.taskqueue.ledger import Ledger
    from agent.values import MemoryLayer, TaskKey


class Wiring:
    """Adapters of one process."""

    def __init__(self, settings: Settings, *, events: Events | None = None) -> None:
        self.settings = settings
        self.events = events or Events([to_log])
        self.owner = owner(settings.base_dir)
        self._items: dict[str, Items] = {}
        disk.on_slow(self._slow)

    def items(self, loop: str) -> Items:
        """What a loop of this name over rows, folders or messages handles each of its items in."""
        if loop not in self._items:
            self._items[loop] = Items.of(self.events, loop)
        return self._items[loop]

    @property
    def db(self) -> Any:
        """The connection that the ledger has: one for all that this process keeps in rows."""
        return self.ledger.db

    @cached_property
    def ledger(self) -> Ledger:
        """Rows: what is to do, what runs, what is done; kept where `taskqueue.ledger` says."""
        address = self.settings.taskqueue.ledger
        ledger: Ledger = LEDGERS.load(address.partition("://")[0])(self.settings.base_dir, address)
        return ledger

    @cached_property
    def ratios(self) -> LearntRatios:
        """What was learnt about the estimates of each model."""
        return LearntRatios(RatioTable(self.db))

    @cached_property
    def learnt(self) -> LearntModels:
        """What was learnt about models on their servers."""
        return LearntModels(self.db)

    @cached_property
    def memory(self) -> Mapping[str, MemoryLayer]:
        """Layers of long-term memory by name.  One that cannot be built is reported when a task asks it, and the task
        begins without it."""
        layers: dict[str, MemoryLayer] = {}
        for name in self.settings.assembler.memory:
            try:
                layers[name] = MEMORIES.load(name)(self.settings)
            except Exception as error:  # noqa: BLE001 - a layer is foreign code, and never ends a task
                layers[name] = Unbuilt(error)
        return layers

    @cached_property
    def forges(self) -> tuple[Forge, ...]:
        """One adapter per configured source and instance."""
        return tuple(forge for source in self.settings.task_sources for forge in FORGES.load(source).all(self.settings))

    def forges_for(self, key: TaskKey) -> tuple[Forge, ...]:
        """The configured adapters, and the private tracker of `solve` when the key is of it."""
        own = solo.settings_of_tracker(self.settings, key.instance)
        return self.forges if own is None else (FORGES.load("local")(own),)

    def forge_of(self, key: TaskKey) -> Forge:
        """The adapter that serves the key's project on the instance that it names."""
        forges = self.forges_for(key)
        for forge in forges:
            if forge.covers(key):
                return forge
        known = ", ".join(f"{forge.source} {forge.instance}" for forge in forges) or "none"
        raise ConfigError(
            f"task {key}: its source {key.task_source} {key.instance} is not configured; configured are {known}. "
            f"Add it to task_sources, or stop the task"
        )

    def _slow(self, path: str, what: str, seconds: float) -> None:
        self.events.emit("disk_slow", file=path, what=what, seconds=round(seconds, 3))

    def close(self) -> None:
        """Close what was opened."""
        disk.on_slow(None)  # or it holds all of this: in a forkserver it lay in the way of each worker
        if "ledger" in self.__dict__:
            self.ledger.close()
