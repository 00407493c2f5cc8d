"""Describes for `doctor` whether the account of a token counts as the agent's own or as a person's."""

from __future__ import annotations

from typing import Any, Protocol


class _Places(Protocol):
    allowed: frozenset[str]  # the names in `allowed_users` of the section, in lower case

    def is_person(self) -> bool: ...


class _Forge(Protocol):
    source: str
    instance: str
    section: Any

    @property
    def places(self) -> _Places: ...


def account_in_words(forge: _Forge, name: str) -> str:
    """A sentence about the account `name` of the token of `forge`, for `doctor`."""
    if not forge.places.is_person():
        return (
            f"{forge.instance}: the token's account {name} is the agent's own: nothing that it does counts as a "
            f"person's"
        )
    section = forge.source
    given = (
        f"; what others assign to {name} starts a task, which {section}.start.assignee: false switches off"
        if forge.section.start.assignee
        else ""
    )
    return (
        f"{forge.instance}: the token's account {name} counts as a person's: comments with the sign of this program "
        f"are the program's, everything else of {name} is that person's{given}. If nobody works as {name}, set "
        f"{section}.bot_name to {name}"
    )


def agents_accounts(forge: _Forge, name: str) -> tuple[str, ...]:
    """(`name`,) if the token's account `name` counts as the agent's own and not as a person's, and is not in
    `allowed_users`; else ()."""
    return () if forge.places.is_person() or name.casefold() in forge.places.allowed else (name,)
