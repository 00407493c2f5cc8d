"""Converts the values that a page shows into HTML and JSON.

The texts on a page come from models, forges, tools or files. Before a template or the JSON encoder gets them, `inert`
masks secrets and removes terminal sequences, controls and invisible or reordering characters. In HTML, Jinja also
escapes every value.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent import clock
from agent.error_text import named
from agent.errors import MakimonoError
from agent.observe import log
from agent.security.terminal import strip_terminal_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
DEEPEST = 30
"""The maximum depth of nested values that a page shows; a record of a damaged file may be nested deeper, and is cut."""

_MAY_HIDE = re.compile(r"[^\n\t -~]")


def inert(value: Any, redact: Callable[[str], str], depth: int = 0) -> Any:
    """A copy of `value`: in each text, keys included, secrets are masked and unsafe characters removed. Values that
    JSON cannot express become text, and lists and dicts nested deeper than DEEPEST become "…"."""
    if isinstance(value, str):
        text = redact(value)
        if not _MAY_HIDE.search(text):
            return text
        # secrets are masked once more, since a character that was removed may have been inside a secret
        return redact(strip_terminal_controls(text)).encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)  # a number that JSON cannot express becomes text
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {inert(str(key), redact): inert(one, redact, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [inert(one, redact, depth + 1) for one in value]
    return inert(str(value), redact, depth + 1)


def stream(template: str, view: Mapping[str, Any], **more: Any) -> Iterator[str]:
    """The HTML of a page, yielded piece by piece. Raises TemplateValuesError when the values do not have the shape that
    the template needs, which is possible for values of another host."""
    from jinja2 import TemplateError

    try:
        yield from environment().get_template(f"{template}.html.j2").generate(view=view, **more)
    except (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        log.mistake("page", template, error)
        raise TemplateValuesError(f"the page cannot be made: {named(error)}") from error


def to(base: Any, kind: str, number: Any) -> str:
    """The address of a record of a task. `base` is the address of the task's page, or "#" in a page that is a single
    file. `kind` is `messages`, `compactions`, or `at`, for the conversation from the message `number` on."""
    if base == "#":
        return f"#compaction-{number}" if kind == "compactions" else f"#message-{number}"
    return f"{base}?at={number}" if kind == "at" else f"{base}/{kind}/{number}"


def render(template: str, view: Mapping[str, Any], **more: Any) -> str:
    """The HTML of a page.  Raises TemplateValuesError as `stream` does."""
    return "".join(stream(template, view, **more))


class TemplateValuesError(MakimonoError):
    """The error that a page cannot be made from its values."""

    code = "page_values"


@cache
def environment() -> Environment:
    """The Jinja environment of the pages, which escapes every value."""
    from jinja2 import ChainableUndefined, FileSystemLoader
    from jinja2 import Environment as Templates

    made = Templates(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "when": when,
        "number": number,
        "money": money,
        "seconds": seconds,
        "bytes": size,
        "address": address,
        "since": since,
        "to": to,
    }
    return made


def when(stamp: Any) -> str:
    """A time stamp in the form `2026-01-31 09:15:00`; "" if it is missing. Of any other value the first 19 characters
    are shown."""
    return str(stamp or "")[:19].replace("T", " ")


def since(stamp: Any) -> str:
    """The time since a time stamp, rounded to its largest unit, like `3 h`; "" for a value that is no time stamp."""
    try:
        passed = (clock.now() - clock.parse(str(stamp))).total_seconds()
    except (ValueError, TypeError):
        return ""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if abs(passed) >= length:
            return f"{passed / length:.0f} {unit}"
    return f"{passed:.0f} s"


def number(value: Any) -> str:
    """A number without decimals, with separators for thousands; "" for a value that is no number."""
    return f"{value:,.0f}" if _is_number(value) else ""


def money(value: Any) -> str:
    """An amount of money with four digits after the point; "" for a value that is no number."""
    return f"{value:,.4f}" if _is_number(value) else ""


def seconds(milliseconds: Any) -> str:
    """A duration in milliseconds as text, like `320 ms` or `1.4 s`; "" for a value that is no number."""
    if not _is_number(milliseconds):
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def size(value: Any) -> str:
    """A number of bytes in its largest unit, like `1.5 MiB`; "" for a value that is no number."""
    if not _is_number(value):
        return ""
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= length:
            return f"{value / length:.1f} {unit}"
    return f"{value:.0f} B"


def address(value: Any) -> str:
    """The value if it is an http or https address, which may be a link; else ""."""
    text = str(value or "")
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return text if parts.scheme in ("http", "https") and parts.netloc else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def warm() -> None:
    """Compile the templates, so that the first page takes no longer than the following ones."""
    for path in FOLDER.glob("*.html.j2"):
        environment().get_template(path.name)


@cache
def static(name: str) -> bytes:
    """The content of a file of the folder `static/`."""
    return (STATIC / name).read_bytes()
