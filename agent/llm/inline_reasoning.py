"""Separates reasoning that a server left in the text of an answer from the rest of the answer.

An opening tag counts only at the beginning of an answer, so an answer that describes reasoning tags later in its text
is not changed. In an answer without an opening tag, a closing tag on a line of its own counts if it is not in a block
of code.
"""

from __future__ import annotations

import re

_OPENED = re.compile(
    r"\s*(?:<(?P<tag>(?:[\w.-]+:)?(?:think|thinking|thoughts?|reasoning))>|\[(?P<word>THINK|THINKING|REASONING)\]"
    r"|<\|(?P<token>(?:begin_of_|start_)?(?:thought|think|thinking|reasoning))\|>|\u25c1think\u25b7)",
    re.IGNORECASE,
)
"""Matches the beginning of reasoning: `<think>` and similar tags (DeepSeek, Qwen, Seed), `[THINK]` (Mistral),
`<|begin_of_thought|>`, and the token of Kimi-VL."""
_ALONE = re.compile(
    r"(?:\A|\n)[ \t]*(?:</think(?:ing)?>|\[/THINK\])[ \t]*(?:\n|\Z)|\A\s*(?:</think(?:ing)?>|\[/THINK\])"
)
"""Matches the end of reasoning that has no opening tag in the answer, since the chat template has written the opening
tag into the prompt: a closing tag on a line of its own, or at the beginning of the text."""
_TOKEN = re.compile(r"<\|(start|end|channel|message|return|call|constrain)\|>")
_ADDRESS = re.compile(r"\bto=[\w.-]+")
_FENCE = "```"


def split_thoughts(text: str) -> tuple[str, str]:
    """Split the text of an answer: (the answer, the reasoning that precedes it).  A text without reasoning is returned
    unchanged."""
    if "<" not in text and "[" not in text and "\u25c1" not in text:
        return text, ""
    if re.match(r"\s*(?:<\|start\|>\s*assistant)?<\|channel\|>", text):
        return _channels(text)
    thoughts: list[str] = []
    end = 0
    while (opened := _OPENED.match(text, end)) is not None:
        inner, end = _up_to_close(text, opened)
        thoughts.append(inner.strip())
    if not thoughts and (alone := _ALONE.search(text)) and text.count(_FENCE, 0, alone.start()) % 2 == 0:
        return text[alone.end() :].lstrip(), text[: alone.start()].strip()
    return (text[end:].lstrip() if thoughts else text), "\n".join(thoughts)


def _up_to_close(text: str, opened: re.Match[str]) -> tuple[str, int]:
    """Find the closing tag for the opening tag `opened`: (the reasoning between the tags, the position after the
    closing tag); without a closing tag all remaining text is reasoning."""
    tag, word, token = (opened[name] for name in ("tag", "word", "token"))
    if tag:
        close = rf"</{re.escape(tag)}>"
    elif word:
        close = rf"\[/{word}\]"
    elif token:
        close = rf"<\|(?:end_of_|end_)?/?{re.sub(r'^(?:begin_of_|start_)', '', token, flags=re.IGNORECASE)}\|>"
    else:
        close = "\u25c1/think\u25b7"
    found = re.compile(close, re.IGNORECASE).search(text, opened.end())
    if found is None:
        return text[opened.end() :], len(text)
    return text[opened.end() : found.start()], found.end()


def _channels(text: str) -> tuple[str, str]:
    """Split a text in OpenAI's harmony format: text on the channel `analysis` is reasoning, text on any other channel
    is the answer.

    The header of a tool call stays in the answer, for the parser of tool calls (`text_call_formats.py`).
    """
    said: list[str] = []
    thought: list[str] = []
    channel = before = ""
    pieces = _TOKEN.split(text)  # text and the names of special tokens (`start`, `end`) in turn
    for number in range(0, len(pieces), 2):
        piece = pieces[number]
        mark, before = before, pieces[number + 1] if number + 1 < len(pieces) else ""
        if mark in ("start", "channel") and (to := _ADDRESS.search(piece)):
            said.append(f"<|channel|>{to[0]}<|message|>")
        if mark == "channel":
            channel, _, piece = piece.strip().partition(" ")
            channel = "call" if _ADDRESS.search(piece) else channel
        elif mark in ("end", "return", "call"):
            channel = ""
        if mark in ("start", "constrain") or (mark == "channel" and before in ("message", "constrain")):
            continue  # this piece of the text belongs to a header and is not text of the model
        (thought if channel == "analysis" else said).append(piece.strip())
    return "\n\n".join(part for part in said if part), "\n".join(part for part in thought if part)
