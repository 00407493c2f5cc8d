"""Makes a task use one set of templates from its beginning to its end (docs/templates.md).

The loader of templates is imported only if templates of users are configured, or if the task's folder has a file with a
set of templates.
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
    """Use the configured templates inside the block, for work that belongs to no task."""
    if not settings.prompts.is_set:
        yield
        return
    from agent.prompts.loader import TemplateLoader

    with prompts.using(TemplateLoader(settings, events.emit).refresh()):
        yield


@contextmanager
def templates_of(settings: Settings, events: Events, folder: Path) -> Iterator[None]:
    """Inside the block, use the templates with which the task with this folder began.

    A task that begins uses the configured templates, and these templates are recorded in the folder of the task.
    Raises DiskError."""
    if not settings.prompts.is_set and not (folder / FILE).exists():
        with prompts.using(None):
            yield
        return
    from agent.prompts.loader import TemplateLoader

    with prompts.using(TemplateLoader(settings, events.emit).of_task(folder)):
        yield
