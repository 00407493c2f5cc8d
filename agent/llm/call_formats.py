"""A whole answer that is nothing but tool calls as text: what a server's tool parser has left in the content.

Models write calls in the form that they were trained on, and a server whose parser does not know that form passes it on
as text (public reports: ollama/ollama#11185, jonigl/mcp-client-for-ollama#61).  Read by structure, so that a form that
nobody listed here is read too: markers (`<tool_call>`, `<|python_tag|>`, `[TOOL_CALLS]`, a code fence), and nothing but
calls of offered tools between them.  One word of prose, or one tool that is not offered, and it is text.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.values import Json

MOST = 64  # calls of one answer
MARKER = re.compile(
    r"<\|[^|<>\n]{1,60}\|>|<｜[^｜<>\n]{1,60}｜>"  # special tokens: Llama, Phi, Kimi, Granite, LFM · DeepSeek
    r"|</?(?:[\w.-]+:)?(?:tool|function)[_-]?(?:calls?|use)s?>"  # Hermes, Qwen, GLM, MiniMax
    r"|</?｜?DSML｜(?:function_calls|tool_calls)>"  # DeepSeek V3.2
    r"|\[/?(?:TOOL_CALLS?|ARGS|CALL_ID)\]"  # Mistral
    r"|functools(?=\s*\[)"  # Phi-4
    r"|```[\w+-]*"
)
NAME = re.compile(r"(?:to=)?(?:functions?\.|default_api\.)?(?P<name>[A-Za-z_][\w-]{0,63})(?::\d+)?(?![\w(])")
WORDS = frozenset(("function", "json", "commentary", "analysis", "assistant", "call", "tool_call"))
"""What stands between markers and is no name: DeepSeek's and Harmony's."""
FUNCTION = re.compile(r"<function=(?P<name>[\w.-]+)>(?P<inner>.*?)</function>", re.DOTALL)
PARAMETER = re.compile(r"\s*<parameter=(?P<name>[\w.-]+)>(?P<value>.*?)</parameter>\s*", re.DOTALL)
INVOKE = re.compile(
    r"<(?P<p>(?:[\w.-]+:|｜?DSML｜)?)invoke name=\"(?P<name>[\w.-]+)\">(?P<inner>.*?)</(?P=p)invoke>", re.DOTALL
)
INVOKED = re.compile(
    r"\s*<(?P<p>(?:[\w.-]+:|｜?DSML｜)?)parameter name=\"(?P<name>[\w.-]+)\"[^<>]*>(?P<value>.*?)</(?P=p)parameter>\s*",
    re.DOTALL,
)
PAIR = re.compile(r"<arg_key>(?P<name>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)  # GLM
NAMES, ARGUMENTS = ("name", "tool_name", "tool", "function"), ("arguments", "parameters", "args", "input")


@dataclass
class Found:
    """What was read so far."""

    calls: list[tuple[str, Json]] = field(default_factory=list)
    name: str = ""  # that stands before its arguments
    pairs: dict[str, str] = field(default_factory=dict)  # of the call of that name
    marked: bool = False

    def close(self) -> bool:
        """A call whose arguments came as pairs ends; False for a name without any."""
        if self.name and not self.pairs:
            return False
        if self.name:
            self.calls.append((self.name, dict(self.pairs)))
            self.name, self.pairs = "", {}
        return True


def whole_calls(text: str, offered: Collection[str]) -> list[tuple[str, Json]] | None:
    """`[(name, arguments)]` when the whole text is calls of offered tools, else None.  Never raises."""
    found, at, text = Found(), 0, text.strip()
    while at < len(text):
        behind = _next(text, at, found)
        if behind is None or len(found.calls) > MOST:
            return None
        at = behind
    if not found.close() or not found.calls or not all(name in offered for name, _ in found.calls):
        return None
    return found.calls


def _next(text: str, at: int, found: Found) -> int | None:
    """Read one piece; where it ends, None for what is no part of a call."""
    if text[at].isspace() or text[at] in ";,":
        return at + 1
    if marker := MARKER.match(text, at):
        found.marked = True
        closes = "end" in marker[0] or marker[0].startswith("</")
        return marker.end() if not closes or not found.pairs or found.close() else None
    if text[at] in "{[":
        return _value(text, at, found)
    for pattern, inner in ((FUNCTION, PARAMETER), (INVOKE, INVOKED)):
        if match := pattern.match(text, at):
            arguments = _parameters(match["inner"], inner)
            if arguments is None:
                return None
            found.calls.append((match["name"].removeprefix("functions."), arguments))
            return match.end()
    if found.name and (pair := PAIR.match(text, at)):
        found.pairs[pair["name"].strip()] = pair["value"]
        return pair.end()
    return _name(text, at, found)


def _name(text: str, at: int, found: Found) -> int | None:
    match = NAME.match(text, at)
    if match is None or not found.marked or found.pairs:
        return None
    if match["name"] not in WORDS or match[0].startswith("to="):
        if found.name:
            return None
        found.name = match["name"]
    return match.end()


def _value(text: str, at: int, found: Found) -> int | None:
    """JSON, or a list of calls as Python writes them."""
    try:
        value, behind = json.JSONDecoder(strict=False).raw_decode(text, at)
    except (ValueError, RecursionError):
        return _pythonic(text, at, found)
    if found.name:
        if not isinstance(value, dict) or found.pairs:
            return None
        found.calls.append((found.name, value))
        found.name = ""
        return behind
    made = _objects(value)
    if made is None:
        return None
    found.calls.extend(made)
    return behind


def _objects(value: Any) -> list[tuple[str, Json]] | None:
    """The calls that a JSON value is: one, a list of them, or OpenAI's message."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list) and len(value) <= 3:
        value = value["tool_calls"]
    if isinstance(value, list):
        made = [_object(one) for one in value]
        return [one for one in made if one is not None] if made and all(made) else None
    one = _object(value)
    return [one] if one else None


def _object(value: Any) -> tuple[str, Json] | None:
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        return _object(value["function"])
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), "")
    key = next((key for key in ARGUMENTS if key in value), None)
    if not name or key is None:
        return None
    arguments = value[key]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None
    return (name.removeprefix("functions."), arguments) if isinstance(arguments, dict) else None


def _parameters(inner: str, pattern: re.Pattern[str]) -> Json | None:
    """The arguments inside a call's tags: parameters one after the other, or a JSON object."""
    if inner.strip().startswith("{"):
        try:
            value = json.loads(inner, strict=False)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None
    arguments: Json = {}
    at = 0
    while at < len(inner):
        match = pattern.match(inner, at)
        if match is None:
            return None if inner[at:].strip() else arguments
        arguments[match["name"]] = _unframed(match["value"])
        at = match.end()
    return arguments


def _unframed(value: str) -> str:
    """Without the line break behind the opening tag and the one before the closing tag."""
    return value.removeprefix("\n").removesuffix("\n")


def _pythonic(text: str, at: int, found: Found) -> int | None:
    """`[read_file(path="a.py"), …]`: LFM, Llama 4.  Literals only; nothing is evaluated."""
    behind = text.rfind("]") + 1
    while behind > at:
        try:
            tree = ast.parse(text[at:behind], mode="eval").body
            break
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            behind = text.rfind("]", at, behind - 1) + 1
    else:
        return None
    calls = []
    for node in tree.elts if isinstance(tree, ast.List) else ():
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name):
            return None
        try:
            calls.append((node.func.id, {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}))
        except (ValueError, TypeError, MemoryError, RecursionError):
            return None
    found.calls.extend(calls)
    return behind if calls else None
