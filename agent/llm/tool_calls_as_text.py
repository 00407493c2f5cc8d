"""Tool calls as text, for models and servers without tool calls: the system prompt describes the tools, and calls are
read from the answer.

A tool call as text must have one strict form: a block with tags that contain a mark, which is derived from the task's
first messages. The first messages contain random text (the fence of the run), so the author of a file, an issue or a
tool result does not know the mark, and cannot make a model that quotes the text call a tool. In messages.jsonl tool
calls as text are stored as ordinary tool calls with `"form": "text"`. If tools are called as text, requests contain no
tools, no `tool_calls` and no role `tool`, but alternating messages of user and assistant, which every chat template
accepts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from agent.llm.images import NAME as PICTURES
from agent.llm.role_alternation import GO_ON
from agent.llm.stream_accumulator import legal_name
from agent.prompts import render
from agent.store.storable_text import fit_json, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.values import Json

TEXT = "text"
"""The value of `form` in a stored message with tool calls that were read from the text while tools are called as
text."""
RECOVERED = "recovered"
"""The value of `form` in a stored message with tool calls that the server had left in the text
(`text_call_formats.py`)."""
MALFORMED = "malformed_call"
"""The tool name with which an unreadable block of a tool call is stored; no tool has this name."""
# number of messages at the beginning of a task from which the mark in the tags is derived: system prompt and briefing
HEAD = 2
PER_CALL = 40
"""An upper estimate of the tokens of the tags of a call's block and of its result's block, without the contents of the
blocks."""
# number of characters after the end of a block that the JSON decoder gets too: more than a JSON literal (`false`) and
# more than SHOWN, so that neither a literal nor the quote in an error message is cut off
AHEAD = 64
SHOWN = 60  # maximum characters of a block that an error message for the model quotes


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """The parts of an answer with tool calls as text: the text around the blocks, the tool calls, and whether the model
    invented results of tools (`made_up`)."""

    text: str
    calls: tuple[Json, ...] = ()
    made_up: bool = False


class TextCallForm:
    """The form of tool calls as text in one task.  `tools` are the schemas of the tools in OpenAI's form."""

    def __init__(self, tools: Sequence[Json], head: Iterable[bytes]) -> None:
        digest = sha256()
        for line in head:
            digest.update(line)
        self.mark = digest.hexdigest()[:8]
        self.tools = tools
        self._opening = re.compile(rf"^[ \t]*<call-{self.mark}>", re.MULTILINE)
        self._closing = re.compile(rf"</call-{self.mark}>[ \t]*+")
        self._result = re.compile(rf"^[ \t]*</?result-{self.mark}\b", re.MULTILINE)

    @cached_property
    def prompt(self) -> str:
        """The description of the tools and of the form of tool calls, which is added after the system prompt."""
        tools = []
        for tool in self.tools:
            function = tool["function"]
            schema = orjson.dumps(function.get("parameters") or {}).decode()
            tools.append(
                {"name": function["name"], "description": function.get("description") or "", "arguments": schema}
            )
        return render("text_tools", mark=self.mark, tools=tools)

    # --- requests ---------------------------------------------------------------------------------------------

    def messages(self, messages: Iterable[Json]) -> Iterator[Json]:
        """Convert stored messages into the messages of a request: one system message, followed by user and assistant
        messages in turn, beginning with a user message.

        The pictures of a message stay in the message that contains its text.
        """
        systems: list[str] = []
        held: Json | None = None  # A message is held back, since the next text is added to it if the role is the same.
        for role, text, pictures in self._parts(messages, systems):
            if held is None:
                yield {"role": "system", "content": "\n\n".join([*systems, self.prompt])}
                held = {"role": "user", "content": GO_ON} if role == "assistant" else None
            if held is not None and held["role"] == role:
                held["content"] += f"\n\n{text}"
            else:
                if held is not None:
                    yield held
                held = {"role": role, "content": text}
            if pictures:
                held[PICTURES] = [*held.get(PICTURES, ()), *pictures]
        if held is not None:
            yield held

    def _parts(self, messages: Iterable[Json], systems: list[str]) -> Iterator[tuple[str, str, Sequence[Json]]]:
        """(role "user" or "assistant", text, pictures) of each message with content; the texts of system messages are
        added to `systems` instead."""
        names: dict[str, str] = {}
        for message in messages:
            role, content = message["role"], message.get("content") or ""
            if role == "system":
                systems.append(content)
            elif role == "tool":
                yield "user", self.result(names.get(message["tool_call_id"], "tool"), content), ()
            elif role == "assistant":
                calls = message.get("tool_calls") or ()
                names = {call["id"]: call["function"]["name"] for call in calls}
                blocks = [self.call(call["function"]) for call in calls if call["function"]["name"] != MALFORMED]
                if text := "\n\n".join(part for part in (content, *blocks) if part.strip()):
                    yield role, text, ()
            elif content:
                yield role, content, message.get(PICTURES) or ()

    def call(self, function: Json) -> str:
        """The block for a tool call, in the form that the model should use."""
        name = orjson.dumps(function["name"]).decode()
        block = f'{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}'
        return f"<call-{self.mark}>\n{block}\n</call-{self.mark}>"

    def result(self, name: str, content: str) -> str:
        """The block for the result of a tool call."""
        return f"<result-{self.mark} of={json.dumps(name)}>\n{content}\n</result-{self.mark}>"

    # --- answers ----------------------------------------------------------------------------------------------

    def read(self, text: str) -> TextAnswer:
        """Parse the text of an answer into the tool calls (an unreadable call with the reason) and the text around
        them.

        If the model has invented a result block, that block and all text after it are ignored, since the model did not
        see the real result.
        """
        made_up = self._result.search(text)
        if made_up is not None:
            text = text[: made_up.start()].rstrip()
        kept: list[str] = []
        calls: list[Json] = []
        at = 0
        while (opening := self._opening.search(text, at)) is not None:
            kept.append(text[at : opening.start()])
            following = self._opening.search(text, opening.end())
            until = following.start() if following is not None else len(text)
            call, behind = self._block(text, opening.end(), until)
            calls.append(call)
            if "invalid" in call:
                kept.append(text[opening.start() : behind])
            at = behind
        kept.append(text[at:])
        around = "\n\n".join(part.strip() for part in kept if part.strip(" \t\r\n`"))
        if not calls and (wrong := self._nearly(text)):
            calls.append(self.malformed(wrong))
            around = text.strip()
        return TextAnswer(around, tuple(calls), made_up is not None)

    def _block(self, text: str, start: int, until: int) -> tuple[Json, int]:
        """Read the block of a tool call, of which the opening tag ends at `start`: (the tool call in the block, the end
        of the block)."""
        begins = start + len(text[start:until]) - len(text[start:until].lstrip())
        try:
            value, end = _decoded(text, begins, until)
        except (ValueError, RecursionError) as error:
            closing = self._closing.search(text, start, until)
            why = f"the block holds no whole JSON object: {_place_of_error(error)}"
            return self.malformed(why), closing.end() if closing else until
        behind = text[end:until]
        closing = self._closing.match(text, until - len(behind.lstrip()), until)
        if closing is None and behind.strip():
            rest = behind.strip()[:SHOWN]
            end = found.end() if (found := self._closing.search(text, end, until)) else until
            return self.malformed(f"behind the JSON object only </call-{self.mark}> may stand, not {rest!r}"), end
        end = closing.end() if closing is not None else end
        return self._call(value), end

    def _call(self, value: Any) -> Json:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or not name.strip():
            return self.malformed('the JSON object of a block needs "name" with the name of a tool')
        arguments = value.get("arguments", value.get("parameters"))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments, strict=False)
            except (ValueError, RecursionError):
                arguments = None
        if not isinstance(arguments, dict):
            return self.malformed(f'the block of {name.strip()} needs "arguments" with one JSON object')
        return {
            "id": new_id(),
            "name": legal_name(name),
            "arguments": fit_json(arguments),
        }

    def malformed(self, why: str) -> Json:
        """A tool call for an unreadable block, which cannot be run; `invalid` has the reason, `answer` is the result of
        the call for the model."""
        answer = render("malformed_call", why=why, mark=self.mark)
        return {
            "id": new_id(),
            "name": MALFORMED,
            "arguments": {},
            "invalid": replace_surrogates(why),
            "answer": answer,
        }

    def _nearly(self, text: str) -> str:
        """The fault in a text that contains an almost correct block of a tool call, "" for a text without such a
        block."""
        if found := re.search(rf"<?/?call-{self.mark}>?", text):
            return f"<call-{self.mark}> must stand alone at the beginning of a line; found {found[0]!r}"
        if found := re.search(r"^[ \t]*<call(?:-[\w]*)?>", text, re.MULTILINE):
            return f"a block begins with <call-{self.mark}>, not with {found[0].strip()!r}"
        return ""


