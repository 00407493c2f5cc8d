"""Makes the settings for tasks of one project, from its entry in the list `projects` (`project_section.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.config.sections import Setup

if TYPE_CHECKING:
    from agent.config.project_section import Project
    from agent.config.settings import Settings


def entry_of(section: object, name: str) -> Project | None:
    """The entry of a forge's section for the project with this name, None if it has no settings of its own."""
    entries = getattr(section, "projects", ())
    wanted = name.casefold()
    return next((one for one in entries if one.name.casefold() == wanted and one.has_settings()), None)


def for_project(settings: Settings, section: object, name: str) -> Settings:
    """The settings for tasks of one project of a forge's section: those of its entry in `projects`, else `settings`.

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
