"""The templates of one task, which uses the set with which it began until its end (docs/templates.md).

`worker/attempt.py` and the job of long-term memory call this module.  Without templates of people, a task checks only
that a file is missing, and imports no other module.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent import prompts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.config import Settings
    from agent.observe.events import Events

FILE = "prompts.json"


@contextmanager
def present_templates(settings: Settings, events: Events) -> Iterator[None]:
    """Use the present templates, for work that belongs to no task."""
    if not settings.prompts.is_set:
        yield
        return
    from agent.prompts.loader import TemplateLoader

    with prompts.using(TemplateLoader(settings, events.emit).refresh()):
        yield


@contextmanager
def templates_of(settings: Settings, events: Events, folder: Path) -> Iterator[None]:
    """Use the templates that the task with this folder began with, inside the block.

    A task that begins gets the present set, which is recorded in its folder.  Raises DiskError."""
    if not settings.prompts.is_set and not (folder / FILE).exists():
        with prompts.using(None):
            yield
        return
    from agent.prompts.loader import TemplateLoader

    with prompts.using(TemplateLoader(settings, events.emit).of_task(folder)):
        yield
