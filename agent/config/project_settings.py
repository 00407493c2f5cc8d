"""Makes the settings for tasks of one project, from its entry in the list `projects` (`project_section.py`).

The labels of a project are not part of the settings for its tasks, since a forge is polled by labels:
`sections_by_labels` makes a section, and so an adapter, for each set of labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from agent.config.forge_sections import Host
from agent.config.sections import Setup

if TYPE_CHECKING:
    from agent.config.project_section import Project
    from agent.config.settings import Settings

S = TypeVar("S", bound=Host)


def entry_of(section: object, name: str) -> Project | None:
    """The entry of the project with the name `name` in a forge's section, None if the project has no settings of its
    own."""
    entries = getattr(section, "projects", ())
    wanted = name.casefold()
    return next((one for one in entries if one.name.casefold() == wanted and one.has_settings()), None)


def sections_by_labels(section: S) -> tuple[S, ...]:
    """The section of a forge divided into parts, so that all projects of a part have the same labels; only `section`
    itself if no project has labels of its own. If some projects have no labels of their own, their part is the first
    one."""
    parts: dict[tuple[tuple[str, str], ...], list[Project]] = {(): []}
    for entry in section.projects:
        given = entry.labels.given() if entry.labels is not None else {}
        parts.setdefault(tuple(sorted(given.items())), []).append(entry)
    if len(parts) == 1:
        return (section,)
    made = [section.model_copy(update=dict(labels) | {"projects": tuple(one)}) for labels, one in parts.items() if one]
    for part in made:
        part._whole = section  # noqa: SLF001 - `_whole` is private to the package `config`
    return tuple(made)


def labels_key(section: Host, source: str) -> str:
    """The key of the configuration below which the labels of a section are, for messages."""
    if section._whole is None or section.projects[0].labels is None:  # noqa: SLF001 - `_whole` is private to `config`
        return source
    return f"{source}.projects, {', '.join(section.project_names)}: labels"


def for_project(settings: Settings, section: object, name: str) -> Settings:
    """The settings for tasks of one project of a forge's section: with the values of its entry in `projects`, else
    `settings` itself.

    The origin of a replaced key is the origin of the list `projects`, so that a command in an entry is checked like the
    other commands of the same configuration file.
    """
    entry = entry_of(section, name)
    if entry is None:
        return settings
    update: dict[str, Any] = {}
    keys: list[str] = []
    workspace: dict[str, Any] = {}
    if entry.verify is not None:
        update["verify"] = entry.verify
        keys += ["verify.command", "verify.timeout"]
    if entry.setup is not None:
        workspace["setup"] = entry.setup
        keys += [f"workspace.setup.{key}" for key in Setup.model_fields]
    if entry.base is not None:
        workspace["base"] = entry.base
        keys.append("workspace.base")
    if workspace:
        update["workspace"] = settings.workspace.model_copy(update=workspace)
    if entry.limits is not None:
        given = entry.limits.model_dump(exclude_none=True)
        update["limits"] = settings.limits.model_copy(update=given)
        keys += [f"limits.{key}" for key in given]
    return settings.replaced(update, dict.fromkeys(keys, settings.origin_of_projects(section)))
