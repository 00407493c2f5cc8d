"""Collects the fragments of a streamed answer into one `Answer`, in a form that can be stored safely.

No message is stored and no tool call is run before the end of a stream.  The meaning of broken arguments of a tool call
is not guessed: arguments that are not a JSON object are stored as text in `invalid` (at most SHOWN characters), where
the model sees them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent import clock
from agent.llm.inline_reasoning import split_thoughts
from agent.llm.opaque_fields import DEEPEST, is_shallow, merge, recordable, shallow
from agent.store.storable_text import fit_json, replace_surrogates
from agent.values import Answer, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from agent.values import Json

SHOWN = 2_000  # maximum characters of the unreadable arguments of a tool call that are stored
# a token count of a server above MOST_TOKENS is ignored: no context window is so long, and database columns have 64
# bits
MOST_TOKENS = 10**12
GOOD_ID = re.compile(r"^[\x21-\x7e]{1,4096}$")
"""The pattern of tool call ids that messages.jsonl may contain.

Long ids of tool calls are allowed and stored unchanged, since a gateway may encode a signature in an id; when a request
is written, `call_ids.py` translates an id that the server does not accept.
"""
_SPACE = re.compile(r"\s*+")


@dataclass
class CallDraft:
    """One tool call of an answer, collected from the fragments of the stream."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    ready: Any = None  # the arguments of the call if they arrived as an object instead of text
    # provider-specific fields that the server may expect back with the tool call in later requests
    fields: Json = field(default_factory=dict)
    # True if the call began after a call of the same name, so that it is a mere repetition if no arguments follow
    again: bool = False
    number: int = 0  # position among the calls of the answer

    def has_arguments(self) -> bool:
        """Whether any part of the tool call's arguments has arrived."""
        return self.ready is not None or any(piece.strip() for piece in self.pieces)

    def is_whole(self) -> bool:
        """Whether the part of the tool call's arguments that has arrived is a complete JSON object."""
        if self.ready is not None:
            return True
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        return last.rstrip().endswith("}") and isinstance(read_arguments("".join(self.pieces)), dict)

    def raw(self) -> str:
        """The text of the tool call's arguments as it arrived; arguments that arrived as an object are encoded as
        JSON."""
        text = "".join(self.pieces)
        return replace_surrogates(text if self.ready is None or text.strip() else json.dumps(self.ready))

    def is_same(self, arguments: Any) -> bool:
        """Whether `arguments` are equal to the arguments of this tool call that have arrived so far."""
        own = read_arguments_of(self.ready if self.ready is not None else "".join(self.pieces))
        other = read_arguments_of(arguments)
        return bool(arguments) and is_shallow(own) and is_shallow(other) and own == other


