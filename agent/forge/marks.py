"""Markers: how a comment of ours is found again after a crash.

A marker is `makimono:{uuid}:{name}`, hidden from people in an HTML comment, and means something only in what the bot's
own account wrote (design: section 8).  Used by every forge adapter, and by `run` on text that comes from people or a
model, where a marker must not stand.
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
    """`makimono:{uuid}:{name}`; both parts are letters, digits and `._-` (else ValueError)."""
    for part in (uuid, name):
        if not _PLAIN.fullmatch(part):
            raise ValueError(f"a marker is made of letters, digits, dot, dash and underscore, not {part!r}")
    return f"{PREFIX}:{uuid}:{name}"


def hidden(mark: str) -> str:
    """The marker as it stands in a comment: Markdown shows nothing of it."""
    return f"<!-- {mark} -->"


def marked(body: Public, *marks: str) -> Public:
    """`body` with the hidden markers as its last lines."""
    return Public("\n".join((f"{without_markers(body).rstrip()}\n", *map(hidden, marks))))


def hidden_in(body: str) -> str | None:
    """The last marker that `body` holds, None when there is none."""
    found = _MARK.findall(body)
    return str(found[-1]) if found else None


def all_in(body: str) -> tuple[str, ...]:
    """Every marker that `body` holds, as they stand there."""
    return tuple(str(found) for found in _MARK.findall(body))


def parts_of(mark: str) -> tuple[str, str]:
    """(uuid, name) of a marker."""
    _, uuid, name = mark.split(":", 2)
    return uuid, name


def without_markers(text: str) -> str:
    """`text` without anything that could pass for one of our markers.

    Hidden ones are removed until none is left (removing one may put the halves of another together); a bare one loses
    its colon's meaning by a space.
    """
    while (shorter := _HIDDEN.sub("", text)) != text:
        text = shorter
    return _BARE.sub(f"{PREFIX}: ", text)
