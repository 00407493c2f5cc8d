"""Checks a message list: it takes the messages of a conversation one by one, and finds the first rule that they break.

The store, the planner and the clients all use the rules of this module, so that they cannot disagree:
`context/message_rules.py` applies the rules of calls and results before a message is appended, `window/counted_view.py`
checks the whole view before a request is planned, and `llm/request_lines.py` checks the lines to send.
`message_reader.py` reads the files of a message list; `message_list_check.py` does no I/O.

A rule of the message list is as strict as the strictest server (docs/wire.md, "The request"), or as the check in
docs/design/assembler.md, 3.5. A broken rule of the message list is reported as a sentence that names the line;
`tests/unit/test_message_list_check.py` has a list for each rule, with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.values import Json

ROLES = ("system", "user", "assistant", "tool")
KEYS = {
    "system": frozenset(("role", "content")),
    "user": frozenset(("role", "content", "images")),
    "assistant": frozenset(("role", "content", "tool_calls")),
    "tool": frozenset(("role", "content", "tool_call_id")),
}
"""Maps a role to the keys that messages of this role may have.

An assistant message may also have keys that MESSAGE does not contain: its model server has added them.
"""

SENT = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))
RECORDED = frozenset(
    (
        "seq",
        "timestamp",
        "tokens",
        "kind",
        "tool_name",
        "usage",
        "finish_reason",
        "output",
        "tool_seq",
        "provider_fields",
        "images",
    )
)
MESSAGE = SENT | RECORDED
"""Keys of a message in a request or a record that are counted separately or not sent; every other key was added by a
model server."""

CALL_KEYS = frozenset(("id", "type", "function"))
"""Keys of a tool call in a request."""
RECORDED_IN_CALLS = frozenset(("name", "arguments", "invalid", "given_id"))
"""Keys of tool calls in records and answers that are not sent to the server."""
CALL = CALL_KEYS | RECORDED_IN_CALLS | {"index"}
"""All keys of a tool call that this program knows; every other key of a call was added by a model server."""
FUNCTION = frozenset(("name", "arguments"))

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A pattern for the whole name of a tool."""

_NOT_OF_AN_ANSWER = MESSAGE - KEYS["assistant"]


@dataclass
class Shape:
    """Properties of the legal messages that a MessageList has checked so far: ids, names and numbers, but no contents.

    For a server with a strict template, a conversation with an order of roles that the template refuses (`tidy` is
    False) is translated (`llm/role_alternation.py`).
    """

    count: int = 0
    system: bool = False  # whether the first message of the list is a system message
    late_user: bool = False  # whether the first message that is not a system message is not a user message
    # Whether two consecutive messages are of one side (user or assistant), which strict templates refuse.
    adjacent: bool = False
    last_role: str = ""  # role of the newest message that is not a system message
    ids: set[str] = field(default_factory=set)  # the id of every tool call in the list
    user_after_tool: bool = False  # whether a user message directly follows the result of a tool call
    answers: int = 0  # number of assistant messages in the list
    # Name of a field that only some servers add (Gemini's thought signature, for example) → number of assistant
    # messages in which it has a value.
    fields: dict[str, int] = field(default_factory=dict)
    call_fields: set[str] = field(default_factory=set)  # names of the fields that only some servers add, in tool calls
    # names of the fields that only some servers add, in messages or calls before the last user message
    older_fields: set[str] = field(default_factory=set)
    unsigned: bool = False  # whether in some assistant message the first tool call has no field of `call_fields`
    images: int = 0  # number of pictures in the user messages of the list
    loop: int = 0  # number of messages up to and including the last user message; 0 if there is no user message
    answer: int = 0  # number of messages before the newest assistant message

    @property
    def tidy(self) -> bool:
        """Whether a strict chat template of a local model accepts the messages unchanged."""
        return not (self.late_user or self.adjacent)


