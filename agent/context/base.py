"""The contract of a store: one append-only file of facts in a task's folder (docs/files.md).

A new store is a class like the ones in this package, one line in `stores.STORES`, and a row in docs/files.md.
`TaskContextManager` opens and repairs a store, syncs it (`context_storage.durability` says how often), closes it, and
moves it with the task's folder; the replica and `backup` copy the store's file (`stores.file_names`).
`worker/fork_task.py` defines which lines are copied into a task that begins at a point of another task.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from agent.context.secret_masking import unmasked
from agent.store.jsonl import JsonlFile

if TYPE_CHECKING:
    from agent.config import Settings
    from agent.values import Redact


class Store:
    """A store is the file `NAME` of one task; `ID` is the key under which each line has its number.

    `redact` masks secrets in texts before they are recorded. `repairs` are sentences about repairs that were made when
    the file was opened; `file.damaged` has the sentences about broken lines. Only the process that holds the lock of
    the task's folder writes to a store.
    """

    NAME: ClassVar[str]
    ID: ClassVar[str] = "seq"
    NAMES_MESSAGES: ClassVar[bool] = False
    """Whether lines of this store refer to messages.jsonl, which is then synced before these lines; if False, messages
    may refer to this store, which is synced first."""

    def __init__(self, context_dir: Path, *, durability: str = "turn", redact: Redact = unmasked) -> None:
        self.context_dir = Path(context_dir)
        self.path = self.context_dir / self.NAME
        self.redact = redact
        self.repairs: list[str] = []
        self.file = JsonlFile(self.path, durability=durability, id_key=self.ID)

    @classmethod
    def is_used(cls, settings: Settings) -> bool:  # noqa: ARG003 - only subclasses use the parameter `settings`
        """Whether the store's file is made when the folder is opened; otherwise its first record makes it."""
        return True

    def sync(self, *, force: bool = False) -> None:
        """Sync the appended lines of the store to disk, as often as `context_storage.durability` demands. Raises
        DiskError."""
        self.file.sync(force=force)

    def close(self) -> None:
        """Close the store's file descriptors; after that nothing can be added. A second call of `close` does
        nothing."""
        self.file.close()

    def move_to(self, context_dir: Path) -> None:
        """Set the store's new path after the task's folder was moved; `close` must have been called before."""
        self.context_dir = context_dir
        self.path = self.file.path = context_dir / self.NAME
