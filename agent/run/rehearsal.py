"""One small task, worked off in the forkserver before it forks.

What a task writes into memory the first time that it runs anything (caches, tables, bytecode that adapts itself) is
written, and paid for, by each worker; after a rehearsal it is there and shared.  It is a real task of a real tracker
against a recorded answer, in a folder that is removed: nothing stays but memory.  `run/preload_many.py` calls it.
"""

from __future__ import annotations

import gc
import signal
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import settings_of
from agent.errors import MakimonoError
from agent.gitcmd import Identity, git
from agent.llm.replay_server import ReplayServer
from agent.observe import log
from agent.observe.events import Events
from agent.run import worker
from agent.run.producer import fetch_and_enqueue_tasks
from agent.run.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config import Settings

ISSUE = b"---\ntitle: Rehearsal\nlabels: [coding agent]\nauthor: alice\nstate: open\n---\nSay that it is done.\n"
FINISH = {"name": "finish", "arguments": '{"title": "Done", "summary": "Done."}'}
CALLS = [{"id": "c1", "type": "function", "function": FINISH}]
ANSWER = {"seq": 1, "role": "assistant", "content": "", "tool_calls": CALLS}
KEY = "rehearsal-key"  # a secret, as nearly every task has one: it is looked for in what is written
PATIENCE = 5.0  # seconds for threads of the loopback server to see that it is over


def rehearse(work: Callable[[Settings, str], int] = worker.process_task, tasks: int = 1) -> bool:
    """Work off so many tasks in a temporary folder; signals, threads, descriptors and log are as before afterwards.

    False when it could not be done (no git, no room): the workers then do everything for the first time, and say
    what is wrong with the machine.
    """
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    before = set(threading.enumerate())
    try:
        with tempfile.TemporaryDirectory(prefix="makimono-rehearsal-", ignore_cleanup_errors=True) as place:
            return _rehearse(Path(place), work, tasks) == 0
    except (MakimonoError, OSError):
        return False
    finally:
        log.close()
        for number, handler in kept.items():
            signal.signal(number, handler)
        gc.collect()  # closes the connection that the client keeps; the thread at its other end sees that
        for thread in set(threading.enumerate()) - before:
            thread.join(PATIENCE)


def _rehearse(place: Path, work: Callable[[Settings, str], int], tasks: int) -> int:
    """The worst exit code of the workers."""
    issues = place / "tracker" / "issues"
    issues.mkdir(parents=True)
    for number in range(1, tasks + 1):
        (issues / f"{number}.md").write_bytes(ISSUE)
    repository = place / "repository"
    git("init", "--quiet", "--template=", "--initial-branch=main", "--", str(repository))
    who = Identity("Alice", "alice@localhost").environment(0.0)
    git("commit", "--quiet", "--allow-empty", "-m", "Start", git_dir=repository / ".git", work_tree=repository, env=who)
    with ReplayServer([ANSWER]) as server:
        settings = settings_of(
            {
                "task_sources": ["local"],
                "local": {"tracker": str(place / "tracker"), "repos": {"default": str(repository)}},
                "context_storage": {"base_dir": str(place / "contexts"), "durability": "none"},
                "llm": {
                    "provider": "openai",
                    "openai": {
                        "model": "rehearsal",
                        "base_url": server.url,
                        "context_length": 50_000,
                        "api_key": KEY,
                    },
                },
                "sandbox": {"kind": "none"},
            }
        )
        with closing(Wiring(settings, events=Events([]))) as wiring:
            found = fetch_and_enqueue_tasks(settings, wiring.ledger, wiring.forges, wiring.events)
        return max([work(settings, uuid) for uuid in found], default=1)
