"""Reads the message lines (one message in JSON per line) that a request contains, and checks the lines that were not
checked yet.

A line that was read before is not checked again (`message_reader.py`; docs/wire.md, "The request").
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent import message_reader
from agent.errors import HistoryRefused
from agent.message_reader import MessageReader, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent.message_list_check import Shape
    from agent.values import Span


def sized(spans: Sequence[Span]) -> list[tuple[Path, int, int]]:
    """(path, start, end) of each span with at least one byte; a span without an end ends at the present end of its
    file."""
    found = []
    for span in spans:
        end = span.path.stat().st_size if span.end is None else span.end
        if end > span.start:
            found.append((span.path, span.start, end))
    return found


def lines(spans: Sequence[Span]) -> Iterator[bytes]:
    """Each message line in the spans of files, without its newline; one line in memory at a time."""
    for path, start, end in sized(spans):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _, line in message_reader.lines(descriptor, start, end, unfinished=True):
                yield line
        finally:
            os.close(descriptor)


class Lines:
    """Checks the lines of a message list, each line once.

    When the planner has read all lines of a context file, its plan contains the result of the check, and `Lines` reads
    none of them. `Lines` reads message lists without a plan, message lists of requests outside the conversation, and
    plans that omit lines of the context file. A message list that the planner has not read need not have a system
    prompt (`message_list_check.MessageList`).
    """

    def __init__(self) -> None:
        self.reader = MessageReader(system_first=False, unfinished=True)

    def check(self, spans: Sequence[Span], reading: object = None) -> Shape:
        """Check a message list and return its shape (what it contains); only lines that were not read before are read.

        `reading` is the result of the planner's check, from the plan (`values.Plan.reading`).

        Raises HistoryRefused, which names the file and the broken rule, for a list that breaks a rule.
        """
        if isinstance(reading, Reading) and (shape := reading.shape_of(spans)) is not None:
            return shape
        messages = self.reader.read_list(spans)
        if problem := messages.unfit(str(spans[-1].path) if spans else "the request"):
            raise HistoryRefused(problem)
        return messages.shape
