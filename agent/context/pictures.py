"""The pictures of a user's message: files below the task's folder to which the record and the line of the view refer.

`record["images"]` is a list of `{"file", "media_type", "width", "height", "tokens"}`, in the order of the text. The
line of the view has the same list of pictures beside the content; it is the only part of the view that is not in the
wire format. The client reads the files and encodes them for its server, so the view stays small. The field `tokens` of
a record includes the tokens of its pictures. If a compaction masks the view up to a record or beyond, a line of text
with the names of its pictures replaces them in the view; the pictures of the briefing are replaced by the first
compaction of any kind that reaches the briefing. All functions of `pictures.py` are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import RecordRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.values import Json

NAME = "images"
KEYS = ("file", "media_type", "width", "height", "tokens")


def of_message(pictures: Sequence[Mapping[str, Any]]) -> list[Json]:
    """The list of pictures for the record of a message; raises RecordRefused for an incomplete picture."""
    made = [{key: picture[key] for key in KEYS if key in picture} for picture in pictures]
    if any(len(one) < len(KEYS) for one in made):
        raise RecordRefused(f"a picture needs {', '.join(KEYS)}; found {made}")
    return made


def tokens_of(record: Mapping[str, Any]) -> int:
    """The tokens of the pictures of a record, or of a line of the view."""
    pictures = record.get(NAME)
    if not isinstance(pictures, list):
        return 0
    return sum(one["tokens"] for one in pictures if isinstance(one, dict) and type(one.get("tokens")) is int)


def without_pictures(record: Json) -> Json:
    """The record with a line of text in place of its pictures."""
    rest = {key: value for key, value in record.items() if key != NAME}
    rest["content"] = f"{record['content']}\n\n{left_out(record[NAME])}"
    return rest


def left_out(pictures: Sequence[Mapping[str, Any]]) -> str:
    """The line of text that replaces pictures which are no longer shown."""
    names = ", ".join(f"{one['file']} ({one['width']} × {one['height']})" for one in pictures)
    return f"[left out, seen before: {names}]"
