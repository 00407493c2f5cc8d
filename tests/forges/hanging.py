"""A forge that never answers, as a plug-in with a dotted path."""

from __future__ import annotations

import time

from agent.forge.local.forge import LocalForge


class HangingForge(LocalForge):
    """Writes the file `asked` beside the configuration at the first request, and waits until the file `answer`
    exists."""

    source = "hanging"

    def __init__(self, settings):
        super().__init__(settings)
        self.root = settings.root

    def task_getter(self):
        (self.root / "asked").touch()
        while not (self.root / "answer").exists():
            time.sleep(0.05)
        return super().task_getter()
