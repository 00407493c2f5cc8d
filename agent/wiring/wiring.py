"""Builds what a process needs once: forges, ledger, layers of memory, token ratios, learnt facts about models.

Each process makes its own `Wiring`, since connections must be opened after the process was forked. In the daemon, each
thread that polls has its own `Wiring` too. Packages above `wiring` get these objects from `wiring.py`. Packages below
`wiring`, which cannot import it, get them as arguments. Sandboxes and model clients are made where they are used
(`make_sandbox`, `make_client`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent import durable_files
from agent.config.project_settings import for_project
from agent.errors import ConfigError
from agent.forge.base import FORGES
from agent.observe import log
from agent.observe.error_tolerant_loop import ItemLoop
from agent.observe.events import Events, to_log
from agent.security.redact import masker_of
from agent.store.configured_ledger import LedgerKind
from agent.store.learnt_model_facts import LearntModels
from agent.store.token_ratios import RatioTable
from agent.taskqueue.row_holder import owner
from agent.tokens import LearntRatios
from agent.window.base import MEMORIES
from agent.window.recall_layers import FailedLayer
from agent.wiring import private_tracker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.config import Settings
    from agent.forge.base import Forge
    from agent.taskqueue.ledger import Ledger
    from agent.values import MemoryLayer, TaskKey


class Wiring:
    """The adapters that one process, or one polling thread of the daemon, uses."""

    def __init__(self, settings: Settings, *, events: Events | None = None) -> None:
        self.settings = settings
        self.events = events or Events([to_log])
        self.redact = masker_of(settings)
        self.owner = owner(settings.base_dir)
        self._items: dict[str, ItemLoop] = {}
        durable_files.on_slow(self._slow)

    def items(self, loop: str) -> ItemLoop:
        """The object that reports the errors of single items (rows, folders, messages) in the loop with the name
        `loop`, so that the loop goes on."""
        if loop not in self._items:
            self._items[loop] = ItemLoop.announcing(self.events, loop)
        return self._items[loop]

    @property
    def db(self) -> Any:
        """The database connection of the ledger, which is also used for the other tables in the same database."""
        return self.ledger.db

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger that the setting `taskqueue.ledger` names."""
        ledger: Ledger = LedgerKind.from_settings(self.settings).open()
        return ledger

    @cached_property
    def ratios(self) -> LearntRatios:
        """The learnt ratio of reported to estimated tokens for each model."""
        return LearntRatios(RatioTable(self.db))

    @cached_property
    def learnt(self) -> LearntModels:
        """The stored facts that earlier runs have learnt about each server and model, such as a refused parameter."""
        return LearntModels(self.db)

    @cached_property
    def memory(self) -> Mapping[str, MemoryLayer]:
        """The configured layers of long-term memory, by name.

        A memory layer that cannot be built does not prevent the start of a task; the error is reported when the task
        queries the layer.
        """
        layers: dict[str, MemoryLayer] = {}
        for name in self.settings.assembler.memory:
            try:
                layers[name] = MEMORIES.load(name, self.settings.plugin_guard)(self.settings)
            except Exception as error:  # noqa: BLE001 - a memory layer may be a plug-in, of which no error may end a task
                log.mistake("memory", name, error)
                layers[name] = FailedLayer(error)
        return layers

    @cached_property
    def forges(self) -> tuple[Forge, ...]:
        """One forge adapter for each configured task source and instance."""
        return tuple(
            forge
            for source in self.settings.task_sources
            for forge in FORGES.load(source, self.settings.plugin_guard).from_settings(self.settings)
        )

    def forges_for(self, key: TaskKey) -> tuple[Forge, ...]:
        """The configured forge adapters; if the task key belongs to a private tracker, only the adapter for that
        tracker."""
        own = private_tracker.settings_of_tracker(self.settings, key.instance)
        return self.forges if own is None else (FORGES.load("local")(own),)

    def forge_of(self, key: TaskKey) -> Forge:
        """The forge adapter that serves the task with this key. Raises ConfigError if no adapter serves it."""
        forges = self.forges_for(key)
        for forge in forges:
            if forge.covers(key):
                return forge
        known = ", ".join(f"{forge.source} {forge.instance}" for forge in forges) or "none"
        raise ConfigError(
            f"task {key}: its source {key.task_source} {key.instance} is not configured; configured are {known}. "
            f"Add it to task_sources, or stop the task"
        )

    def use_project_of(self, key: TaskKey) -> None:
        """Replace `self.settings` by the settings for tasks of the key's project (`config/project_settings.py`)."""
        for forge in self.forges_for(key):
            if forge.covers(key):
                self.settings = for_project(self.settings, getattr(forge, "section", None), f"{key.owner}/{key.repo}")
                return

    def _slow(self, path: str, what: str, seconds: float) -> None:
        self.events.emit("disk_slow", file=path, what=what, seconds=round(seconds, 3))

    def close(self) -> None:
        """Close the ledger if it was opened, and remove the listener for slow writes."""
        # the list of listeners would otherwise keep this object alive, even in the workers of a fork server
        durable_files.off_slow(self._slow)
        if "ledger" in self.__dict__:
            self.ledger.close()