def new_id() -> str:
    """A new id for a tool call of which the model gave no id."""
    return f"call_{uuid4().hex[:24]}"


def _decoded(text: str, begins: int, until: int) -> tuple[Any, int]:
    """Decode the JSON value in `text` that begins at `begins`: (the value, the position of its end).  Raises ValueError
    or RecursionError if no JSON value can be decoded there.

    The JSON value may extend beyond `until`, since a string in it may look like a block.  The JSON decoder gets only as
    much text as it needs: for an error message it counts the lines of its whole input, so many wrong blocks would take
    quadratic time.
    """
    size = until - begins + AHEAD
    while True:
        part = text[begins : begins + size]
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(part)
        except json.JSONDecodeError as error:
            is_cut = error.pos >= size - AHEAD or error.msg.startswith("Unterminated")
            if not is_cut or begins + size >= len(text):
                raise
        else:
            # a value that ends where `part` ends may be a number of which more digits follow: then a longer part is
            # decoded
            if end < size or begins + size >= len(text):
                return value, begins + end
        size *= 2


def _place_of_error(error: Exception) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return "it is nested too deeply"
    near = error.doc[error.pos : error.pos + SHOWN]
    return f"{error.msg} in line {error.lineno} of it, at {near!r}" if near else f"{error.msg}: it ends too early"
