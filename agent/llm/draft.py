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

from agent import clock
from agent.llm.fields import DEEPEST, is_shallow, merge, sound
from agent.llm.thoughts import split_thoughts
from agent.store.text import fit, fit_json
from agent.values import Answer, Usage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent.values import Json

SHOWN = 2_000  # characters of unreadable arguments that are kept
MOST_TOKENS = 10**12  # a count beyond that is none: no window is as long, and rows hold 64 bits
GOOD_ID = re.compile(r"^[\x21-\x7e]{1,4096}$")
"""Ids that can stand in a history.  A gateway may hide a signature in a long one, so it is kept as it is; what a wire
does not take is translated on the way out (`ids.py`)."""


@dataclass
class CallDraft:
    """One call, in pieces."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    ready: Any = None  # arguments that came as an object
    fields: Json = field(default_factory=dict)  # what the server wants back with this call
    again: bool = False  # begun where a whole call of the same name stood: without arguments it is only its echo

    def has_arguments(self) -> bool:
        """Whether anything of the arguments came."""
        return self.ready is not None or any(piece.strip() for piece in self.pieces)

    def is_whole(self) -> bool:
        """Whether the arguments that came so far are a JSON object."""
        if self.ready is not None:
            return True
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        return last.rstrip().endswith("}") and isinstance(read_arguments("".join(self.pieces)), dict)

    def is_same(self, arguments: Any) -> bool:
        """Whether these are the arguments that came already."""
        return bool(arguments) and read_arguments_of(arguments) == read_arguments_of(
            self.ready if self.ready is not None else "".join(self.pieces)
        )


@dataclass
class Draft:
    """What came so far.  `finish` stays "" until the server said why it ended: without it the answer is not whole.

    `began` is when the first of it came (`clock.monotonic`), 0.0 before.  `is_early`: the count of the answer's tokens
    was told before the answer was written.
    """

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallDraft] = field(default_factory=list)
    finish: str = ""
    usage: Usage | None = None
    model: str = ""
    places: dict[Any, CallDraft] = field(default_factory=dict)
    fields: Json = field(default_factory=dict)  # what the server wants back with the message
    began: float = 0.0
    is_early: bool = False
    refused: bool = False  # text came in a field for refusals

    def report(self, usage: Usage | None, *, early: bool = False) -> None:
        """Take a server's counts in.  A later 0, or a part that is left out, never overwrites a number."""
        if usage is None:
            return
        known = self.usage or Usage()
        self.usage = Usage(
            usage.prompt or known.prompt,
            usage.completion or known.completion,
            usage.cached or known.cached,
            known.reasoning if usage.reasoning is None else usage.reasoning or known.reasoning or 0,
        )
        if usage.completion:
            self.is_early = early

    def _came(self) -> None:
        self.began = self.began or clock.monotonic()

    def say(self, content: Any) -> None:
        """Take content in: text, None, or a list of parts (text, refusal, thinking)."""
        if isinstance(content, str):
            if content:
                self._came()
            self.text.append(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict):
                    self._part(part)

    def _part(self, part: Mapping[str, Any]) -> None:
        if part.get("type") in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text")
            for piece in inner if isinstance(inner, list) else [inner]:  # Mistral: a list of text parts
                self.think(piece.get("text") if isinstance(piece, dict) else piece)
        elif isinstance(part.get("text"), str):
            self.say(part["text"])
        else:
            self.refuse(part.get("refusal"))

    def refuse(self, text: Any) -> None:
        """Take a refusal in: it is shown as the answer's text, and the answer is known as one."""
        if isinstance(text, str) and text:
            self.refused = True
            self.say(text)

    def think(self, text: Any) -> None:
        """Take reasoning in; it is never stored as content."""
        if isinstance(text, str):
            if text:
                self._came()
            self.reasoning.append(text)

    def end(self, reason: Any) -> None:
        """Take in why the answer ended, as the server says it; null and the word for it say nothing."""
        if reason is None or reason == "":
            return
        if not isinstance(reason, str):
            raise TypeError(f"the reason of the end is {type(reason).__name__}")
        if reason.strip().lower() not in ("", "null", "none"):
            self.finish = reason

    def ends_well(self) -> bool:
        """Whether what came is an answer where the server says that this is all, but not why: its text, or calls whose
        arguments can be read.  Sets the reason then."""
        calls = [finished(draft, ()) for draft in self.calls]
        if (calls and not any("invalid" in call for call in calls)) or (not calls and "".join(self.text).strip()):
            self.finish = "tool_calls" if calls else "stop"
        return bool(self.finish)

    def keep(self, fields: Mapping[str, Any]) -> None:
        """Take in fields of the message that only the server understands."""
        merge(self.fields, fields)

    def fragment(
        self, place: Any, call_id: Any, name: Any, arguments: Any, fields: Mapping[str, Any] | None = None
    ) -> CallDraft:
        """Take a piece of a call in; returns the call.  `place` is its index, None where the server gives none.

        A new call starts with a new id *and* a name, once the call before it is whole: servers number every parallel
        call 0, give each chunk of one call another id, or repeat name and arguments at the end.
        """
        self._came()
        call_id = str(call_id) if call_id not in (None, "") else ""
        name = str(name) if name else ""
        current = self._current(place, call_id)
        if current is None or self._starts(current, place, call_id, name, arguments):
            again = current is not None and current.name == name
            current = CallDraft(again=again)
            self.calls.append(current)
        if place is not None:
            self.places[place] = current
        current.id = current.id or call_id
        if name and current.name and name != current.name and not call_id and not current.has_arguments():
            name = current.name + name  # servers that send it piece by piece
            current.name = ""
        current.name = current.name or name
        if isinstance(arguments, str):
            current.pieces.append(arguments)
        elif arguments is not None:
            current.ready = arguments
        merge(current.fields, fields or {})
        return current

    def _current(self, place: Any, call_id: str) -> CallDraft | None:
        """The call that a piece may belong to."""
        if place is not None and place in self.places:
            return self.places[place]
        known = next((call for call in reversed(self.calls) if call_id and call.id == call_id), None)
        if known is not None or place is not None:
            return known
        return self.calls[-1] if self.calls else None

    def _starts(self, current: CallDraft, place: Any, call_id: str, name: str, arguments: Any) -> bool:
        """Whether a piece with this id and name begins another call than `current`."""
        if not name:
            return False
        if current.name and name != current.name:
            if current.id and not call_id and not arguments and self.places.get(place) is current:
                return current.has_arguments()  # else a piece of its name
            other = bool(call_id and current.id and call_id != current.id)
            return other or current.is_whole() or not current.has_arguments()
        if call_id and call_id == current.id and place is not None and self.places.get(place) is current:
            return False
        if not call_id and not arguments:
            return False
        return current.is_whole() and not current.is_same(arguments)

    def answer(self, taken: Collection[str] = (), offered: Collection[str] = ()) -> Answer:
        """The whole answer.  Call ids are unique in it and among `taken`; missing or repeated ones are made.  Names
        lose the markers of chat formats when that makes one of `offered`."""
        used = set(taken)
        calls = []
        drafts = [draft for draft in self.calls if draft.has_arguments() or not draft.again]
        for draft in drafts:
            call = finished(draft, used, offered)
            used.add(call["id"])
            calls.append(call)
        text, thought = split_thoughts("".join(self.text))
        return Answer(
            fit(text),
            tuple(calls),
            self.finish,
            self.usage,
            self.model,
            fit("".join(self.reasoning) + thought),
            fields=sound(self.fields),
            call_fields=tuple(sound(draft.fields) for draft in drafts),
            refused=self.refused,
        )


