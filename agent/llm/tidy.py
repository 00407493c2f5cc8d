"""Message lists for templates that are strict, one message at a time: one system message, first; then a user's; no two
of one side in a row; nothing empty.  Local chat templates and Anthropic need it (facts on wires, sections 2, 3 and 5).

Only lists that are not tidy as they stand come here; the files are never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agent.llm.spans import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.llm.spans import Shape
    from agent.values import Json, Span

    Change = Callable[[Iterable[Json]], Iterable[Json]]

GO_ON = "Continue with the task."
UNDERSTOOD = "Understood."


def parsed(spans: Sequence[Span]) -> Iterator[Json]:
    """Each message, parsed."""
    for line in lines(spans):
        yield orjson.loads(line)


def system_text(spans: Sequence[Span], shape: Shape) -> str:
    """All system messages as one text; reads no further than the first message when that is the only one."""
    found = []
    for message in parsed(spans):
        if message["role"] == "system":
            found.append(message["content"])
        if len(found) >= shape.systems:
            break
    return "\n\n".join(text for text in found if text)


def tidied(
    spans: Sequence[Span],
    shape: Shape,
    *,
    merge: bool = True,
    alternate: bool = False,
    change: Change | None = None,
) -> Iterator[Json]:
    """The messages without empty assistants, system messages as one at the head.  `merge`: a user's message first, and
    neighbours of one side made one.  `alternate`: an assistant's word between a tool result and a user's message, for
    templates that count turns.  `change`: what is done to every message before that."""
    if shape.systems:
        yield {"role": "system", "content": system_text(spans, shape)}
    every = parsed(spans) if change is None else change(parsed(spans))
    messages = (message for message in every if message["role"] != "system" and not _is_empty(message))
    if not merge:
        yield from messages
        return
    yield from _merged(_begun(messages), alternate=alternate)


def _begun(messages: Iterable[Json]) -> Iterator[Json]:
    begun = False
    for message in messages:
        if not begun and message["role"] != "user":
            yield {"role": "user", "content": GO_ON}
        begun = True
        yield message


def _merged(messages: Iterable[Json], *, alternate: bool) -> Iterator[Json]:
    run: list[Json] = []  # neighbours of one side
    for message in messages:
        if run and (run[-1]["role"] != message["role"] or message["role"] == "tool"):
            yield _joined(run)
            if alternate and run[-1]["role"] == "tool" and message["role"] == "user":
                yield {"role": "assistant", "content": UNDERSTOOD}
            run = []
        run.append(message)
    if run:
        yield _joined(run)


def _joined(run: Sequence[Json]) -> Json:
    """One message of several, joined once: a piece at a time would copy the whole for each."""
    if len(run) == 1:
        return run[0]
    joined: Json = {}
    for message in run:
        joined |= message
    if images := [image for message in run for image in message.get("images") or ()]:
        joined["images"] = images
    contents = [content for message in run if (content := message.get("content"))]
    if any(isinstance(content, list) for content in contents):  # pictures are parts of it
        return joined | {"content": [part for content in contents for part in _parts(content)]}
    return joined | {"content": "\n\n".join(contents)}


def _parts(content: str | list[Json]) -> list[Json]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _is_empty(message: Json) -> bool:
    return message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls")


def arguments_of(call: Json) -> dict[str, Any]:
    """The arguments of an OpenAI-form call as an object; `{}` when the text is not one."""
    try:
        value = orjson.loads(call["function"]["arguments"] or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
