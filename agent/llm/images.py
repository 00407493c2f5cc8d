"""Encodes the pictures that a stored message names, in the form that the model server accepts.

A stored message only names the files of its pictures (`context/pictures.py`); `images.py` reads these files, for one
message at a time.  In the request the pictures become parts of the content (the form `image_url` of OpenAI's API,
https://platform.openai.com/docs/guides/images), base64 texts beside the content (the form `images` of Ollama's API) or
blocks (the form `source` of Anthropic's API).  For a server that does not accept pictures a sentence replaces the
pictures of a message, so that the model knows that there are pictures which it does not see.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from agent.errors import ContextError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.values import Json

NAME = "images"
FORMS = ("image_url", "images", "source")


def with_pictures(messages: Iterable[Json], folder: Path, form: str) -> Iterator[Json]:
    """Each message, with its pictures encoded in the form `form`; with the form "", a sentence replaces the pictures of
    a message. Raises ContextError if the file of a picture cannot be read."""
    for message in messages:
        pictures = message.get(NAME)
        yield message if not pictures else _message_with_pictures(message, pictures, folder, form)


def placeholder(count: int) -> str:
    """The text that replaces pictures for a server that does not accept them."""
    them = "1 picture belongs" if count == 1 else f"{count} pictures belong"
    return f"[{them} to this message. You cannot see {'it' if count == 1 else 'them'}: this model takes no pictures.]"


def _message_with_pictures(message: Json, pictures: Sequence[Mapping[str, Any]], folder: Path, form: str) -> Json:
    rest = {key: value for key, value in message.items() if key != NAME}
    text = message["content"]
    if form not in FORMS:
        return rest | {"content": f"{text}\n\n{placeholder(len(pictures))}"}
    files = [(str(one["media_type"]), _read(folder, one)) for one in pictures]
    if form == "images":
        return rest | {NAME: [data for _, data in files]}
    if form == "source":
        return rest | {NAME: [{"media_type": kind, "data": data} for kind, data in files]}
    parts: list[Json] = [{"type": "text", "text": text}]
    parts += [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}} for kind, data in files]
    return rest | {"content": parts}


def _read(folder: Path, picture: Mapping[str, Any]) -> str:
    path = folder / str(picture["file"])
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise ContextError(
            f"{path}: the picture of a message cannot be read ({error.strerror}); put it back"
        ) from error
