"""Defines the section of a single project: an entry of the list `projects` of a forge's section.

An entry of `projects` is the name of a project, or a mapping with the name and the keys that differ from the rest of
the configuration. `project_section.py` only defines keys of config.yaml, as `sections.py` does; `project_settings.py`
makes the settings of a task from such keys.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from agent.config.base import Section
from agent.config.commits import BranchName  # noqa: TC001 - pydantic needs this import at run time
from agent.config.sections import Limits, Setup, Verify
from agent.config.value_kinds import Number, Text, Whole  # noqa: TC001 - pydantic needs this import at run time

_LIMITS = Limits.model_fields


class ProjectLimits(Section):
    """The limits that a project may set for itself; a limit that is not set has the value of the section `limits`."""

    turns: Whole | None = Field(default=None, ge=1, description=_LIMITS["turns"].description)
    tokens: Whole | None = Field(default=None, ge=1, description=_LIMITS["tokens"].description)
    cost: Number | None = Field(default=None, gt=0, description=_LIMITS["cost"].description)
    wall_seconds: Number | None = Field(default=None, gt=0, description=_LIMITS["wall_seconds"].description)
    fix_rounds: Whole | None = Field(default=None, ge=0, le=20, description=_LIMITS["fix_rounds"].description)
    runs: Whole | None = Field(default=None, ge=1, description=_LIMITS["runs"].description)
    repository_cost: Number | None = Field(default=None, gt=0, description=_LIMITS["repository_cost"].description)


class ProjectLabels(Section):
    """The labels that a project may set for itself; a label that is not set is that of the forge's section."""

    bot_label: Text | None = Field(default=None, description="In place of `bot_label`.")
    processing_label: Text | None = Field(default=None, description="In place of `processing_label`.")
    done_label: Text | None = Field(default=None, description="In place of `done_label`.")
    paused_label: Text | None = Field(default=None, description="In place of `paused_label`.")
    stopped_label: Text | None = Field(default=None, description="In place of `stopped_label`.")
    failed_label: Text | None = Field(default=None, description="In place of `failed_label`.")

    def given(self) -> dict[str, str]:
        """The labels that the project sets, by their keys."""
        return {key: label for key in type(self).model_fields if (label := getattr(self, key)) is not None}


class Project(Section):
    """One project, with the keys that have another value for this project than in the rest of the configuration."""

    inline: ClassVar[bool] = True

    name: Text = Field(description="The project, as owner/name.")
    verify: Verify | None = Field(default=None, description="In place of `verify`.")
    setup: Setup | None = Field(default=None, description="In place of `workspace.setup`.")
    base: BranchName | None = Field(default=None, description="In place of `workspace.base`.")
    labels: ProjectLabels | None = Field(default=None, description="In place of single labels of the section.")
    limits: ProjectLimits | None = Field(default=None, description="In place of single `limits`.")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        """Convert a bare name into an entry of `projects`; YAML reads the number of a GitLab project as a number."""
        if isinstance(data, int) and not isinstance(data, bool):
            return {"name": str(data)}
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _has_a_path(self) -> Project:
        if self.has_settings() and "/" not in self.name:
            raise ValueError(f"{self.name} has settings; name it by its path, as group/subgroup/name")
        return self

    def has_settings(self) -> bool:
        """Whether the entry of the project has more than the name."""
        return any(getattr(self, key) is not None for key in type(self).model_fields if key != "name")

    def written_form(self) -> str | dict[str, Any]:
        """The entry of the project in the form in which people write it."""
        return self.model_dump(mode="json", exclude_none=True) if self.has_settings() else self.name

    def commands(self) -> list[str]:
        """The keys of the project's entry that name a command."""
        verifies = self.verify is not None and self.verify.command is not None
        return [*(["verify"] if verifies else []), *(["setup"] if self.setup is not None else [])]
