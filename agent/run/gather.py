"""Lay the code that a task runs side by side, before workers are forked.

CPython writes into a code object whenever it runs (reference counts, inline caches), and a page that is written is a
worker's own from then on.  Loaded module by module, what a task runs is spread between all that it never runs; copied
one after another it takes a quarter of the pages: 1.6 MiB of each worker.  A copy is the same code, so nothing else
changes.  `run/preload_many.py` calls it once, after a rehearsal with a forked worker has shown what runs.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

Ran = set[int]
"""By `id`: code objects of different files can be equal, and a fork keeps their addresses."""

_FILLING: list[CodeType] = []
"""Kept for the room that it takes: freed, it would leave holes all over the heap for what a worker makes."""


def watched(call: Callable[[], object]) -> tuple[int, Ran]:
    """(exit code, the code that ran) of a process that is forked for the call, in its threads too.

    What runs right after any fork is in it, and whatever else the call leaves in memory goes with the process.
    """
    ran: Ran = set()
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add(id(frame.f_code))

    def child() -> None:
        try:
            call()
        finally:
            _profile(None)
            send.send(ran)

    process = context.Process(target=child)
    _profile(note)
    try:
        process.start()
    finally:
        _profile(None)
    send.close()
    with receive:
        try:
            found: Ran = receive.recv()
        except EOFError:  # it was killed
            found = set()
    process.join()
    return process.exitcode or 0, found


def _profile(note: Callable[[FrameType, str, object], None] | None) -> None:
    threading.setprofile(note)
    sys.setprofile(note)


def gather(ran: Ran) -> int:
    """Give every function whose code ran, or holds code that ran, a copy of it; how many functions were changed.

    The copies are made twice: the first fill the holes that the heap has, the second lie together.
    """
    gc.unfreeze()
    functions = [one for one in gc.get_objects() if type(one) is FunctionType and _runs(one.__code__, ran)]
    rounds: list[dict[int, CodeType]] = [{}, {}]
    for copies in rounds:
        for function in functions:
            _copy(function.__code__, ran, copies)
    first, copies = rounds
    _FILLING.extend([*first.values(), *(function.__code__ for function in functions)])
    for function in functions:
        function.__code__ = copies[id(function.__code__)]
    return len(functions)


def _runs(code: CodeType, ran: Ran) -> bool:
    return id(code) in ran or any(_runs(inner, ran) for inner in code.co_consts if type(inner) is CodeType)


def _copy(code: CodeType, ran: Ran, copies: dict[int, CodeType]) -> CodeType:
    """The copy of the code, made once, with copies of what runs inside it."""
    if id(code) not in copies:
        inner = tuple(
            _copy(const, ran, copies) if type(const) is CodeType and _runs(const, ran) else const
            for const in code.co_consts
        )
        copies[id(code)] = code.replace(co_consts=inner)
    return copies[id(code)]
