"""Opens the long-term memory that a configuration names, and determines the actor of a task: the name under which the
memory keeps the task's records.

The actor is determined in the module `wiring/memory.py` only, because recall (in the packages `window` and `tools`) and
extraction (`extraction`) must use the same actor.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from agent.forge.local.forge import resolved_address
from agent.memory import MemoryStore, SharedPlace
from agent.memory.namespaces import actor_name, actor_of
from agent.memory.recall import TaskRecall
from agent.security.redact import masker_of
from agent.security.token_masking import mask_tokens
from agent.store.configured_ledger import LedgerKind
from agent.taskqueue.row_holder import hostname
from agent.wiring import private_tracker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.config import Settings
    from agent.values import TaskKey

CONFIDENTIAL = "confidential"
"""A word that is added to the actor of confidential issues, so that only confidential issues of the repository get
their memories."""


def actor_of_task(settings: Settings, key: TaskKey, *, confidential: bool = False) -> str:
    """The actor of a task (the name under which long-term memory keeps its records), made from the setting
    `memory.actor`.

    A local tracker has no host and no owner: its actor is made from the repository's path or address, so that every
    tracker and every `solve` of one repository share a memory.
    """
    instance, owner, repo = key.instance, key.owner, key.repo
    if key.is_in_folder and (address := _address(settings, key)):
        parent, _, name = address.removesuffix("/").removesuffix(".git").rpartition("/")
        owner = parent.strip("/")
        # two paths `/srv/a-b` and `/srv/a/b` would give one name, so for a path with `-` `actor_of` makes a name with a
        # hash
        instance, owner, repo = "local", owner if "-" in owner else owner.replace("/", "-"), name
    actor = actor_of(settings.memory.actor, instance=instance, owner=owner, repo=repo)
    return actor_name(actor, CONFIDENTIAL) if confidential else actor


def actors_of_task(settings: Settings, key: TaskKey, *, confidential: bool = False) -> tuple[str, ...]:
    """The actors of which a task may get memories, its own actor first: a confidential issue may also get the memories
    of the repository's other issues."""
    own = actor_of_task(settings, key, confidential=confidential)
    return (own, actor_of_task(settings, key)) if confidential else (own,)


def open_memory(settings: Settings, who: str) -> MemoryStore:
    """The store of long-term memory, whose files are opened at the first call of a method. `who` is recorded in the
    memory log with each change, together with the name of this host if several hosts share the log."""
    redact = masker_of(settings)
    shared = shared_place(settings)
    return MemoryStore(
        settings.base_dir,
        settings.memory,
        mask=lambda text: mask_tokens(redact(text), Counter()),
        who=f"{who} on {hostname()}" if shared is not None else who,
        shared=shared,
        guard=settings.plugin_guard,
    )


def shared_place(settings: Settings) -> SharedPlace | None:
    """The memory log that the hosts of the ledger share; None if each host has its own log."""
    kind = LedgerKind.from_settings(settings)
    opens = kind.memory_log()
    return None if opens is None else SharedPlace(kind.where, opens)


def task_recall(
    settings: Settings, key: TaskKey, uuid: str, *, confidential: bool, said_elsewhere: Iterable[str] = ()
) -> TaskRecall:
    """The object by which one task recalls records from long-term memory.  `said_elsewhere` are the sessions (earlier
    tasks) of which the briefing already contains a summary."""
    actors = actors_of_task(settings, key, confidential=confidential)
    return TaskRecall(partial(open_memory, settings, f"task {uuid}"), actors, uuid, said_elsewhere)


def _address(settings: Settings, key: TaskKey) -> str:
    """The path or address of the repository of a task on a local tracker, "" when it is not known any more."""
    own = private_tracker.settings_of_tracker(settings, key.instance) or settings
    found = own.local.repos.get(key.repo)
    if found is None:
        return ""
    return resolved_address(settings.root, str(found))
