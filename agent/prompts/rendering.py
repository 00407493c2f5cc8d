"""Templates: loading, filling, versions and their table.  See the package's docstring for what they are."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, TemplateError, TemplateNotFound, pass_context
from jinja2.loaders import FileSystemLoader
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from jinja2.runtime import Context

    Words = Callable[[str], str]

WORDS = "_words"
_FOLDER = Path(__file__).parent
_END = ".md.j2"
_HEAD = re.compile(r"\A\{#\n(?P<what>.*?)\n(?:\n(?P<table>.*?)\n)?#\}\n", re.DOTALL)
_VARIABLE = re.compile(r"(?P<name>[a-z_]+)(?P<optional> \(optional\))?: (?P<meaning>.+)")

_PAGE = (
    "Every text of the program for a model, a forge or git that is more than a tool's result comes from a template in "
    "`agent/prompts/`, filled by "
    "`agent.prompts.render(name, **values)`. `agent.prompts.version(name)` is a hash of the template. "
    "This page is made from the comments at the head of the templates."
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One value that a template takes.  An optional one may be left out."""

    name: str
    meaning: str
    optional: bool


def line(value: object) -> str:
    """Filter: one line without control characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(value)).split())


def code(value: object) -> str:
    """Filter: inline code that its own backticks cannot end."""
    text = line(value)
    ticks = "`" * (_longest(text, "`") + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def block(value: object) -> str:
    """Filter: a code block that its own backticks cannot end."""
    text = str(value).strip("\n")
    ticks = "`" * max(3, _longest(text, "`") + 1)
    return f"{ticks}\n{text}\n{ticks}"


def numbers(facts: Mapping[str, Any]) -> str:
    """Filter: turns, tokens, money and model on one line, each followed by ` · `; "" when nothing is known.

    `estimated` is how many of the tokens no server has reported, or true for all of them; then `~` stands before the
    numbers, and it is said.  `requests` are named where there were more than turns.
    """
    turns, cost, requests = facts.get("turns") or 0, facts.get("cost"), facts.get("requests") or 0
    if not turns and not requests:
        return ""
    estimated = facts.get("estimated") or 0
    sign = "~" if estimated else ""
    sent, received = facts.get("prompt_tokens") or 0, facts.get("completion_tokens") or 0
    parts = [f"{turns:,} turn{'' if turns == 1 else 's'}"]
    if requests > turns:
        parts[0] += f" ({requests:,} request{'' if requests == 1 else 's'})"
    if sent or received:
        parts.append(f"{sign}{sent:,} tokens in, {sign}{received:,} out")
    parts += [f"cost {sign}{cost:.4f}"] if cost is not None else []
    parts += [line(facts["model"])] if facts.get("model") else []
    if estimated is True or estimated >= sent + received:
        parts += ["tokens estimated, none reported"] if estimated else []
    elif estimated:
        parts += [f"{estimated:,} tokens estimated, not reported"]
    return "".join(f"{part} · " for part in parts)


def _longest(text: str, sign: str) -> int:
    return max((len(run) for run in re.findall(re.escape(sign) + "+", text)), default=0)


class Live(str):
    """What the program itself says to the host, so that it is not made inert (`publish`)."""

    __slots__ = ()


def live(value: object) -> Live:
    """Filter: a value of our own, such as the account's mention or the address of our pull request."""
    return Live(value)


@cache
def _environment(*, published: bool = False) -> ImmutableSandboxedEnvironment:
    @pass_context
    def finalize(context: Context, value: object) -> object:
        if isinstance(value, Live):
            return value
        words: Words = context[WORDS]
        return words(str(value))

    environment = ImmutableSandboxedEnvironment(
        finalize=finalize if published else None,
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # Markdown and prompts, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"line": line, "code": code, "block": block, "numbers": numbers, "live": live}
    return environment


@cache
def names() -> tuple[str, ...]:
    """The templates there are, sorted."""
    return tuple(sorted(path.name.removesuffix(_END) for path in _FOLDER.glob(f"*{_END}")))


def _source(name: str) -> str:
    if name not in names():
        raise ValueError(f"there is no template {name!r}; known are {', '.join(names())}")
    return (_FOLDER / f"{name}{_END}").read_text(encoding="utf-8")


def render(name: str, /, **values: object) -> str:
    """The text of template `name`, without white space at its ends.

    ValueError for an unknown template or a missing value: both are mistakes of this program.
    """
    return _filled(_environment(), name, values)


def publish(name: str, words: Words, /, **values: object) -> str:
    """The same for others to read: each value passes `words` (`run/publishable.py`), but for those that the template
    calls live.  The template's own text stays."""
    return _filled(_environment(published=True), name, values | {WORDS: words})


def publish_text(template: str, words: Words, /, **values: object) -> str:
    """As `publish`, for a template of the operator's.  ValueError when it cannot be filled."""
    try:
        return _environment(published=True).from_string(template).render(values | {WORDS: words}).strip()
    except TemplateError as error:
        raise ValueError(f"the template cannot be filled: {error}") from error


def _filled(environment: ImmutableSandboxedEnvironment, name: str, values: Mapping[str, object]) -> str:
    try:
        text = environment.get_template(f"{name}{_END}").render(values)
    except TemplateNotFound as error:
        raise ValueError(f"there is no template {name!r}; known are {', '.join(names())}") from error
    except TemplateError as error:
        raise ValueError(f"template {name!r}: {error}") from error
    return text.strip()


def preload(published: Collection[str]) -> None:
    """Compile every template now, so that processes forked from this one share them; `published` are those that others
    read."""
    for name in names():
        _environment(published=name in published).get_template(f"{name}{_END}")


@cache
def version(name: str) -> str:
    """Twelve hexadecimal digits that change when the template does."""
    return hashlib.sha256(_source(name).encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Every template with its version."""
    return {name: version(name) for name in names()}


def describe(name: str) -> tuple[str, list[Variable]]:
    """What a template is, and its variables, from the comment at its head."""
    head = _HEAD.match(_source(name))
    if head is None:
        raise ValueError(f"template {name!r} does not begin with a comment that says what it is")
    variables = []
    for row in (head["table"] or "").splitlines():
        match = _VARIABLE.fullmatch(row)
        if match is None:
            raise ValueError(f"template {name!r}: {row!r} is not 'name: meaning' or 'name (optional): meaning'")
        variables.append(Variable(match["name"], match["meaning"], bool(match["optional"])))
    return " ".join(head["what"].split()), variables


def markdown() -> str:
    """docs/prompts.md, made from the templates."""
    parts = ["# Prompts", _PAGE]
    for name in names():
        what, variables = describe(name)
        parts += [f"## {name}", what]
        if variables:
            rows = ["| variable | meaning |", "|---|---|"]
            rows += [f"| `{one.name}`{' (optional)' if one.optional else ''} | {one.meaning} |" for one in variables]
            parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"
