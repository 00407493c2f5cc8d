"""Loads and fills templates, computes their versions, and describes them for docs/prompts.md."""

from __future__ import annotations

import hashlib
import re
import textwrap
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jinja2 import StrictUndefined, TemplateError, TemplateNotFound, pass_context
from jinja2.loaders import FileSystemLoader
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from jinja2.runtime import Context

    Words = Callable[[str], str]

WORDS = "_words"
_FOLDER = Path(__file__).parent
_END = ".md.j2"
_HEAD = re.compile(r"\A\{#\n(?P<what>.*?)\n(?:\n(?P<table>.*?)\n)?#\}\n", re.DOTALL)
_VARIABLE = re.compile(r"(?P<name>[a-z_]+)(?P<optional> \(optional\))?: (?P<meaning>.+)")

PAGE_WIDTH = 120
"""Maximum number of columns of a line in docs/prompts.md."""
_PAGE = (
    "Every text of the program for a model, a forge or git that is more than a tool's result comes from a template in "
    "`agent/prompts/`, filled by "
    "`agent.prompts.render(name, **values)`. `agent.prompts.version(name)` is a hash of the template. "
    "This page is made from the comments at the head of the templates."
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a template. `optional`: the template can be rendered without a value for this variable."""

    name: str
    meaning: str
    optional: bool


def on_one_line(value: object) -> str:
    """Template filter: writes the value on one line, without control characters."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(value)).split())


def code(value: object) -> str:
    """Template filter: writes the value as inline code of Markdown, which backticks in the value cannot end."""
    text = on_one_line(value)
    ticks = "`" * (_longest(text, "`") + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def block(value: object) -> str:
    """Template filter: writes the value as a code block of Markdown, which backticks in the value cannot end."""
    text = str(value).strip("\n")
    ticks = "`" * max(3, _longest(text, "`") + 1)
    return f"{ticks}\n{text}\n{ticks}"


def numbers(facts: Mapping[str, Any]) -> str:
    """Template filter: writes turns, tokens, money and model on one line, each followed by ` · `; "" if there were no
    turns and no requests.

    The name of the currency is written after the amount of the cost. `estimated` is the number of tokens that were
    estimated because no server reported them, or True if all numbers of tokens were estimated. If `estimated` is not 0,
    `~` precedes the numbers of tokens and the cost, and a remark follows them. The number of `requests` to the model is
    shown if there were more requests than turns.
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
    currency = f" {on_one_line(facts['currency'])}" if facts.get("currency") else ""
    parts += [f"cost {sign}{cost:.4f}{currency}"] if cost is not None else []
    parts += [on_one_line(facts["model"])] if facts.get("model") else []
    if estimated is True or estimated >= sent + received:
        parts += ["tokens estimated, none reported"] if estimated else []
    elif estimated:
        parts += [f"{estimated:,} tokens estimated, not reported"]
    return "".join(f"{part} · " for part in parts)


def _longest(text: str, sign: str) -> int:
    return max((len(run) for run in re.findall(re.escape(sign) + "+", text)), default=0)


class Live(str):
    """Text that `publish` leaves unchanged although the forge may act on it (a mention, a link), because the program
    intends that."""

    __slots__ = ()


def live(value: object) -> Live:
    """Template filter: marks a value that the program made, such as a mention or the address of its pull request, as
    `Live`."""
    return Live(value)


@cache
def _environment(*, published: bool) -> ImmutableSandboxedEnvironment:
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
        autoescape=False,  # the output of a template is Markdown or a prompt, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"line": on_one_line, "code": code, "block": block, "numbers": numbers, "live": live}
    return environment


@cache
def program_templates() -> tuple[str, ...]:
    """The names of all templates of the program, sorted."""
    return tuple(sorted(path.name.removesuffix(_END) for path in _FOLDER.glob(f"*{_END}")))


def accepted_names() -> tuple[str, ...]:
    """The names that `render` accepts: those of the program's templates and of templates that users have added;
    sorted."""
    replacements = _in_use()
    return tuple(sorted({*program_templates(), *(replacements.names() if replacements is not None else ())}))


def source(name: str) -> str:
    """The text of the program's own template `name`. Raises ValueError for an unknown name of a template."""
    if name not in program_templates():
        raise ValueError(f"there is no template {name!r}; known are {', '.join(program_templates())}")
    return (_FOLDER / f"{name}{_END}").read_text(encoding="utf-8")


class Replacements(Protocol):
    """The interface of templates that replace the program's own (`revision.TemplateSet` implements it)."""

    def fill(self, name: str, values: Mapping[str, object]) -> str | None:
        """The rendered text of the replacement of the template `name`; None if there is no replacement for it, or the
        replacement cannot be rendered with these values."""
        ...

    def names(self) -> Collection[str]:
        """The names of all replacements."""
        ...

    def version(self, name: str) -> str | None:
        """The version of the replacement for the template `name`; None when there is no replacement."""
        ...

    def digest(self, name: str) -> str | None:
        """The SHA-256 of the replacement for the template `name` in hex; None when there is no replacement."""
        ...


class _InUse:
    """The replacements of templates that this process uses; code reads the attribute once for each text, since another
    thread may change it."""

    replacements: Replacements | None = None


_thread = threading.local()


def set_replacements(replacements: Replacements | None) -> None:
    """Use these replacements of templates from now on in all threads that are not inside `using_in_thread`; None means
    that only the program's own templates are used."""
    _InUse.replacements = replacements


@contextmanager
def using(replacements: Replacements | None) -> Iterator[None]:
    """Call `set_replacements` with these replacements for the time of the block, and with the earlier ones at its
    end."""
    before = _InUse.replacements
    set_replacements(replacements)
    try:
        yield
    finally:
        set_replacements(before)


@contextmanager
def using_in_thread(replacements: Replacements | None) -> Iterator[None]:
    """Use these replacements of templates inside the block, only in this thread: other threads may work on other
    tasks."""
    before = _thread.__dict__.copy()
    _thread.replacements = replacements
    try:
        yield
    finally:
        _thread.__dict__.clear()
        _thread.__dict__.update(before)


def _in_use() -> Replacements | None:
    found: Replacements | None = getattr(_thread, "replacements", _InUse.replacements)
    return found


def render(name: str, /, **values: object) -> str:
    """The rendered text of the template `name`, without white space at its ends.

    Raises ValueError for an unknown template or a missing value; both are mistakes in the code of this program. Raises
    ConfigError if a template that only users have cannot be rendered.
    """
    return _filled(_environment(published=False), name, values)


def publish(name: str, words: Words, /, **values: object) -> str:
    """Like `render`, but for texts that other people read: each value is passed through `words`
    (`issue/publish_filter.py`), except values with the filter `live`.

    The function `words` gets only the values: the constant text of the template stays as it is.
    """
    return _filled(_environment(published=True), name, values | {WORDS: words})


def publish_text(key: str, template: str, words: Words, /, **values: object) -> str:
    """Like `publish`, but for a template text that the configuration has under `key`. Raises ConfigError if the
    configured template text cannot be rendered with these values."""
    try:
        return _environment(published=True).from_string(template).render(values | {WORDS: words}).strip()
    except TemplateError as error:
        raise ConfigError(
            f"{key}: the template cannot be filled for this task ({error}); known are {', '.join(sorted(values))}"
        ) from error


def _filled(environment: ImmutableSandboxedEnvironment, name: str, values: Mapping[str, object]) -> str:
    replacements = _in_use()
    if replacements is not None and (replaced := replacements.fill(name, values)) is not None:
        return replaced
    try:
        text = environment.get_template(f"{name}{_END}").render(values)
    except TemplateNotFound as error:
        if replacements is not None and name in replacements.names():
            raise ConfigError(f"prompts: the template {name!r} cannot be filled with {sorted(values)}") from error
        raise ValueError(f"there is no template {name!r}; known are {', '.join(program_templates())}") from error
    except TemplateError as error:
        raise ValueError(f"template {name!r}: {error}") from error
    return text.strip()


def preload(published: Collection[str]) -> None:
    """Compile every template of the program now, so that processes that are forked from this one share the compiled
    templates.

    `published` names the templates that `publish` fills.
    """
    for name in program_templates():
        _environment(published=name in published).get_template(f"{name}{_END}")


def version(name: str) -> str:
    """The version of the template `name` that is in use; for one of the program's own templates, twelve hexadecimal
    digits of its hash."""
    replacements = _in_use()
    return (replacements.version(name) if replacements is not None else None) or _own_version(name)


def digest(name: str) -> str:
    """The SHA-256 of the template `name` that is in use, in hex."""
    replacements = _in_use()
    return (replacements.digest(name) if replacements is not None else None) or _own_digest(name)


def _own_version(name: str) -> str:
    return _own_digest(name)[:12]


@cache
def _own_digest(name: str) -> str:
    return hashlib.sha256(source(name).encode()).hexdigest()


def versions() -> dict[str, str]:
    """The versions of all of the program's own templates, by name; replacements do not count."""
    return {name: _own_version(name) for name in program_templates()}


def describe(name: str) -> tuple[str, list[Variable]]:
    """The description of a template and the list of its variables, from the comment at its beginning. Raises ValueError
    if the template does not begin with a comment, or a line of the comment about a variable has a wrong form."""
    head = _HEAD.match(source(name))
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
    """The text of docs/prompts.md, which is made from the templates."""
    parts = ["# Prompts", textwrap.fill(_PAGE, PAGE_WIDTH)]
    for name in program_templates():
        what, variables = describe(name)
        parts += [f"## {name}", textwrap.fill(what, PAGE_WIDTH)]
        if variables:
            parts.append("\n".join(_item(one) for one in variables))
    return "\n\n".join(parts) + "\n"


def _item(variable: Variable) -> str:
    text = f"- `{variable.name}`{' (optional)' if variable.optional else ''}: {variable.meaning}"
    return textwrap.fill(text, PAGE_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
