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
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.values import Json

MOST = 64
"""Calls of one answer that are kept.  Models ask for a few dozen at most; more is a loop, and fills a small window."""

MARKER = re.compile(
    r"<\|[^|<>\n]{1,60}\|>|<｜[^｜<>\n]{1,60}｜>"  # special tokens: Llama, Phi, Kimi, Granite, LFM · DeepSeek
    r"|</?(?:[\w.-]+:)?\w*(?i:(?:tool|function)[_-]?(?:calls?|use)s?)>"  # Hermes, Qwen, GLM, MiniMax, Nemotron, LongCat
    r"|</?(?:s|eos|bos|start_of_turn|end_of_turn)>(?:model\b)?"  # ends of an answer: Llama 2, Mistral · Gemma
    r"|</?｜?DSML｜(?:function_calls|tool_calls)>"  # DeepSeek V3.2
    r"|\[/?(?:TOOL_CALLS?|ARGS|CALL_ID)\]"  # Mistral
    r"|functools(?=\s*\[)"  # Phi-4
    r"|Action(?: Input)?:|>>>"  # ReAct, Command R · Functionary
    r"|```[\w+-]*"
)
BEGINS = re.compile(rf"{MARKER.pattern}|<(?=[\w.:-]*(?:function=|invoke ))")
PLACES = 8  # where calls behind words may begin
NAME = re.compile(r"(?:to=)?(?:functions?\.|default_api\.)?(?P<name>[A-Za-z_][\w-]{0,63})(?::\d+)?(?![\w(])")
EXPRESSION = re.compile(r"(?:print\()?(?:functions?\.|default_api\.)?[A-Za-z_]\w{0,63}\(")  # Gemma, OLMo
WORDS = frozenset(("function", "json", "commentary", "analysis", "assistant", "call", "tool_call"))
"""What stands between markers and is no name: DeepSeek's and Harmony's."""
FUNCTION = re.compile(r"<function=(?P<name>[\w.-]+)>(?P<inner>.*?)</function>", re.DOTALL)
PARAMETER = re.compile(r"(?:(?<!\s)\s++)?<parameter=(?P<name>[\w.-]+)>(?P<value>.*?)</parameter>\s*", re.DOTALL)
INVOKE = re.compile(
    r"<(?P<p>(?:[\w.-]+:|｜?DSML｜)?)invoke name=\"(?P<name>[\w.-]+)\">(?P<inner>.*?)</(?P=p)invoke>", re.DOTALL
)
INVOKED = re.compile(
    r"(?:(?<!\s)\s++)?<(?P<p>(?:[\w.-]+:|｜?DSML｜)?)"
    r"parameter name=\"(?P<name>[\w.-]+)\"[^<>]*>(?P<value>.*?)</(?P=p)parameter>\s*",
    re.DOTALL,
)
TAG = re.compile(r"<(?P<name>[\w-]+)>(?P<inner>.*?)</(?P=name)>", re.DOTALL)  # the tool's own name as a tag: Cline
TAGGED = re.compile(r"(?:(?<!\s)\s++)?<(?P<name>[\w-]+)>(?P<value>.*?)</(?P=name)>\s*", re.DOTALL)
PAIR = re.compile(r"<arg_key>(?P<name>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)  # GLM
NAMES = ("name", "tool_name", "tool", "function")
BESIDE = 4  # keys of a call beside its name and arguments: id, type, index and the like
CLOSINGS = 8  # places where an expression of Python may end that are tried


@dataclass
class Found:
    """What was read so far."""

    offered: Collection[str]
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
    found, at, text = Found(offered), 0, text.strip()
    while at < len(text):
        behind = _next(text, at, found)
        if behind is None or len(found.calls) > MOST:
            return None
        at = behind
    if not found.close() or not found.calls or not all(name in offered for name, _ in found.calls):
        return None
    return found.calls


def ends_in_calls(text: str, offered: Collection[str]) -> bool:
    """Whether words are followed by nothing but such calls, begun by a marker or a tag: not to be run, but a sign that
    the server leaves the calls of its model in the text."""
    begins = (match for match in BEGINS.finditer(text) if not match[0].startswith("`"))
    return any(whole_calls(text[match.start() :], offered) for match in islice(begins, PLACES))


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
    for pattern, inner in ((FUNCTION, PARAMETER), (INVOKE, INVOKED), (TAG, TAGGED)):
        match = pattern.match(text, at)
        if match and (pattern is not TAG or match["name"] in found.offered):
            arguments = _parameters(match["inner"], inner)
            if arguments is None:
                return None
            found.calls.append((match["name"].removeprefix("functions."), arguments))
            return match.end()
    if found.name and (pair := PAIR.match(text, at)):
        found.pairs[pair["name"].strip()] = pair["value"]
        return pair.end()
    if EXPRESSION.match(text, at):
        return _pythonic(text, at, found)
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
    made = _objects(value, found.offered)
    if made is None:
        return None
    found.calls.extend(made)
    return behind


def _objects(value: Any, offered: Collection[str]) -> list[tuple[str, Json]] | None:
    """The calls that a value is: one, a list of them, or OpenAI's message."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list) and len(value) <= 3:
        value = value["tool_calls"]
    if isinstance(value, list):
        made = [_object(one, offered) for one in value]
        return [one for one in made if one is not None] if made and all(made) else None
    one = _object(value, offered)
    return [one] if one else None


def _object(value: Any, offered: Collection[str]) -> tuple[str, Json] | None:
    """`{name: …, arguments: {…}}` whatever the keys are called, or `{name: {…}}`: one text that is the name of a tool
    beside one object."""
    if not isinstance(value, dict) or len(value) > 2 + BESIDE:
        return None
    if isinstance(value.get("function"), dict):
        return _object(value["function"], offered)
    inner = [(key, found) for key, one in value.items() if (found := _arguments(one)) is not None]
    if len(inner) != 1:
        return None
    key, arguments = inner[0]
    if len(value) == 1:
        return (key, arguments) if key in offered else None
    names = [value[one] for one in NAMES if isinstance(value.get(one), str)]
    names += [one for one in value.values() if isinstance(one, str)]
    named = (one.removeprefix("functions.") for one in names)
    name = next((one for one in named if one in offered), "")
    return (name, arguments) if name else None


def _arguments(value: Any) -> Json | None:
    """The object that a value is, or that its text holds."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


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
    """Calls as Python writes them: `[read_file(path="a.py"), …]` (LFM, Llama 4), `read_file(path="a.py")`, also inside
    of `print()`, or the object of a call with single quotes.  Literals only; nothing is evaluated."""
    closing = {"[": "]", "{": "}"}.get(text[at], ")")
    behind = text.rfind(closing) + 1
    for _ in range(CLOSINGS):
        if behind <= at:
            return None
        try:
            tree = ast.parse(text[at:behind], mode="eval").body
            break
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            behind = text.rfind(closing, at, behind - 1) + 1
    else:
        return None
    try:
        if isinstance(tree, ast.Dict):
            calls = _objects(ast.literal_eval(tree), found.offered)
        else:
            calls = [_expression(node) for node in (tree.elts if isinstance(tree, ast.List) else [tree])]
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    found.calls.extend(calls or ())
    return behind if calls else None


def _expression(node: ast.expr) -> tuple[str, Json]:
    """The name and the arguments of `name(key=literal, …)`.  TypeError or ValueError for anything else."""
    if not isinstance(node, ast.Call):
        raise TypeError("not a call")
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "print" and len(node.args) == 1 and not node.keywords:
        return _expression(node.args[0])
    if not name or node.args or any(one.arg is None for one in node.keywords):
        raise ValueError("arguments without names")
    return name, {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
