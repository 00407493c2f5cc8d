"""Says what the account of a token counts as, for `doctor`."""

from __future__ import annotations


def account_in_words(instance: str, name: str, section: str, *, is_person: bool, by_assignment: bool) -> str:
    """A sentence about the account `name` of the token of the section `section`.  `is_person`: what the account writes
    without a sign of this program counts as a person's.  `by_assignment`: an assignment starts a
    task."""
    if not is_person:
        return f"{instance}: the token's account {name} is the agent's own: nothing that it does counts as a person's"
    given = (
        f"; what others assign to {name} starts a task, which {section}.start.assignee: false switches off"
        if by_assignment
        else ""
    )
    return (
        f"{instance}: the token's account {name} counts as a person's: comments with the sign of this program are the "
        f"program's, everything else of {name} is that person's{given}. If nobody works as {name}, set "
        f"{section}.bot_name to {name}"
    )
