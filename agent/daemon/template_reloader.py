"""Lets a running daemon use changed templates of people in the texts that it writes itself, and announces changes.

A worker looks at the folder by itself when its task begins, so this thread delays no task.
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
"""Seconds between two looks at the folder."""


class TemplateReloader:
    """The thread's work.  `is_over` tells it to end."""

    def __init__(self, settings: Settings, events: Events, is_over: Callable[[], bool]) -> None:
        self.loader = TemplateLoader(settings, events.emit)
        self._is_over = is_over
        self._downloaded_at: float | None = None
        self._seconds = settings.prompts.ttl_seconds

    def step(self) -> None:
        """Look once at this disk, and use the set that is good."""
        prompts.use(self.loader.refresh())

    def download_if_due(self) -> None:
        """Download when the last try is `prompts.ttl_seconds` ago; a server may let this thread wait."""
        now = clock.monotonic()
        if self._downloaded_at is None or now - self._downloaded_at >= self._seconds:
            self._downloaded_at = now
            self.loader.download()

    def work(self) -> None:
        """Look again and again until the daemon ends."""
        pause = threading.Event()
        while not self._is_over():
            self.download_if_due()
            self.step()
            pause.wait(SECONDS)