@dataclass
class StreamAccumulator:
    """The parts of a model's answer that have arrived so far.

    `finish` is "" until the server sends a stop reason: an answer without a stop reason is not complete.

    `began` is the time of the first content (`clock.monotonic`), 0.0 before any content.  `is_early` is True if the
    server reported the number of output tokens before it wrote the answer.  `listener` is called with each piece of the
    text and of the arguments of calls as it arrives.
    """

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallDraft] = field(default_factory=list)
    finish: str = ""
    usage: Usage | None = None
    model: str = ""
    places: dict[Any, CallDraft] = field(default_factory=dict)
    by_id: dict[str, CallDraft] = field(default_factory=dict)  # call id → the last call of the answer with this id
    # provider-specific fields that the server may expect back with the message in later requests
    fields: Json = field(default_factory=dict)
    began: float = 0.0
    is_early: bool = False
    refused: bool = False  # whether the model refused: a field `refusal` had text
    listener: Callable[[str], None] | None = None

    def set_usage(self, usage: Usage | None, *, early: bool = False) -> None:
        """Add the token counts `usage` of the server to the counts that it sent before. A later token count of 0, or a
        missing count, does not overwrite a number."""
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

    def _note_arrival(self) -> None:
        self.began = self.began or clock.monotonic()

    def _announce(self, text: str) -> None:
        if self.listener is not None:
            self.listener(text)

    def add_content(self, content: Any) -> None:
        """Add a fragment of the answer's content, which is text, None, or a list of parts (text, refusal, thinking)."""
        if isinstance(content, str):
            if content:
                self._note_arrival()
                self._announce(content)
            self.text.append(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict):
                    self._part(part)

    def _part(self, part: Mapping[str, Any]) -> None:
        if part.get("type") in ("thinking", "reasoning"):
            inner = part.get("thinking") or part.get("text")
            # Mistral sends reasoning as a list of text parts
            for piece in inner if isinstance(inner, list) else [inner]:
                self.add_reasoning(piece.get("text") if isinstance(piece, dict) else piece)
        elif isinstance(part.get("text"), str):
            self.add_content(part["text"])
        else:
            self.add_refusal(part.get("refusal"))

    def add_refusal(self, text: Any) -> None:
        """Add a fragment of a refusal to the text of the answer, and set `refused`."""
        if isinstance(text, str) and text:
            self.refused = True
            self.add_content(text)

    def add_reasoning(self, text: Any) -> None:
        """Add a fragment of reasoning, which is not part of the answer's text."""
        if isinstance(text, str):
            if text:
                self._note_arrival()
            self.reasoning.append(text)

    def set_finish(self, reason: str) -> None:
        """Set the server's stop reason; the texts "", "null" and "none" are ignored."""
        if reason.strip().lower() not in ("", "null", "none"):
            self.finish = reason

    def ends_well(self) -> bool:
        """Whether the content that has arrived is a whole answer although the server has ended the stream without a
        stop reason.

        The result is True for text, and for tool calls with readable arguments; if it is True, the method also sets the
        stop reason.
        """
        calls = [finish_call(draft, ()) for draft in self.calls]
        if (calls and not any("invalid" in call for call in calls)) or (not calls and "".join(self.text).strip()):
            self.finish = "tool_calls" if calls else "stop"
        return bool(self.finish)

    def add_fields(self, fields: Mapping[str, Any]) -> None:
        """Add a fragment of the provider-specific fields of the message."""
        merge(self.fields, shallow(fields))

    def add_call_part(
        self, place: Any, call_id: Any, name: Any, arguments: Any, fields: Mapping[str, Any] | None = None
    ) -> CallDraft:
        """Add a fragment of a tool call; returns the call to which the fragment belongs.

        `place` is the index of the tool call, None if the server sends none.

        Normally a new tool call starts with a new id *and* a name, after the call before it is whole. An index, an id
        or a name alone does not show that a new tool call starts: some servers number every parallel call 0, give each
        chunk of one call another id, or repeat name and arguments at the end.
        """
        self._note_arrival()
        call_id = str(call_id) if call_id not in (None, "") else ""
        name = str(name) if name else ""
        current = self._current(place, call_id)
        if current is None or self._starts(current, place, call_id, name, arguments):
            again = current is not None and current.name == name
            current = CallDraft(again=again, number=len(self.calls))
            self.calls.append(current)
        if place is not None:
            self.places[place] = current
        if call_id and not current.id:
            current.id = call_id
            known = self.by_id.get(call_id)
            if known is None or known.number < current.number:
                self.by_id[call_id] = current
        if name and current.name and name != current.name and not call_id and not current.has_arguments():
            name = current.name + name  # some servers send the name of the tool in fragments
            current.name = ""
        current.name = current.name or name
        if isinstance(arguments, str):
            self._announce(arguments)
            current.pieces.append(arguments)
        elif arguments is not None:
            current.ready = arguments
        merge(current.fields, shallow(fields or {}))
        return current

    def _current(self, place: Any, call_id: str) -> CallDraft | None:
        """The tool call to which a fragment with the index `place` and the id `call_id` may belong; None if there is
        none."""
        if place is not None and place in self.places:
            return self.places[place]
        known = self.by_id.get(call_id)
        if known is not None or place is not None:
            return known
        return self.calls[-1] if self.calls else None

    def _starts(self, current: CallDraft, place: Any, call_id: str, name: str, arguments: Any) -> bool:
        """Whether a fragment with the id `call_id` and the name `name` begins another call than `current`."""
        if not name:
            return False
        if current.name and name != current.name:
            if current.id and not call_id and not arguments and self.places.get(place) is current:
                # if no arguments have arrived yet, the fragment may continue the name of the tool
                return current.has_arguments()
            other = bool(call_id and current.id and call_id != current.id)
            return other or current.is_whole() or not current.has_arguments()
        if call_id and call_id == current.id and place is not None and self.places.get(place) is current:
            return False
        if not call_id and not arguments:
            return False
        return current.is_whole() and not current.is_same(arguments)

    def answer(self, taken: Collection[str] = (), offered: Collection[str] = ()) -> Answer:
        """Make an `Answer` from the parts of the answer that have arrived.

        The ids of the answer's tool calls differ from each other and from `taken`; missing, repeated or invalid ids are
        replaced.  Markers of a chat format are removed from the name of a tool if the rest is one of `offered`.
        """
        used = set(taken)
        calls = []
        drafts = [draft for draft in self.calls if draft.has_arguments() or not draft.again]
        for draft in drafts:
            call = finish_call(draft, used, offered)
            used.add(call["id"])
            calls.append(call)
        text, thought = split_thoughts("".join(self.text))
        return Answer(
            replace_surrogates(text),
            tuple(calls),
            self.finish,
            self.usage,
            self.model,
            replace_surrogates("".join(self.reasoning) + thought),
            fields=recordable(self.fields),
            call_fields=tuple(recordable(draft.fields) for draft in drafts),
            refused=self.refused,
            raw_arguments=tuple(draft.raw() for draft in drafts),
        )


