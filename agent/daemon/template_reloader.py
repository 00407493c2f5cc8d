"""Lets a running daemon use changed templates of people in the texts that it writes itself, and announces changes.

A worker reads the templates itself when its task begins, so the thread that reloads templates delays no task.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from agent import clock, prompts
from agent.prompts.loader import TemplateLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings
    from agent.observe.events import Events

SECONDS = 2.0
"""Seconds between two checks of the folder with the templates."""


class TemplateReloader:
    """The body of the thread that reloads templates.  `is_over` returns whether the thread must end."""

    def __init__(self, settings: Settings, events: Events, is_over: Callable[[], bool]) -> None:
        self.loader = TemplateLoader(settings, events.emit)
        self._is_over = is_over
        self._downloaded_at: float | None = None
        self._seconds = settings.prompts.ttl_seconds

    def step(self) -> None:
        """Check the folder with the templates and the stored download once, and use a new valid set of templates."""
        prompts.set_replacements(self.loader.refresh())

    def download_if_due(self) -> None:
        """Download the set of templates at the first call, and when the last try was at least `prompts.ttl_seconds`
        ago; only this thread waits for the server."""
        now = clock.monotonic()
        if self._downloaded_at is None or now - self._downloaded_at >= self._seconds:
            self._downloaded_at = now
            self.loader.download()

    def work(self) -> None:
        """Check for changed templates repeatedly until the daemon ends."""
        pause = threading.Event()
        while not self._is_over():
            self.download_if_due()
            self.step()
            pause.wait(SECONDS)
