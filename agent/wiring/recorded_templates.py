"""Selects the templates for texts that the daemon writes about a task that has begun: those with which the task
began."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent import prompts
from agent.wiring.folders import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings
    from agent.observe.events import Events

FILE = "prompts.json"


@contextmanager
def recorded_templates(settings: Settings, events: Events, uuid: str) -> Iterator[None]:
    """A context manager: within its block, and in this thread only, texts are made from the templates that the task has
    recorded.

    The current templates stay in use if the task has not begun, if the task's folder is on another host, or if no
    templates of people are configured and the folder records none."""
    folder = folder_of(settings, uuid)
    if folder is None or not (settings.prompts.is_set or (folder / FILE).exists()):
        yield
        return
    from agent.prompts.loader import TemplateLoader, has_begun

    if not has_begun(folder) and not (folder / FILE).exists():
        yield
        return
    with prompts.using_in_thread(TemplateLoader(settings, events.emit, stores=False).of_task(folder)):
        yield
