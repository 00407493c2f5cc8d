"""A task as it travels from a forge to the queue and to the worker (names of the seeds).

A `Task` is a key, who asked, and the adapter it came from.  It holds no text: the worker reads the issue anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import ForgeError
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.errors import IssueUnreadable
    from agent.forge.base import Forge


class Task:
    """One issue that somebody wants worked on.  `uuid` is None until the queue gave one (seed 002, 4.6)."""

    def __init__(
        self,
        key: TaskKey | Mapping[str, Any],
        forge: Forge | None = None,
        *,
        uuid: str | None = None,
        user: str | None = None,
        title: str | None = None,
    ) -> None:
        self.key = TaskKey.of(key)
        self.forge = forge
        self.uuid = uuid
        self.user = user
        self.title = title

    def get_task_key(self) -> TaskKey:
        """What the task is about."""
        return self.key

    def get_user(self) -> str | None:
        """Who asked: the issue's author."""
        return self.user

    def get_uuid(self) -> str | None:
        """The uuid the queue gave, None before."""
        return self.uuid

    def prepare(self) -> bool:
        """Show on the forge that the task is taken: the processing label instead of the bot label.

        Called after the row is in the ledger; calling it again does no harm.  False: it did not wait any more, somebody
        else took it.  ForgeError without a forge.
        """
        if self.forge is None:
            raise ForgeError(f"task {self.key} has no forge; make it with TaskFactory.from_dict(task_dict, forges)")
        return self.forge.take(self.key)

    def __repr__(self) -> str:
        return f"Task({self.key}, uuid={self.uuid})"


class TaskGetter(Protocol):
    """Lists the tasks that wait on one forge.

    `problems` are the issues of the last look that could not be read; they are left out of the list and the others go
    on, so the caller has to report them.
    """

    problems: tuple[IssueUnreadable, ...]

    def get_task_list(self) -> list[Task]:
        """Open issues that carry the bot label and whose author may ask, oldest number first.

        ForgeError when the forge as a whole cannot be read.  What the own account wrote never starts a task.
        """
        ...

    def get_left_list(self) -> list[Task]:
        """Open issues that show that they are worked on or wait for a person (processing or paused label), whoever has
        them, oldest number first: what a ledger that was lost is compared with.  As `get_task_list` else."""
        ...


class TaskFactory:
    """Makes the task again from what the queue carried (seed 002, 4.7)."""

    @staticmethod
    def from_dict(task_dict: Mapping[str, Any], forges: Iterable[Forge] = ()) -> Task:
        """The task of a mapping with the key's five names, `instance`, `uuid` and `user`.

        The forge is the one of `forges` with the key's source and instance (the only one of that source when the key,
        as in the seeds, has no instance), None when there is none.  ValueError when a part of the key is missing.
        """
        key = TaskKey.of(task_dict)
        of_source = [forge for forge in forges if forge.source == key.task_source]
        if key.instance:
            of_source = [forge for forge in of_source if forge.covers(key)]
        task = Task(key, of_source[0] if len(of_source) == 1 else None)
        task.uuid = task_dict.get("uuid")
        task.user = task_dict.get("user")
        task.title = task_dict.get("title")
        return task
