"""Defines the section `policy`: files that only a person may change, and files that a person must review, in addition
to the built-in rules."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from agent.config.base import Section
from agent.config.value_kinds import Allowed, Text
from agent.errors import ToolError
from agent.globs import matcher


def _pattern(value: str) -> str:
    """Check that a pattern of the section `policy` can match the path of a file in a repository."""
    try:
        matcher(value)
    except ToolError as error:
        raise ValueError(str(error)) from None
    if value.startswith(("!", "~")) or ".." in value.split("/") or not value.strip("/."):
        raise ValueError("it fits no file of a repository; take out `!`, `~` and `..`")
    if any(ord(sign) < 0x20 or sign in "\\\x7f" for sign in value):
        raise ValueError("it holds a backslash or a control character; write `/` between folders")
    return value


Pattern = Annotated[
    Text, AfterValidator(_pattern), Allowed("a pattern of paths like `infra/**`, `/Makefile` or `*.tf`")
]


class Policy(Section):
    """Rules for the files of a change, in addition to the built-in rules."""

    refuse: tuple[Pattern, ...] = Field(
        default=(),
        description="Files that only a person may change, beside those that the program knows. A change with one is "
        "not pushed, and the model gets the reason. A name or pattern without `/` counts in every folder, "
        "any other from the root. A folder counts with all files in it. Upper and lower case count as "
        "equal.",
    )
    look: tuple[Pattern, ...] = Field(
        default=(),
        description="Files that a person must look at: a change with one is pushed, and the pull request names it. A "
        "file that the program would refuse is then only shown. Files of `policy.refuse`, paths that git "
        "takes for `.git`, and unsafe paths are still refused. One refused file keeps the whole change "
        "from being pushed.",
    )
