"""Divides the conversation after the newest compaction into groups, the smallest units that a compaction may remove.

A group is an assistant message with the results of its calls, or one other message (docs/glossary.md). Only numbers of
the messages are in memory, about 100 bytes per group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.context.message_records import is_legible, is_seen
from agent.context.projection import shorter_pointer
from agent.context.provider_fields import tokens_of
from agent.context.shortened_message import shorten
from agent.tokens.counters import PER_CALL, PER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.context.index import Cut
    from agent.context.provider_fields import Origin
    from agent.values import Json


@dataclass(frozen=True, slots=True)
class Group:
    """The messages with the numbers `start` to `end`, as one group.

    `kind` is "calls", "plain" (an answer without calls) or "user".

    `maskable` is the number of the group's `tokens` that are freed if its tool results are masked.
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
    """Divide `records` (of messages.jsonl, in order) into groups, with the tokens that they have in the view under the
    compaction `cut`.

    `origin` is the provider and the model in use.
    """
    found: list[Group] = []
    for record in records:
        if not is_legible(record) or not is_seen(record):
            continue
        tokens = tokens_of(record, origin)
        if (text := shorten(record, cut.largest_of(record["seq"]))) is not None:
            tokens += count(text) - count(record["content"])
        freed = 0
        if record["role"] == "tool" and (pointer := shorter_pointer(record)) is not None:
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
    """The number of newest groups that the model has not answered yet ("open" groups); no compaction removes them."""
    number = 0
    for group in reversed(groups):
        if group.kind == "plain":
            break
        number += 1
        if group.kind == "calls":
            break
    return number


def kept_by_messages(groups: Sequence[Group], messages: int, room: int) -> int:
    """How many of the newest groups must be retained so that at least `messages` messages stay.

    The number of groups that stay is rounded up to whole groups, and reduced to the groups that fit into `room` tokens;
    it is never less than the number of open groups.
    """
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
    """How many of the newest groups fit into `room` tokens; never less than the number of open groups."""
    return kept_by_messages(groups, 1 << 60, room)
