"""Adds the trailer `Signed-off-by` to a commit message."""

from __future__ import annotations

import re

from agent.values import Public

_TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S")


def signed_off(message: Public, author: tuple[str, str]) -> Public:
    """`message` with the trailer of the Developer Certificate of Origin at its end: as a further line of the trailers
    that `message` already has, or else as a new paragraph. `author` is (name, mail address)."""
    last = message.rstrip().rpartition("\n\n")[2].splitlines()
    among = len(message.split("\n\n")) > 1 and all(_TRAILER.match(line) for line in last)
    return Public(f"{message.rstrip()}{chr(10) if among else chr(10) * 2}Signed-off-by: {author[0]} <{author[1]}>\n")
