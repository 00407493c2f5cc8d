"""Adapts the messages of a request to strict chat templates, one message at a time.

In a list that is adapted with `merge`, the first message after the system message (if any) is a user message, and no
two consecutive messages have the same role, except for tool results. Many chat templates of local models, and
Anthropic's API, require this order of roles (docs/wire.md, "The request"). Messages are adapted only in the request;
the stored files stay unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agent.llm.request_lines import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.message_list_check import Shape
    from agent.values import Json, Span

    Change = Callable[[Iterable[Json]], Iterable[Json]]

GO_ON = "Continue with the task."
UNDERSTOOD = "Understood."


def parsed(spans: Sequence[Span]) -> Iterator[Json]:
    """Decode the message lines in the spans, one at a time."""
    for line in lines(spans):
        yield orjson.loads(line)


def system_text(spans: Sequence[Span], shape: Shape) -> str:
    """The text of the system message, which is the first message of the list; "" if the list has none."""
    return str(next(parsed(spans))["content"]) if shape.system else ""


def normalized(
    spans: Sequence[Span],
    shape: Shape,
    *,
    merge: bool = True,
    alternate: bool = False,
    change: Change | None = None,
) -> Iterator[Json]:
    """The adapted messages of a request; the system message, if there is one, comes first and only `change` applies to
    it.

    With `merge` a user message is inserted if the list does not begin with one (after the system message), and
    consecutive messages of the same role are joined, except for tool results. With `merge` and `alternate` an assistant
    message is inserted between a tool result and a user message, for chat templates that require alternating roles.
    `change` is applied to all messages first.
    """
    messages = iter(parsed(spans) if change is None else change(parsed(spans)))
    if shape.system:
        yield next(messages)
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
    run: list[Json] = []  # consecutive messages that have the same role
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
    """Join several messages of the same role into one message; all are joined at once, since joining them one by one
    would copy the growing text each time."""
    if len(run) == 1:
        return run[0]
    joined: Json = {}
    for message in run:
        joined |= message
    if images := [image for message in run for image in message.get("images") or ()]:
        joined["images"] = images
    contents = [content for message in run if (content := message.get("content"))]
    # the content of a message with pictures may be a list of parts; then the joined content is a list too
    if any(isinstance(content, list) for content in contents):
        return joined | {"content": [part for content in contents for part in _parts(content)]}
    return joined | {"content": "\n\n".join(contents)}


def _parts(content: str | list[Json]) -> list[Json]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def arguments_of(call: Json) -> dict[str, Any]:
    """Decode the arguments of a tool call in OpenAI's form; `{}` when their text is not a JSON object."""
    try:
        value = orjson.loads(call["function"]["arguments"] or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
