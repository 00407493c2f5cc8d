"""Comments reach a running task, whatever the thread that reads them waits for meanwhile."""

import fcntl
import os
import threading

from agent import deadline, durable_files
from agent.forge.base import Comment
from agent.observe.events import Events
from agent.values import TaskKey
from agent.worker.control import TaskControl
from agent.worker.inbox import CommentInbox

KEY = TaskKey("github", "github.com", "acme", "web", "issue", "1")
SAID = Comment("7", "alice", "To cents, please.", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")


class Locking:
    """A forge whose requests wait for the lock of the host's limits, as those of the real adapters do."""

    source, instance, news_interval = "github", "github.com", 0.0

    def __init__(self, path):
        self.path = path

    def own_names(self):
        return ("makimono",)

    def comments_since(self, key, cursor):
        with durable_files.locked(self.path):
            return (SAID,), "next"


def test_a_wait_for_the_lock_of_a_host_does_not_wait_for_itself(tmp_path):
    """The wait asks whether the task shall stop; the control then polls the same inbox in the same thread."""
    path = tmp_path / "limits.lock"
    inbox = CommentInbox(Locking(path), KEY, "1", None, lambda cursor: None, Events(), often=0.0)
    inbox.start(None)
    asked = threading.Event()

    def wanted():
        asked.set()
        inbox.poll()

    control = TaskControl(lambda: None, wanted, often=0.0)
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)

    def work():
        with deadline.listening(control.has_request):
            inbox.poll(now=True)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert asked.wait(30)
    os.close(other)
    worker.join(30)
    assert not worker.is_alive(), "it waits for itself"
    assert inbox.talk == [SAID]
