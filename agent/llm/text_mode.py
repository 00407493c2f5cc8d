"""Tool calls as text, for models and servers without tool calls: described in the system prompt, read from the answer.

One strict form, a block with a mark that is made from the task's first messages: those hold the run's random fence, so
that no file, issue or tool result can write a block that runs, not even when the model quotes it.  What is recorded are
tool calls as any others, marked `"form": "text"`; only requests differ: no tools, no `tool_calls`, no role `tool`, and
messages of user and assistant in turn, which every chat template takes.
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
from agent.llm.tidy import GO_ON
from agent.prompts import render
from agent.store.text import fit, fit_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.values import Json

TEXT = "text"
"""`form` of a message whose calls were read from blocks."""
RECOVERED = "recovered"
"""`form` of a message whose calls a server had left in the text (`call_formats.py`)."""
MALFORMED = "malformed_call"
"""The name under which a block is recorded that cannot be read; no tool has it."""
HEAD = 2  # messages that the mark is made from: system prompt and briefing
PER_CALL = 40
"""Tokens that the block of a call and the block of its result cost beside their contents, at most about so many."""
SHOWN = 60  # signs of a block that a hint quotes


@dataclass(frozen=True, slots=True)
class Read:
    """What an answer holds: the text around its blocks, the calls, and whether results were made up in it."""

    text: str
    calls: tuple[Json, ...] = ()
    made_up: bool = False


class TextForm:
    """The form of one task.  `tools` are OpenAI-form schemas."""

    def __init__(self, tools: Sequence[Json], head: Iterable[bytes]) -> None:
        digest = sha256()
        for line in head:
            digest.update(line)
        self.mark = digest.hexdigest()[:8]
        self.tools = tools
        self._opening = re.compile(rf"^[ \t]*<call-{self.mark}>", re.MULTILINE)
        self._closing = re.compile(rf"\s*</call-{self.mark}>[ \t]*")
        self._result = re.compile(rf"^[ \t]*</?result-{self.mark}\b", re.MULTILINE)

    @cached_property
    def prompt(self) -> str:
        """What stands behind the system prompt."""
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
        """The messages of a request: one system message, then user and assistant in turn, a user's first.

        Pictures stay named beside the text that they belong to."""
        systems: list[str] = []
        held: Json | None = None  # the last message, until it is known that the next one is of another side
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
        """(side, text, pictures) of each message that is not the system's; those go to `systems`."""
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
        """A call that was made, as the model should have written it."""
        name = orjson.dumps(function["name"]).decode()
        block = f'{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}'
        return f"<call-{self.mark}>\n{block}\n</call-{self.mark}>"

    def result(self, name: str, content: str) -> str:
        """The result of a call."""
        return f"<result-{self.mark} of={json.dumps(name)}>\n{content}\n</result-{self.mark}>"

    # --- answers ----------------------------------------------------------------------------------------------

    def read(self, text: str) -> Read:
        """The calls of an answer, each whole or refused with what is wrong in it; the text around them is kept.

        Behind a result that the model made up itself nothing counts: it did not see what it goes on from.
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
        return Read(around, tuple(calls), made_up is not None)

    def _block(self, text: str, start: int, until: int) -> tuple[Json, int]:
        """(the call of the block whose opening line ends at `start`, where the block ends)."""
        begins = start + len(text[start:until]) - len(text[start:until].lstrip())
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(text, begins)
        except (ValueError, RecursionError) as error:
            closing = self._closing.search(text, start, until)
            why = f"the block holds no whole JSON object: {_where(error, text, begins)}"
            return self.malformed(why), closing.end() if closing else until
        closing = self._closing.match(text, end, until)
        if closing is None and text[end:until].strip():
            rest = text[end:until].strip()[:SHOWN]
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
            "name": re.sub(r"[^A-Za-z0-9_-]", "_", name.strip())[:64],
            "arguments": fit_json(arguments),
        }

    def malformed(self, why: str) -> Json:
        """A call that cannot be run; `invalid` says why, `answer` is its result for the model."""
        answer = render("malformed_call", why=why, mark=self.mark)
        return {"id": new_id(), "name": MALFORMED, "arguments": {}, "invalid": fit(why), "answer": answer}

    def _nearly(self, text: str) -> str:
        """What is wrong where the model meant a block and wrote another thing, "" where it did not."""
        if found := re.search(rf"<?/?call-{self.mark}>?", text):
            return f"<call-{self.mark}> must stand alone at the beginning of a line; found {found[0]!r}"
        if found := re.search(r"^[ \t]*<call(?:-[\w]*)?>", text, re.MULTILINE):
            return f"a block begins with <call-{self.mark}>, not with {found[0].strip()!r}"
        return ""


def new_id() -> str:
    """An id for a call that came without one."""
    return f"call_{uuid4().hex[:24]}"


def _where(error: Exception, text: str, start: int) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return "it is nested too deeply"
    line, near = text.count("\n", start, error.pos) + 1, text[error.pos : error.pos + SHOWN]
    return f"{error.msg} in line {line} of it, at {near!r}" if near else f"{error.msg}: it ends too early"
