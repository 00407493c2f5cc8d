"""The local tracker with a kill after a chosen change, as a plug-in with a dotted path, for the crash tests.

Every change by the contract is recorded in the file `changes` beside the configuration.  The process that makes the
change with the number in the file `die` is killed right after it, before it can record its own success.  This happens
once.
"""

from __future__ import annotations

import fcntl
import os
import signal

from agent.forge.local.forge import LocalForge


def _deadly(name):
    plain = getattr(LocalForge, name)

    def call(self, key, *args, **named):
        result = plain(self, key, *args, **named)
        self.happened(name)
        return result

    return call


class KillingForge(LocalForge):
    """Like `LocalForge`, with the kill."""

    def __init__(self, settings):
        super().__init__(settings)
        self.root = settings.root

    mark_taken, move_label = _deadly("mark_taken"), _deadly("move_label")
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