class MessageList:
    """Checks, message by message, one message list by the rules of model servers.

    `system_first`: the list must begin with a system prompt, as the conversation of a task must.  A request outside of
    the conversation (a summary, a vote) needs no system prompt, and neither does a request that a user of the library
    builds without a planner: no server requires one.  All rules but `system_first` are the same for every message list.

    `problem` is the first broken rule of the message list, as a sentence; "" if there is none. Messages after the first
    broken rule are only counted.
    """

    def __init__(self, *, system_first: bool = True) -> None:
        self.system_first = system_first
        self.shape = Shape()
        self.open: dict[str, str] = {}  # tool calls without a result, as id → name of the tool
        self.problem = ""

    def add(self, message: Any, name: str) -> None:
        """Add a message, which is a value parsed from JSON.

        `name` is the name of the message's file, which `problem` contains.
        """
        self.shape.count += 1
        if not self.problem:
            self.problem = self._broken(message, f"message {self.shape.count} in {name}")

    def add_unreadable(self, why: str, name: str) -> None:
        """Add a line of the message list that is not JSON."""
        self.shape.count += 1
        self.problem = self.problem or f"Message {self.shape.count} in {name} is not JSON: {why}"

    def unfit(self, name: str) -> str:
        """The reason why the present message list must not be sent to the model, as a sentence; "" if it may be sent.

        `name` is the name of the file of the message list.
        """
        shape = self.shape
        if self.problem:
            return self.problem
        if not shape.count:
            return f"Messages cannot be empty: there is no message to send in {name}; add a user message first"
        if not shape.loop:
            return f"No user message in {name}; local models refuse such a list"
        if self.open:
            return f"Last message must answer every call: {name} ends without results for {_listed(self.open)}"
        if shape.last_role == "assistant":
            return f"Last message must be user message or tool result: {name} ends with role 'assistant'"
        return ""

    def _broken(self, message: Any, where: str) -> str:
        """The rule of the message list that a message breaks; "" if it breaks none, and then the message is added to
        `shape`."""
        if not isinstance(message, dict):
            return f"{_upper(where)} is {type(message).__name__}, not an object"
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            return f"{_upper(where)} missing role: it has {role!r}; allowed are {', '.join(ROLES)}"
        if extra := message.keys() & _NOT_OF_AN_ANSWER if role == "assistant" else message.keys() - KEYS[role]:
            return f"Unknown keys in {where}: a {role} message has no {', '.join(sorted(extra))}"
        if problem := self._misplaced(role, where):
            return problem
        calls = "tool_calls" in message
        if content is not None and not isinstance(content, str):
            return f"Content must be text: {where} has {type(content).__name__}"
        if not content and not calls:
            return f"{_upper(where)} has empty content; only an assistant with tool_calls may have none (role {role})"
        if role == "tool":
            return self._take_result(message, where)
        if problem := breaks_group(where, self.open):
            return problem
        if role == "assistant":
            return self._take_answer(message, where)
        return self._take_user(message, where) if role == "user" else ""

    def _misplaced(self, role: str, where: str) -> str:
        first = self.shape.count == 1
        if role == "system":
            if not first:
                return f"Only the first message may be system: {where}"
            self.shape.system = True
        elif first and self.system_first:
            return f"First message must be system prompt: {where} has role {role!r}"
        return ""

    def _take_result(self, message: Json, where: str) -> str:
        answered = message.get("tool_call_id")
        if problem := answers_nothing(where, answered, self.open):
            return problem
        del self.open[str(answered)]
        self._follow("tool")
        return ""

    def _take_user(self, message: Json, where: str) -> str:
        images, shape = message.get("images", []), self.shape
        if not isinstance(images, list) or not all(isinstance(one, dict) for one in images):
            return f"Pictures must be a list of objects: {where} has images of another kind"
        shape.images += len(images)
        shape.loop = shape.count
        if shape.fields or shape.call_fields:
            shape.older_fields |= shape.fields.keys() | shape.call_fields
        shape.user_after_tool |= shape.last_role == "tool"
        self._follow("user")
        return ""

    def _take_answer(self, message: Json, where: str) -> str:
        if "tool_calls" in message and (problem := self._take_calls(message["tool_calls"], where)):
            return problem
        shape = self.shape
        shape.answer = shape.count - 1
        shape.answers += 1
        for name in message.keys() - KEYS["assistant"]:
            shape.fields[name] = shape.fields.get(name, 0) + bool(message[name])
        self._follow("assistant")
        return ""

    def _take_calls(self, calls: Any, where: str) -> str:
        if not isinstance(calls, list) or not calls:
            return f"tool_calls in {where} must be a list with calls; without one the key must be left out"
        shape = self.shape
        for number, call in enumerate(calls):
            if problem := _broken_call(call, where):
                return problem
            if call["id"] in shape.ids:
                return f"Duplicate ids of calls: {where} has {call['id']!r} twice, or an earlier answer has it"
            shape.ids.add(call["id"])
            self.open[call["id"]] = call["function"]["name"]
            own = (call.keys() - CALL_KEYS) | (call["function"].keys() - FUNCTION)
            shape.call_fields |= own
            shape.unsigned |= not number and not own
        return ""

    def _follow(self, role: str) -> None:
        shape = self.shape
        if not shape.last_role:
            shape.late_user = role != "user"
        elif role == shape.last_role and role != "tool":
            shape.adjacent = True
        shape.last_role = role


def breaks_group(what: str, open_calls: Mapping[str, str]) -> str:
    """The rule that a message other than a tool result (`what`) breaks while calls have no result; "" if it breaks
    none.

    `open_calls` maps the id of each tool call without a result to the name of the tool.
    """
    if not open_calls:
        return ""
    return (
        f"Results must follow their calls: {what} stands between calls and their results; open: {_listed(open_calls)}"
    )


def answers_nothing(what: str, answered: Any, open_calls: Mapping[str, str]) -> str:
    """The rule that a tool result (`what`) for the call id `answered` breaks while the calls `open_calls` have no
    result; "" if the result breaks no rule."""
    if isinstance(answered, str) and answered in open_calls:
        return ""
    waiting = _listed(open_calls) or "none"
    return (
        f"A tool result must answer an open call: {what} answers {answered!r}, which no open call has; open: {waiting}"
    )


def _broken_call(call: Any, where: str) -> str:
    """The rule that a tool call breaks, independent of other calls; "" if it breaks none."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") != "function":
        return f"Every call needs id, type 'function' and function: {where} has one without"
    if not isinstance(call.get("id"), str) or not call["id"]:
        return f"Every call needs an id: {where} has {call.get('id')!r}"
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return f"A function name must be 1 to 64 of A-Z a-z 0-9 _ -: {where} has {name!r}"
    if not isinstance(function.get("arguments"), str):
        return f"Every call needs arguments as text: {where} has {type(function.get('arguments')).__name__} for {name}"
    if extra := call.keys() & RECORDED_IN_CALLS:
        return f"Unknown keys in {where}: a call has no {', '.join(sorted(extra))}"
    return ""


def _listed(open_calls: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({call_id})" for call_id, name in open_calls.items())


def _upper(where: str) -> str:
    return where[:1].upper() + where[1:]
