"""Compares the labels of the configuration with the labels that exist on a forge, to find misspelt labels.

The program ignores an issue if its label is spelt in another way than the configured label, and without this check
nobody would notice. The adapters read the labels; `misspelt_labels.py` compares them with the configured labels and
writes the sentences for the operator.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from agent.config.forge_sections import Start
from agent.forge.base import LABEL_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from agent.forge.base import Labels

CLOSE = 0.85
"""Minimum similarity (of difflib) at which a label counts as another spelling of a configured label."""

MOST_PROJECTS = 20
"""Maximum number of projects for which the adapters read the labels."""

NAMED = 3
"""Maximum number of projects that a sentence about a label names."""


def near(label: str, names: Iterable[str]) -> str:
    """The name in `names` that may be `label` in another spelling; "" if no name is similar."""
    return next((name for name in names if get_close_matches(name.casefold(), [label.casefold()], 1, CLOSE)), "")


def label_problems(
    section: str,
    labels: Labels,
    there: Mapping[str, Collection[str]],
    fold: Callable[[str], str],
    start: Start | None = None,
) -> Iterator[str]:
    """Sentences about configured labels that no project has, or that projects have in another spelling.

    `there` maps the name of a project to the names of its labels. `fold` maps all spellings that the forge treats as
    the same label to one text. A configured label that a project lacks is reported if the project has a label of
    similar spelling. Without a label of similar spelling only the bot label is reported, if no project has it: people
    set the bot label, and the program creates the other labels itself. `start`: the ways to ask for a task; if labels
    are not among them, the bot label is not reported.
    """
    start = start or Start()
    ours = {fold(name) for name in labels.names()}
    folded = {project: {fold(name) for name in names} for project, names in there.items()}
    for state in LABEL_STATES:
        if not (label := labels.name(state)) or (state == "queued" and not start.label):
            continue
        key = f"{section}.{'bot' if state == 'queued' else state}_label"
        lacking = [project for project, names in folded.items() if fold(label) not in names]
        others = {project: near(label, (one for one in there[project] if fold(one) not in ours)) for project in lacking}
        similar = {project: name for project, name in others.items() if name}
        if similar:
            described = _describe_similar(similar)
            yield f"{key} is `{label}`, and {described}: set the key to that, or rename the label there"
        elif state == "queued" and there and len(lacking) == len(there):
            rest = "only an assignment to the account starts a task" if start.assignee else "no label starts a task"
            yield (
                f"{key} is `{label}`, a label that {_projects(lacking)} {'has' if len(lacking) == 1 else 'have'} not: "
                f"make it there, or set the key to the label that people use; until then {rest}"
            )


def _describe_similar(similar: Mapping[str, str]) -> str:
    names = list(dict.fromkeys(similar.values()))
    have = f"{_projects(list(similar))} {'has' if len(similar) == 1 else 'have'}"
    return f"{have} {' and '.join(f'`{name}`' for name in names[:NAMED])} instead"


def _projects(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
