"""An answer in the making: fragments of a stream → one `Answer`, with calls that are safe to keep.

Not stored and not acted on before the stream's end.  Repair is lossless only: what cannot be read as a JSON object
stays in `invalid` for the model to see, and is never guessed at.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent.store.text import fit, fit_json
from agent.values import Answer, Usage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.values import Json

SHOWN = 2_000  # characters of unreadable arguments that are kept
DEEPEST = 100  # objects and lists inside each other; orjson writes 254, and a record has some of its own
MOST_TOKENS = 10**12  # a count beyond that is none: no window is as long, and rows hold 64 bits
GOOD_ID = re.compile(r"^[A-Za-z0-9_.:-]{1,64}$")


@dataclass
class CallDraft:
    """One call, in pieces."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    ready: Any = None  # arguments that came as an object


@dataclass
class Draft:
    """What came so far.  `finish` stays "" until the server said why it ended: without it the answer is not whole."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallDraft] = field(default_factory=list)
    finish: str = ""
    usage: Usage | None = None
    model: str = ""
    places: dict[Any, CallDraft] = field(default_factory=dict)

    def say(self, content: Any) -> None:
        """Take content in: text, None, or a list of parts (text, refusal, thinking)."""
        if isinstance(content, str):
            self.text.append(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict):
                    self._part(part)

    def _part(self, part: Mapping[str, Any]) -> None:
        if part.get("type") in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text")
            self.think(inner if isinstance(inner, str) else None)
        else:
            self.say(next((part[key] for key in ("text", "refusal") if isinstance(part.get(key), str)), None))

    def think(self, text: Any) -> None:
        """Take reasoning in; it is never stored as content."""
        if isinstance(text, str):
            self.reasoning.append(text)

    def fragment(self, place: Any, call_id: Any, name: Any, arguments: Any) -> None:
        """Take a piece of a call in.  `place` is its index, None where the server gives none; a new id at a known
        place starts a new call (servers that number every parallel call 0)."""
        call_id = str(call_id) if call_id not in (None, "") else ""
        current = self.places.get(place) if place is not None else (self.calls[-1] if self.calls else None)
        starts = current is None or (call_id and current.id and call_id != current.id)
        if place is None and name and not call_id:
            starts = True
        if starts or current is None:
            current = CallDraft()
            self.calls.append(current)
        if place is not None:
            self.places[place] = current
        current.id = current.id or call_id
        current.name = current.name or (str(name) if name else "")
        if isinstance(arguments, str):
            current.pieces.append(arguments)
        elif arguments is not None:
            current.ready = arguments

    def answer(self, taken: Collection[str] = ()) -> Answer:
        """The whole answer.  Call ids are unique in it and among `taken`; missing or repeated ones are made."""
        used = set(taken)
        calls = []
        for draft in self.calls:
            call = finished(draft, used)
            used.add(call["id"])
            calls.append(call)
        return Answer(
            fit("".join(self.text)),
            tuple(calls),
            self.finish,
            self.usage,
            self.model,
            fit("".join(self.reasoning)),
        )


def finished(draft: CallDraft, used: Collection[str]) -> Json:
    """`{"id", "name", "arguments"}` of one call, with `invalid` when its arguments are not a JSON object."""
    call_id = draft.id if GOOD_ID.match(draft.id) and draft.id not in used else f"call_{uuid4().hex[:24]}"
    call: Json = {"id": call_id, "name": legal_name(draft.name)}
    raw = "".join(draft.pieces)
    arguments = draft.ready if draft.ready is not None else read_arguments(raw)
    if not is_shallow(arguments):
        call["arguments"] = {}
        call["invalid"] = f"more than {DEEPEST} objects or lists inside each other: {fit(raw[:SHOWN])}"[:SHOWN]
    elif isinstance(arguments, dict):
        call["arguments"] = fit_json(arguments)
    else:
        call["arguments"] = {}
        call["invalid"] = fit(raw if draft.ready is None else json.dumps(draft.ready))[:SHOWN]
    return call


def legal_name(name: str) -> str:
    """1 to 64 of A-Z a-z 0-9 _ -: what every wire takes back.  The tool runner answers a name that no tool has."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.strip())[:64] or "unnamed"


def read_arguments(raw: str) -> Any:
    """The object in `raw`, None when there is none.  Lossless repairs: nothing is `{}`, a JSON text of a JSON text
    is unwrapped once, raw line breaks and tabs inside strings are taken as they are."""
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, strict=False, parse_constant=_no_constant)
        if isinstance(value, str):
            value = json.loads(value, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def is_shallow(value: Any) -> bool:
    """Whether at most DEEPEST objects and lists stand inside each other."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False


def counted(prompt: Any, completion: Any, cached: Any) -> Usage | None:
    """A server's counts.  None without a count of the prompt; what is no count of tokens (negative, a text, absurdly
    large) counts as not said."""
    prompt, completion, cached = (
        value if isinstance(value, int) and 0 < value <= MOST_TOKENS else 0 for value in (prompt, completion, cached)
    )
    return Usage(prompt, completion, min(cached, prompt)) if prompt else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