def finished(draft: CallDraft, used: Collection[str], offered: Collection[str] = ()) -> Json:
    """`{"id", "name", "arguments"}` of one call, with `invalid` when its arguments are not a JSON object."""
    call_id = draft.id if GOOD_ID.match(draft.id) and draft.id not in used else f"call_{uuid4().hex[:24]}"
    call: Json = {"id": call_id, "name": legal_name(bare_name(draft.name, offered))}
    raw = "".join(draft.pieces)
    ready = draft.ready if draft.ready or not raw.strip() else None  # an empty object before the pieces is none
    arguments = ready if ready is not None else read_arguments(raw)
    if arguments is None:
        arguments = repeated(raw, draft.pieces)
    if not is_shallow(arguments):
        call["arguments"] = {}
        call["invalid"] = f"more than {DEEPEST} objects or lists inside each other: {fit(raw[:SHOWN])}"[:SHOWN]
    elif isinstance(arguments, dict):
        call["arguments"] = fit_json(arguments)
    else:
        call["arguments"] = {}
        call["invalid"] = fit(raw if ready is None else json.dumps(ready))[:SHOWN]
    return call


def bare_name(name: str, offered: Collection[str]) -> str:
    """The tool that `name` means when one of `offered` is left of it without the markers of chat formats (`<|channel|>`
    and what follows, `functions.`, `namespace::`, white space, quotes); else `name`."""
    if name in offered:
        return name
    pieces = (re.split(r"::|[.:/]", piece.strip("\"'`(),;"))[-1] for piece in _MARKERS.split(name))
    found = {piece for piece in pieces if piece in offered}
    return found.pop() if len(found) == 1 else name


_MARKERS = re.compile(r"[<>|\uff5c\s=]+")


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


def read_arguments_of(arguments: Any) -> Any:
    """The object that a text or an object of arguments means; None when it is none."""
    return read_arguments(arguments) if isinstance(arguments, str) else arguments


def repeated(raw: str, pieces: Sequence[str]) -> Any:
    """The one object of a text that has it more than once, or begun and then whole; None when there is no such thing.

    Servers send the whole arguments once more at the end, or an empty object before them.
    """
    last = next((piece for piece in reversed(pieces) if piece.strip()), "")
    before = raw.rstrip()[: -len(last.rstrip())] if last else ""
    begins = last.lstrip().startswith(before.strip()) or all(
        last.startswith(piece) for piece in pieces if piece.strip()
    )
    if before and begins and isinstance(whole := read_arguments(last), dict):
        return whole
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_constant)
    found: list[Any] = []
    rest = raw.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        if value and value not in found:
            found.append(value)
        rest = rest[end:].lstrip()
    return found[0] if len(found) == 1 else None


def counted(prompt: Any, completion: Any, cached: Any, reasoning: Any = None, *, partly: bool = False) -> Usage | None:
    """A server's counts.  None without a count of the prompt, unless `partly`: then that of the answer alone is taken.

    What is no count of tokens (negative, a text, absurdly large) counts as not said.  More reasoning than completion
    is no part of it: such a server counts the reasoning beside the text, and the completion is the sum of both.
    """
    prompt, completion, cached = (
        value if isinstance(value, int) and 0 < value <= MOST_TOKENS else 0 for value in (prompt, completion, cached)
    )
    told = isinstance(reasoning, int) and not isinstance(reasoning, bool) and 0 <= reasoning <= MOST_TOKENS
    reasoning = reasoning if told else None
    if reasoning is not None and reasoning > completion:
        completion += reasoning
    return Usage(prompt, completion, min(cached, prompt), reasoning) if prompt or (partly and completion) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
