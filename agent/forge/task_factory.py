"""TaskFactory makes a task from its mapping in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.forge.base import Task
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.forge.base import Forge


class TaskFactory:
    """Makes a task again from the mapping that the queue holds (docs/design/context.md, 4.7)."""

    @staticmethod
    def from_dict(task_dict: Mapping[str, Any], forges: Iterable[Forge] = ()) -> Task:
        """The task of a mapping that has the key's five names, `instance`, `uuid` and `user`.

        The task's forge is the one in `forges` with the source and instance of the key; if the key has no instance, it
        is the only forge of that source; None if there is no such forge.  Raises ValueError when a part of the key is
        missing.
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
