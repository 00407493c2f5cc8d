"""TaskFactory makes a `Task` object from the mapping (dict) that the queue stores for the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.forge.base import Task
from agent.values import TaskKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.forge.base import Forge


class TaskFactory:
    """Makes `Task` objects from the mappings (dict) that the queue stores (docs/design/context.md, 4.7)."""

    @staticmethod
    def from_dict(task_dict: Mapping[str, Any], forges: Iterable[Forge] = ()) -> Task:
        """Make a `Task` from a mapping with the five parts of the task key, `instance`, `uuid`, `user` and `title`.

        The task's forge is the forge in `forges` that covers the task key; if the key has no instance, the only forge
        of the key's source; None if there is no such forge, or more than one.  Raises ValueError when a part of the key
        is missing.
        """
        key = TaskKey.from_mapping(task_dict)
        of_source = [forge for forge in forges if forge.source == key.task_source]
        if key.instance:
            of_source = [forge for forge in of_source if forge.covers(key)]
        task = Task(key, of_source[0] if len(of_source) == 1 else None)
        task.uuid = task_dict.get("uuid")
        task.user = task_dict.get("user")
        task.title = task_dict.get("title")
        return task
