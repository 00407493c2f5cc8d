"""Parses the text of an answer that consists of tool calls, which the server has not recognised as tool calls and has
left in the text.

A model writes tool calls in the form that it was trained with; if the server's parser does not know this form, the
server returns the calls as text (public reports: ollama/ollama#11185, jonigl/mcp-client-for-ollama#61).  The parser in
`text_call_formats.py` recognises tool calls by their structure, so it also reads forms that the module does not list:
it accepts markers (`<tool_call>`, `<|python_tag|>`, `[TOOL_CALLS]`, a code fence), and between them only calls of
offered tools.  An answer that contains prose, or a call of a tool that was not offered, counts as plain text.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.values import Json

MOST = 64
"""The maximum number of tool calls in one answer; an answer with more calls counts as plain text.

A model sends a few dozen tool calls in one answer at most; more calls mean that the model repeats itself, and they
would fill a small context window.
"""

MARKER = re.compile(
    # this alternative matches special tokens of Llama, Phi, Kimi, Granite and LFM (with `|`), and of DeepSeek (with a
    # wide bar)
    r"<(?:\|[^|<>\n]{1,60}\|>|｜[^｜<>\n]{1,60}｜>"
    r"|/?(?=[\w.｜-])(?:"
    # this alternative matches tags of Hermes, Qwen, GLM, MiniMax, Nemotron and LongCat
    r"(?:[\w.-]++:)?\w*(?i:(?:tool|function)[_-]?(?:calls?|use)s?)>"
    # this alternative matches tokens that end an answer or a turn, of Llama 2, Mistral and Gemma
    r"|(?:s|eos|bos|start_of_turn|end_of_turn)>(?:model\b)?"
    r"|｜?DSML｜(?:function_calls|tool_calls)>))"  # this alternative matches tags of DeepSeek V3.2
    r"|\[/?(?:TOOL_CALLS?|ARGS|CALL_ID)\]"  # this alternative matches markers of Mistral
    r"|functools(?=\s*\[)"  # this alternative matches the marker of Phi-4
    r"|Action(?: Input)?:|>>>"  # this alternative matches markers of ReAct, Command R and Functionary
    r"|```[\w+-]*"
)
BEGINS = re.compile(rf"{MARKER.pattern}|<(?=[\w.:-])(?=[\w.:-]*(?:function=|invoke ))")
PLACES = 8  # maximum number of positions in an answer with prose that are tried as the beginning of its tool calls
NAME = re.compile(r"(?:to=)?(?:functions?\.|default_api\.)?(?P<name>[A-Za-z_][\w-]{0,63})(?::\d+)?(?![\w(])")
# The beginning of a tool call in Python's syntax, as Gemma and OLMo write it.
EXPRESSION = re.compile(r"(?:print\()?(?:functions?\.|default_api\.)?[A-Za-z_]\w{0,63}\(")
WORDS = frozenset(("function", "json", "commentary", "analysis", "assistant", "call", "tool_call"))
"""Words that the formats of DeepSeek and Harmony have between markers and that are not names of tools."""
FUNCTION = re.compile(r"<function=(?P<name>[\w.-]+)>"), "</function>"
PARAMETER = re.compile(r"<parameter=(?P<name>[\w.-]+)>"), "</parameter>"
_PREFIX = r"(?P<p>(?:[\w.-]+:|｜?DSML｜)?)"
INVOKE = re.compile(rf"<{_PREFIX}invoke name=\"(?P<name>[\w.-]+)\">"), "</{p}invoke>"
INVOKED = re.compile(rf"<{_PREFIX}parameter name=\"(?P<name>[\w.-]+)\"[^<>]*>"), "</{p}parameter>"
# the form of tool calls of Cline, in which the name of the tool is the name of the tag
TAG = re.compile(r"<(?P<name>[\w-]+)>"), "</{name}>"
"""FUNCTION, PARAMETER, INVOKE, INVOKED and TAG are pairs: the pattern of an element's opening tag, and the element's
closing tag, in which `{name}` and `{p}` stand for groups of the pattern."""
KEY, VALUE = ("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")  # the tags of GLM for an argument
SPACE = re.compile(r"\s*+")
NAMES = ("name", "tool_name", "tool", "function")
# maximum number of keys (id, type, index and the like) that the JSON of a call may have in addition to name and
# arguments
BESIDE = 4
CLOSINGS = 8  # maximum number of positions in a text that are tried as the end of a Python expression


@dataclass
class FoundCalls:
    """The state of the parser: the tool calls that it has found so far, and the call that it is reading."""

    offered: Collection[str]
    calls: list[tuple[str, Json]] = field(default_factory=list)
    name: str = ""  # the name of the tool call that is being read, "" if no call is being read
    # the arguments of the tool call that is being read, if they are written as elements for key and value
    pairs: dict[str, str] = field(default_factory=dict)
    marked: bool = False

    def close(self) -> bool:
        """End the tool call that is being read; returns False if the call has a name but no arguments."""
        if self.name and not self.pairs:
            return False
        if self.name:
            self.calls.append((self.name, dict(self.pairs)))
            self.name, self.pairs = "", {}
        return True


def whole_calls(text: str, offered: Collection[str]) -> list[tuple[str, Json]] | None:
    """Parse the tool calls in a text: `[(name, arguments)]` when the whole text consists of at most MOST calls of
    offered tools, else None. `whole_calls` raises no error."""
    found, at, text = FoundCalls(offered), 0, text.strip()
    while at < len(text):
        behind = _next(text, at, found)
        if behind is None or len(found.calls) > MOST:
            return None
        at = behind
    if not found.close() or not found.calls or not all(name in offered for name, _ in found.calls):
        return None
    return found.calls


def ends_in_calls(text: str, offered: Collection[str]) -> bool:
    """Whether the text is prose followed only by calls of offered tools, the first of which begins with a marker or a
    tag.

    The program does not run tool calls after prose; they only show that the server does not recognise the tool calls of
    its model.
    """
    begins = (match for match in BEGINS.finditer(text) if not match[0].startswith("`"))
    return any(whole_calls(text[match.start() :], offered) for match in islice(begins, PLACES))


def _next(text: str, at: int, found: FoundCalls) -> int | None:
    """Read the element of the text that begins at `at` (a marker, a JSON value, a tag, a name); returns the end of the
    element, or None if it cannot be part of a tool call."""
    if text[at].isspace() or text[at] in ";,":
        return at + 1
    if marker := MARKER.match(text, at):
        found.marked = True
        closes = "end" in marker[0] or marker[0].startswith("</")
        return marker.end() if not closes or not found.pairs or found.close() else None
    if text[at] in "{[":
        return _value(text, at, found)
    for form, inner in ((FUNCTION, PARAMETER), (INVOKE, INVOKED), (TAG, TAG)):
        element = _element(text, at, *form)
        if element and (form is not TAG or element[0] in found.offered):
            arguments = _parameters(element[1], inner)
            if arguments is None:
                return None
            found.calls.append((element[0].removeprefix("functions."), arguments))
            return element[2]
    if found.name and (pair := _pair(text, at)):
        found.pairs[pair[0].strip()] = pair[1]
        return pair[2]
    if EXPRESSION.match(text, at):
        return _pythonic(text, at, found)
    return _name(text, at, found)


def _element(text: str, at: int, opening: re.Pattern[str], closing: str) -> tuple[str, str, int] | None:
    """(name, content, end) of the element with opening and closing tag that begins at `at`; None if no such element
    begins there.

    An element ends at the first closing tag. The closing tag is found by a plain text search, so that an unclosed
    element takes only one pass over the text.
    """
    match = opening.match(text, at)
    if match is None:
        return None
    closing = closing.format(**match.groupdict())
    end = text.find(closing, match.end())
    return (match["name"], text[match.end() : end], end + len(closing)) if end >= 0 else None


def _pair(text: str, at: int) -> tuple[str, str, int] | None:
    """(key, value, end) if a key element begins at `at` and a value element follows (GLM's form); otherwise None."""
    said: list[str] = []
    for opening, closing in (KEY, VALUE):
        end = text.find(closing, at) if text.startswith(opening, at) else -1
        if end < 0:
            return None
        said.append(text[at + len(opening) : end])
        at = end + len(closing)
        if len(said) == 1:
            at = _behind_space(text, at)
    return said[0], said[1], at


def _behind_space(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _name(text: str, at: int, found: FoundCalls) -> int | None:
    match = NAME.match(text, at)
    if match is None or not found.marked or found.pairs:
        return None
    if match["name"] not in WORDS or match[0].startswith("to="):
        if found.name:
            return None
        found.name = match["name"]
    return match.end()


def _value(text: str, at: int, found: FoundCalls) -> int | None:
    """Read a JSON value with tool calls or arguments at `at`, or tool calls in Python's syntax; returns its end, None
    if it is neither."""
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
    """The tool calls in a JSON value, which may be one call, a list of calls, or OpenAI's message object; None if it is
    none of these."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list) and len(value) <= 3:
        value = value["tool_calls"]
    if isinstance(value, list):
        made = [_object(one, offered) for one in value]
        return [one for one in made if one is not None] if made and all(made) else None
    one = _object(value, offered)
    return [one] if one else None


def _object(value: Any, offered: Collection[str]) -> tuple[str, Json] | None:
    """The tool call in a JSON object of the form `{"name": NAME, "arguments": {…}}`, with any names of the two keys, or
    `{NAME: {…}}`.

    In the form with two keys, one text must be the name of an offered tool (`functions.` before it is allowed), and
    exactly one other value an object, or a text with the JSON of one; BESIDE further keys are allowed. The call may be
    nested under `function`. Returns None for a value that is no tool call.
    """
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
    """The arguments of a tool call from `value`, an object or a text that contains the object as JSON; None for any
    other value."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _parameters(inner: str, form: tuple[re.Pattern[str], str]) -> Json | None:
    """Parse the text between the tags of a tool call, its arguments: a sequence of parameter elements, or a JSON
    object. Returns None for a text that is neither such a sequence nor a JSON object."""
    if inner.strip().startswith("{"):
        try:
            value = json.loads(inner, strict=False)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None
    arguments: Json = {}
    at = _behind_space(inner, 0)
    while at < len(inner):
        element = _element(inner, at, *form)
        if element is None:
            return None
        arguments[element[0]] = _unframed(element[1])
        at = _behind_space(inner, element[2])
    return arguments


def _unframed(value: str) -> str:
    """The value of a tool call's parameter without the line break after the opening tag and the line break before the
    closing tag."""
    return value.removeprefix("\n").removesuffix("\n")


def _pythonic(text: str, at: int, found: FoundCalls) -> int | None:
    """Read tool calls that are written in Python's syntax.

    The forms of calls in Python's syntax are `[read_file(path="a.py"), …]` (LFM, Llama 4), `read_file(path="a.py")`, a
    call inside `print()`, and a call as a Python dict with single quotes. The arguments of a call must be literals; no
    expression is evaluated. Returns the end of the calls, None if there are none.
    """
    closing = {"[": "]", "{": "}"}.get(text[at], ")")
    behind = text.rfind(closing) + 1
    for _ in range(CLOSINGS):
        if behind <= at:
            return None
        try:
            tree = ast.parse(text[at:behind], mode="eval").body
            break
        # The expression is nested too deeply: the text counts as no tool call, and shorter expressions are not tried.
        except (MemoryError, RecursionError):
            return None
        except (SyntaxError, ValueError):
            behind = text.rfind(closing, at, behind - 1) + 1
    else:
        return None
    try:
        if isinstance(tree, ast.Dict):
            calls = _objects(ast.literal_eval(tree), found.offered)
        else:
            calls = _expressions(tree.elts if isinstance(tree, ast.List) else [tree])
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    found.calls.extend(calls or ())
    return behind if calls else None


def _expressions(nodes: Sequence[ast.expr]) -> list[tuple[str, Json]] | None:
    """The tool calls in a list of Python expressions; None unless each expression is a tool call."""
    calls = []
    for node in nodes:
        if (call := _expression(node)) is None:
            return None
        calls.append(call)
    return calls


def _expression(node: ast.expr) -> tuple[str, Json] | None:
    """The name and the arguments of a Python expression `name(key=literal, …)`, None for another expression.  Raises
    ValueError for an argument that is no literal."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "print" and len(node.args) == 1 and not node.keywords:
        return _expression(node.args[0])
    if not name or node.args or any(one.arg is None for one in node.keywords):
        return None
    return name, {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
