"""The forkserver of a daemon, which has all common modules loaded, and the processes that it forks: workers and jobs of
the long-term memory."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from agent import proc
from agent.store.configured_ledger import LedgerKind
from agent.tokens.preloaded import modules_for

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    from agent.config import Settings


def context_for(settings: Settings) -> ForkServerContext:
    """A context with a forkserver that loads the modules that a worker with these settings needs."""
    context = multiprocessing.get_context("forkserver")
    summary = settings.context_storage.summary_model.model
    context.set_forkserver_preload(
        [
            *LedgerKind.from_settings(settings).preload,
            # before the modules of tokenizers, since it must import `requests` before the package of a tokenizer does
            "agent.llm.transport",
            *modules_for([settings.provider().model, *([summary] if summary else [])]),
            *(["agent.observe.otlp"] if settings.observe.otlp else []),
            *(["agent.prompts.loader"] if settings.prompts.is_set else []),
            *(["agent.daemon.preload_memory_package"] if settings.memory.enabled else []),
            "agent.daemon.preload",  # must be imported last, since its import freezes all existing objects
        ]
    )
    return context


def fork(
    context: ForkServerContext, target: Callable[..., object], *args: object
) -> tuple[ForkServerProcess, Connection]:
    """Start a process that calls `target` with `args` and, last, the writing end of a pipe; returns (the process, the
    reading end).

    Raises OSError or EOFError when the fork fails; then no part of the process remains.
    """
    receive, send = context.Pipe(duplex=False)
    try:
        process = context.Process(target=target, args=(*args, send), daemon=False)
        process.start()  # if the forkserver was killed, the next start of a process makes another forkserver
    except BaseException:
        receive.close()
        raise
    finally:
        send.close()
    return process, receive


def send_signal(process: ForkServerProcess, number: signal.Signals) -> None:
    """Send a signal to the group of a process that has not ended, and to the process itself: one that has just been
    forked leads no group yet."""
    if process.exitcode is None and process.pid is not None:
        proc.kill_group(process.pid, number)
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
