"""The local tracker with a death in it: a plug-in by its dotted path, for the crash tests.

Every change that the contract has is written down in `changes` beside the configuration; the process that made the
one whose number stands in `die` dies right after it, before it can note that it is done.  Once.
"""

from __future__ import annotations

import fcntl
import os
import signal

from agent.forge.local import LocalForge


def _deadly(name):
    plain = getattr(LocalForge, name)

    def call(self, key, *args, **named):
        result = plain(self, key, *args, **named)
        self.happened(name)
        return result

    return call


class KillingForge(LocalForge):
    """Everything as in `LocalForge`, until it is time."""

    def __init__(self, settings):
        super().__init__(settings)
        self.root = settings.root

    take, move_label = _deadly("take"), _deadly("move_label")
    post_comment, edit_comment = _deadly("post_comment"), _deadly("edit_comment")
    open_pull, update_pull = _deadly("open_pull"), _deadly("update_pull")

    def happened(self, name):
        with (self.root / "changes").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = len(file.readlines())
            file.write(f"{name}\n")
        die = self.root / "die"
        if die.exists() and die.read_text() == str(number):
            die.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
