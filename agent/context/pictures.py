"""Pictures of a user's message: files below the task's folder that a record and a line of the view name.

`record["images"]` is a list of `{"file", "media_type", "width", "height", "tokens"}`, in the order of the text's.  The
view has the same list beside the content, the one thing in it that is no wire's own: the client reads the files and
writes them as its server takes them, so that the view stays small.  Tokens are part of the record's.  A compaction that
masks up to a record, or that leaves messages out behind the head, takes the pictures of older records out of the view;
a line of text names them.  Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.values import Json

NAME = "images"
KEYS = ("file", "media_type", "width", "height", "tokens")


def of_message(pictures: Sequence[Mapping[str, Any]]) -> list[Json]:
    """The list as it is recorded; ValueError for a picture that is not whole."""
    made = [{key: picture[key] for key in KEYS if key in picture} for picture in pictures]
    if any(len(one) < len(KEYS) for one in made):
        raise ValueError(f"a picture needs {', '.join(KEYS)}; found {made}")
    return made


def tokens_of(record: Mapping[str, Any]) -> int:
    """What the pictures of a record, or of a line of the view, cost."""
    pictures = record.get(NAME)
    if not isinstance(pictures, list):
        return 0
    return sum(one["tokens"] for one in pictures if isinstance(one, dict) and type(one.get("tokens")) is int)


def without(record: Json) -> Json:
    """The record with a line of text in the place of its pictures."""
    rest = {key: value for key, value in record.items() if key != NAME}
    rest["content"] = f"{record['content']}\n\n{left_out(record[NAME])}"
    return rest


def left_out(pictures: Sequence[Mapping[str, Any]]) -> str:
    """The line for pictures that are not shown any more."""
    names = ", ".join(f"{one['file']} ({one['width']} × {one['height']})" for one in pictures)
    return f"[left out, seen before: {names}]"
