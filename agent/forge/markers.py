"""Makes and finds markers, hidden texts in the comments of the own account by which the program finds these comments
again after a crash.

A marker is the text `makimono:{uuid}:{name}` in an HTML comment, which people do not see.  A marker counts only in a
comment of the own account (docs/files.md, "Outside effects").  Markers are removed from texts of people and of the
model before this program posts them.
"""

from __future__ import annotations

import re

from agent.values import Public

PREFIX = "makimono"
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_HIDDEN = re.compile(r"<!--[ \t]*makimono:[A-Za-z0-9._:-]*[ \t]*-->[ \t]*\r?\n?")
_MARK = re.compile(r"<!-- (makimono:[A-Za-z0-9._-]+:[A-Za-z0-9._:-]+) -->")
_BARE = re.compile(r"makimono:(?=[0-9A-Fa-f-]{8,}:)")


def marker(uuid: str, name: str) -> str:
    """The marker `makimono:{uuid}:{name}`; `uuid` and `name` must consist of letters, digits and `._-`, otherwise
    ValueError is raised."""
    for part in (uuid, name):
        if not _PLAIN.fullmatch(part):
            raise ValueError(f"a marker is made of letters, digits, dot, dash and underscore, not {part!r}")
    return f"{PREFIX}:{uuid}:{name}"


def hide(mark: str) -> str:
    """The marker as an HTML comment, which Markdown does not show."""
    return f"<!-- {mark} -->"


def with_markers(body: Public, *marks: str) -> Public:
    """`body` followed by the hidden markers `marks`; markers that `body` itself contains are removed."""
    return Public("\n".join((f"{without_markers(body).rstrip()}\n", *map(hide, marks))))


def hidden_in(body: str) -> str | None:
    """The last marker in `body`, None if there is none."""
    found = _MARK.findall(body)
    return str(found[-1]) if found else None


def all_in(body: str) -> tuple[str, ...]:
    """Every marker in `body`, in order."""
    return tuple(str(found) for found in _MARK.findall(body))


def parts_of(mark: str) -> tuple[str, str]:
    """Split a marker into (uuid, name)."""
    _, uuid, name = mark.split(":", 2)
    return uuid, name


def without_markers(text: str) -> str:
    """`text` without anything that could be taken for a marker of this program.

    Hidden markers are removed until none is left, because the removal of one marker may join the halves of another
    marker.  A marker outside an HTML comment gets a space after its first colon, so that it is no marker any more.
    """
    while (shorter := _HIDDEN.sub("", text)) != text:
        text = shorter
    return _BARE.sub(f"{PREFIX}: ", text)