def finish_call(draft: CallDraft, used: Collection[str], offered: Collection[str] = ()) -> Json:
    """Make a tool call `{"id", "name", "arguments"}` from a draft, with the field `invalid` when its arguments are not
    a JSON object."""
    call_id = draft.id if GOOD_ID.match(draft.id) and draft.id not in used else f"call_{uuid4().hex[:24]}"
    call: Json = {"id": call_id, "name": legal_name(bare_name(draft.name, offered))}
    raw = "".join(draft.pieces)
    # if the arguments arrived both as an empty object and as text fragments, the empty object is ignored
    ready = draft.ready if draft.ready or not raw.strip() else None
    arguments = ready if ready is not None else read_arguments(raw)
    if arguments is None:
        arguments = parse_repeated(raw, draft.pieces)
    if not is_shallow(arguments):
        call["arguments"] = {}
        call["invalid"] = f"more than {DEEPEST} objects or lists inside each other: {replace_surrogates(raw[:SHOWN])}"[
            :SHOWN
        ]
    elif isinstance(arguments, dict):
        call["arguments"] = fit_json(arguments)
    else:
        call["arguments"] = {}
        call["invalid"] = replace_surrogates(raw if ready is None else json.dumps(ready))[:SHOWN]
    return call


def bare_name(name: str, offered: Collection[str]) -> str:
    """The offered tool that a name with markers of a chat format means; `name` unchanged if that is none or several.

    The name is split at `<`, `>`, `|`, `=` and white space; quotes, and prefixes such as `functions.` and
    `namespace::`, are removed from each piece. If the pieces of the name contain exactly one offered tool, that tool's
    name is returned.
    """
    if name in offered or len(name) > LONGEST_MARKED:
        return name
    pieces = (re.split(r"::|[.:/]", piece.strip("\"'`(),;"))[-1] for piece in _MARKERS.split(name))
    found = {piece for piece in pieces if piece in offered}
    return found.pop() if len(found) == 1 else name


_MARKERS = re.compile(r"[<>|\uff5c\s=]+")


LONGEST_NAME = 64
"""Maximum characters of a tool's name."""
LONGEST_MARKED = 1000
"""Maximum characters of a tool's name with markers of a chat format; a longer name belongs to no tool."""


def legal_name(name: str) -> str:
    """`name` in a form that every known API accepts for a tool: 1 to 64 characters of A-Z a-z 0-9 _ -.

    If no tool has the name that results, the tool runner answers the call with an error.
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.strip()[:LONGEST_NAME]) or "unnamed"


def read_arguments(raw: str) -> Any:
    """Decode the arguments of a tool call from the text `raw`: a dict, or None when the text is not a JSON object.

    Only repairs that do not change the meaning of the arguments are made: empty text and `null` become `{}`, JSON
    inside a JSON string is unwrapped once, raw line breaks and tabs inside strings are accepted.
    """
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
    """Decode the arguments of a tool call if they are text (`read_arguments`); arguments that are an object already are
    returned unchanged."""
    return read_arguments(arguments) if isinstance(arguments, str) else arguments


def parse_repeated(raw: str, pieces: Sequence[str]) -> Any:
    """The JSON object that the text `raw` contains more than once (the first time perhaps only in part), or once beside
    empty objects; None for any other text.

    Some servers send the whole arguments of a call again at the end, or an empty object before them.
    """
    last = next((piece for piece in reversed(pieces) if piece.strip()), "")
    before = raw.rstrip()[: -len(last.rstrip())] if last else ""
    begins = last.lstrip().startswith(before.strip()) or all(
        last.startswith(piece) for piece in pieces if piece.strip()
    )
    if before and begins and isinstance(whole := read_arguments(last), dict):
        return whole
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_constant)
    found: Any = None
    text = raw.strip()
    end = 0
    while end < len(text):
        try:
            value, end = decoder.raw_decode(text, end)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not is_shallow(value) or (value and found and value != found):
            return None
        found = value or found
        if space := _SPACE.match(text, end):
            end = space.end()
    return found or None


def usage_of_counts(
    prompt: Any, completion: Any, cached: Any, reasoning: Any = None, *, partly: bool = False
) -> Usage | None:
    """Make a `Usage` from the token counts that a server has sent.

    Returns None without a valid count of the prompt; with `partly` a valid count of the answer alone is enough.

    Values that cannot be token counts (negative numbers, text, absurdly large numbers) are ignored. If `reasoning` is
    larger than `completion`, the server counts reasoning separately from the answer, and `completion` becomes the sum
    of both.
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
