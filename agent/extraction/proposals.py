"""Checks a model's proposals for memory records of a task; each proposal is accepted, dropped or skipped.

A proposal names the event from which it comes. The proposal must quote that event literally, and at least half of the
proposal must occur there; the event must have trust, and for a preference it must be a text of a person. A proposal
that breaks one of the rules about its event, or is too long, is dropped with a reason. A proposal with the action SKIP
is skipped. A proposal with the action UPDATE replaces a record only if the request contained that record, and the
record has the same strategy, no more trust than the event and no pin; otherwise the proposal becomes a new record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from agent.extraction.echoed_sentences import words
from agent.extraction.session_events import COMMENT_TEXT, ISSUE_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent.extraction.session_events import SessionEvent
    from agent.memory import MemoryRecord
    from agent.values import Json

TOOL = "remember"
ADD, UPDATE, SKIP = "ADD", "UPDATE", "SKIP"
STRATEGIES = ("facts", "preferences", "reflections")
MOST = 8
"""Maximum number of a model's proposals of each strategy that are read; further ones are dropped."""
LONGEST = 400
"""Maximum number of characters of a model's proposal."""
QUOTED = 4
"""Minimum number of words in the quote of a proposal."""
GROUNDED = 0.5
"""Minimum share of the words of a proposal that its event must contain too."""
STEM = 5
"""When the words of a proposal and of its event are compared, two words with the same first STEM characters count as
equal."""

_ENTRY: Json = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "event": {"type": "integer"},
        "quote": {"type": "string", "minLength": 1},
        "action": {"enum": [ADD, UPDATE, SKIP]},
        "id": {"type": "string"},
    },
    "required": ["text", "event", "quote"],
    "additionalProperties": False,
}
SCHEMA: Json = {
    "type": "object",
    "properties": {name: {"type": "array", "items": _ENTRY} for name in STRATEGIES},
    "required": list(STRATEGIES),
    "additionalProperties": False,
}
TOOL_SCHEMA: Json = {
    "type": "function",
    "function": {"name": TOOL, "description": "Say what later tasks should know.", "parameters": SCHEMA},
}
_VALIDATOR = Draft202012Validator(SCHEMA)
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Proposal:
    """An accepted proposal of the model. `event` is the source of the proposal, `updates` the id of the record that it
    replaces ("" for none).
    """

    strategy: str
    text: str
    event: SessionEvent
    updates: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The `accepted` proposals, and in `dropped` the reason for each proposal that was dropped; skipped proposals are
    in neither."""

    accepted: tuple[Proposal, ...]
    dropped: tuple[str, ...]


def problem_of(answer: Any) -> str:
    """The reason why an answer does not fit SCHEMA, "" if it does."""
    error = next(iter(_VALIDATOR.iter_errors(answer)), None)
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path) or "the answer"
    return f"{where}: {error.message[:200]}"


def check_proposals(answer: Json, events: Sequence[SessionEvent], known: Sequence[MemoryRecord]) -> Judged:
    """Accept, drop or skip each proposal of an answer that fits the schema.  A proposal names its event by the position
    in `events`, from 1."""
    shown = {record.id: record for record in known}
    accepted: list[Proposal] = []
    dropped: list[str] = []
    for strategy in STRATEGIES:
        for number, entry in enumerate(answer[strategy]):
            why = f"more than {MOST}" if number >= MOST else _refusal(strategy, entry, events)
            if why:
                dropped.append(f"{strategy} {number + 1}: {why}")
            elif entry.get("action") != SKIP:
                accepted.append(_accepted(strategy, entry, events, shown))
    return Judged(tuple(accepted), tuple(dropped))


def _accepted(
    strategy: str, entry: Json, events: Sequence[SessionEvent], shown: Mapping[str, MemoryRecord]
) -> Proposal:
    event = events[entry["event"] - 1]
    old = shown.get(str(entry.get("id"))) if entry.get("action") == UPDATE else None
    if old is not None and (old.strategy != strategy or old.trust > event.trust or old.pinned):
        # A proposal cannot replace a record with more trust, a pinned record or a record of another strategy.
        old = None
    return Proposal(strategy, " ".join(entry["text"].split()), event, old.id if old is not None else "")


def _refusal(strategy: str, entry: Json, events: Sequence[SessionEvent]) -> str:
    return next(_refusals(strategy, entry, events), "")


def _refusals(strategy: str, entry: Json, events: Sequence[SessionEvent]) -> Iterator[str]:
    if not 1 <= entry["event"] <= len(events):
        yield f"there is no event {entry['event']}"
        return
    event = events[entry["event"] - 1]
    if event.trust < 1:
        yield "its event has no trust"
    if len(entry["text"]) > LONGEST:
        yield f"longer than {LONGEST} characters"
    if len(words(entry["quote"])) < QUOTED:
        yield f"a quote of fewer than {QUOTED} words"
    if _normalise_text(entry["quote"]) not in _normalise_text(event.text):
        yield "its quote is not in the event"
    if strategy == "preferences" and event.source not in (ISSUE_TEXT, COMMENT_TEXT):
        yield "a preference that no person has said"
    said, known = _stems(entry["text"]), set(_stems(event.text))
    if sum(stem in known for stem in said) < GROUNDED * len(said):
        yield "most of it is not in the event"


def _stems(text: str) -> list[str]:
    """The words of a text, cut to STEM characters, which is a rough stem."""
    return [word[:STEM] for word in words(text)]


def _normalise_text(text: str) -> str:
    return _SPACES.sub(" ", text).strip().casefold()
