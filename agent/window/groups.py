"""The conversation behind the last cut, in groups: what a compaction may take away whole, and nothing smaller.

A group is an assistant message with the results of its calls, or one other message (design: section 5).  Only numbers
are kept, about 100 bytes a group; `compressor.py` asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.context.projection import shorter
from agent.context.provider_fields import tokens_of
from agent.context.records import is_legible, is_seen
from agent.context.trims import trimmed
from agent.tokens.counters import PER_CALL, PER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.context.provider_fields import Origin
    from agent.context.survey import Cut
    from agent.values import Json


@dataclass(frozen=True, slots=True)
class Group:
    """Messages `start` to `end` (seq).  `kind` is "calls", "plain" (an answer without calls) or "user".

    `maskable` is how many of its `tokens` go when its tool results become pointers.
    """

    start: int
    end: int
    kind: str
    tokens: int = 0
    messages: int = 0
    maskable: int = 0


def groups_of(
    records: Iterable[Json], cut: Cut, count: Callable[[str], int], origin: Origin | None = None
) -> list[Group]:
    """The groups of `records` (messages.jsonl, in order), as they are shown under `cut`.  `origin` is the wire and
    model in force."""
    found: list[Group] = []
    for record in records:
        if not is_legible(record) or not is_seen(record):
            continue
        tokens = tokens_of(record, origin)
        if (text := trimmed(record, cut.largest_of(record["seq"]))) is not None:
            tokens += count(text) - count(record["content"])
        freed = 0
        if record["role"] == "tool" and (pointer := shorter(record)) is not None:
            pointed = count(pointer)
            if record["seq"] <= cut.mask_end:
                tokens = pointed
            else:
                freed = max(0, tokens - pointed)
        tokens += PER_MESSAGE + PER_CALL * len(record.get("tool_calls") or ())
        if record["role"] == "tool" and found and found[-1].kind == "calls":
            last = found[-1]
            found[-1] = replace(
                last,
                end=record["seq"],
                tokens=last.tokens + tokens,
                messages=last.messages + 1,
                maskable=last.maskable + freed,
            )
        elif record["role"] != "tool":
            kind = "user" if record["role"] == "user" else "calls" if record.get("tool_calls") else "plain"
            found.append(Group(record["seq"], record["seq"], kind, tokens, 1))
    return found


def open_groups(groups: Sequence[Group]) -> int:
    """How many of the newest groups the model has not answered yet: they are never taken away."""
    number = 0
    for group in reversed(groups):
        if group.kind == "plain":
            break
        number += 1
        if group.kind == "calls":
            break
    return number


def kept_by_messages(groups: Sequence[Group], messages: int, room: int) -> int:
    """How many of the newest groups to keep for `messages` messages: rounded up to whole groups, down to what fits
    in `room` tokens, and never fewer than the open ones."""
    number = tokens = count = 0
    least = open_groups(groups)
    for group in reversed(groups):
        tokens += group.tokens
        if number >= least and (count >= messages or tokens > room):
            break
        number += 1
        count += group.messages
    return number


def kept_by_tokens(groups: Sequence[Group], room: int) -> int:
    """How many of the newest groups fit in `room` tokens; never fewer than the open ones."""
    return kept_by_messages(groups, 1 << 60, room)
