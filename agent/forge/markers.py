"""Makes and finds markers, hidden texts in the comments of the own account by which the program finds these comments
again after a crash.

A marker is the text `makimono:{uuid}:{name}` in an HTML comment, which people do not see. A marker counts only in a
comment of the own account, and only in the last lines of the comment, each of which has one marker and nothing else
(docs/files.md, "Outside effects"): so a comment that quotes a comment with markers, or continues after a copy of one,
has no markers. Markers are removed from texts of people and of the model before this program posts them.

If the own account is the account of a person, comments of this program also get a visible last line before the markers
(`signed`), so that readers can tell who wrote them. The visible line also shows who wrote the comment where a host
removes HTML comments.
"""

from __future__ import annotations

import re

from agent.values import Public

PREFIX = "makimono"
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_HIDDEN = re.compile(r"<!--[ \t]*makimono:[A-Za-z0-9._:-]*[ \t]*-->[ \t]*\r?\n?")
_MARK = re.compile(r"<!-- (makimono:[A-Za-z0-9._-]+:[A-Za-z0-9._:-]+) -->")
_LINE = re.compile(r"[ \t]*<!-- (makimono:[A-Za-z0-9._-]+:[A-Za-z0-9._:-]+) -->[ \t]*")
_TAG = re.compile(r"<[^<>]{0,20}>")
SIGNATURE = "Written by Makimono, a program that uses this account."
"""The text of the visible line in comments that the program posts with the account of a person."""
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
    """The last marker anywhere in `body`, None if `body` has no marker; for texts that this program has written or that
    the caller checks otherwise."""
    found = _MARK.findall(body)
    return str(found[-1]) if found else None


def all_in(body: str) -> tuple[str, ...]:
    """The markers in the last lines of `body`, in order."""
    return _split(body)[1]


def signed(body: str, most: int) -> str:
    """`body` with the visible line of this program (`SIGNATURE`) before its markers; the unchanged `body` if the result
    would have more than `most` characters."""
    text, marks = _split(body)
    line = () if _has_signature(text) else (f"\n<sub>{SIGNATURE}</sub>",)
    done = "\n".join((text, *line, *(("", *map(hide, marks)) if marks else ())))
    return done if len(done) <= most else body


def is_signed(body: str) -> bool:
    """Whether `body` ends as the comments of this program do: with a marker, or with the visible line `SIGNATURE`."""
    text, marks = _split(body)
    return bool(marks) or _has_signature(text)


def _split(body: str) -> tuple[str, tuple[str, ...]]:
    """(`body` without its last lines that are markers, and without white space at its end; these markers)."""
    lines = body.replace("\r\n", "\n").rstrip().split("\n")
    found: list[str] = []
    while lines and (mark := _LINE.fullmatch(lines[-1])) is not None:
        found.append(mark[1])
        lines.pop()
    return "\n".join(lines).rstrip(), tuple(reversed(found))


def _has_signature(text: str) -> bool:
    """Whether the last line of `text` is the visible line of this program's comments (`SIGNATURE`), also if a host has
    removed the tags in it."""
    return _TAG.sub("", text[text.rfind("\n") + 1 :]).strip() == SIGNATURE


def parts_of(mark: str) -> tuple[str, str]:
    """Split a marker into (uuid, name)."""
    _, uuid, name = mark.split(":", 2)
    return uuid, name


def without_markers(text: str) -> str:
    """`text` without anything that could be taken for a marker of this program.

    Hidden markers are removed until none is left, because the removal of one marker may join the halves of another
    marker. A marker outside an HTML comment gets a space after its first colon, so that the program no longer
    recognises it as a marker.
    """
    while (shorter := _HIDDEN.sub("", text)) != text:
        text = shorter
    return _BARE.sub(f"{PREFIX}: ", text)
