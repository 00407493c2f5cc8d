"""Defines the sections `github`, `gitlab`, `forgejo` and `local`: the sources of tasks, and the labels that people see.

`forge_sections.py` only defines keys of config.yaml, as `sections.py` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PrivateAttr, model_validator

from agent.config.base import Section
from agent.config.project_section import Project  # noqa: TC001 - pydantic needs this import at run time
from agent.config.value_kinds import RootPath, Secret, Size, Text, Url, Whole  # noqa: TC001 - pydantic needs this import at run time

if TYPE_CHECKING:
    from collections.abc import Mapping


class Labels(Section):
    """The names of the labels of an issue: a person sets one to start a task, the program sets the others to show the
    task's state.

    `longest_label`: maximum characters of a label's name; 255 on GitLab (app/models/label.rb) and Forgejo.
    `not_in_label`: characters that no name may have.
    """

    longest_label: ClassVar[int] = 255
    not_in_label: ClassVar[str] = ""

    bot_label: Text = Field(
        default="coding agent", description="A person sets this label to give the issue to the agent."
    )
    processing_label: Text = Field(default="coding agent processing", description="The task is queued or running.")
    done_label: Text = Field(default="coding agent done", description="The task has finished.")
    paused_label: Text = Field(
        default="coding agent paused", description="The task waits for an answer, or a person has paused it."
    )
    stopped_label: Text = Field(default="coding agent stopped", description="A person has stopped the task.")
    failed_label: Text = Field(default="coding agent failed", description="The task has failed.")

    @model_validator(mode="after")
    def _labels_differ(self) -> Labels:
        own = {name: getattr(self, name) for name in type(self).model_fields if name.endswith("_label")}
        self._check_labels(own, "")
        entries: tuple[Project, ...] = getattr(self, "projects", ())
        for entry in entries:
            if entry.labels is not None:
                self._check_labels(own | entry.labels.given(), f"projects, {entry.name}: ")
        return self

    def _check_labels(self, labels: Mapping[str, str], where: str) -> None:
        """Refuse labels that the host does not take, and labels of which two have the same name, in any spelling;
        `where` is the beginning of the error message."""
        seen: dict[str, str] = {}
        for name, label in labels.items():
            if (other := seen.setdefault(label.casefold(), name)) != name:
                raise ValueError(f"{where}{other} and {name} are the same label {label!r}; they must differ")
            if len(label) > self.longest_label:
                raise ValueError(f"{where}{name} has {len(label)} characters; the host takes {self.longest_label}")
            if bad := next((one for one in self.not_in_label if one in label), ""):
                raise ValueError(f"{where}{name} has {bad!r}, which the host takes in no label")


class Start(Section):
    """The acts that ask for a task, when a person with permission does them."""

    label: bool = Field(default=True, description="The label `bot_label` starts a task.")
    assignee: bool = Field(
        default=True,
        description="An assignment to the account by somebody else starts a task; after the end of a task only a new "
        "assignment does.",
    )
    mention: bool = Field(
        default=False,
        description="A mention of the account, or /makimono and a text, starts a task on an open issue or pull request "
        "without one. Costs requests at each poll (docs/forges.md, What it asks of the host).",
    )
    review: bool = Field(
        default=True,
        description="A review of a task's pull request that requests changes, by a person who asked for the task, "
        "starts a task that goes on from it.",
    )

    @model_validator(mode="after")
    def _something_starts(self) -> Start:
        if not (self.label or self.assignee or self.mention):
            raise ValueError(
                "label, assignee and mention are all false, so nothing would start a task; set one to true"
            )
        return self


class Host(Section):
    """The configuration keys that GitHub, GitLab and Forgejo hosts share.

    `_whole` is the section of the configuration of which this section is a part
    (`project_settings.sections_by_labels`), None if this section is whole.
    """

    base_url: Url | None = Field(default=None, description="Address of the host, with port and sub-path.")
    token: Secret | None = Field(default=None, description="Access token.")
    ca_file: RootPath | None = Field(default=None, description="Certificates to trust besides the system's (PEM).")
    owner: Text | None = Field(default=None, description="Only projects of this user, organisation or group.")
    projects: tuple[Project, ...] = Field(
        default=(),
        description="Only these projects; empty: all that are found. Each is owner/name, or a mapping of its name and "
        "of settings of its own, as {name: acme/web, verify: {command: make test}} (docs/forges.md, Settings of single "
        "projects).",
    )
    bot_name: Text | None = Field(
        default=None,
        description="Account of the agent, used by no person (docs/forges.md, Your own token); empty: the token's.",
    )
    allowed_users: tuple[Text, ...] = Field(
        default=(), description="People who may request work; empty: everybody who may write to the project."
    )

    start: Start = Field(
        default_factory=Start,
        description="What asks for a task, beside /retry and red CI (docs/forges.md, What starts a task).",
    )

    _whole: Host | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _mentions_need_projects(self) -> Host:
        if self.start.mention and not self.projects:
            raise ValueError("start.mention needs projects: the issues of each project are listed for it")
        return self

    @property
    def project_names(self) -> tuple[str, ...]:
        """The names (on GitLab also numbers) of the repositories in the key `projects`."""
        return tuple(one.name for one in self.projects)


class SearchHost(Host):
    """A host of which the configuration can add terms to the search for issues (`query`)."""

    query: Text | None = Field(default=None, description="More terms for the search of issues.")


class GitHubApp(Section):
    """The configuration keys of a GitHub App, which authenticates instead of a token."""

    id: Whole = Field(ge=1, description="Number of the app.")
    private_key: Secret | None = Field(default=None, description="Private key (PEM text).")
    private_key_file: RootPath | None = Field(default=None, description="File of the private key.")
    installation_id: Whole | None = Field(
        default=None, ge=1, description="Installation; empty: looked up for the owner."
    )

    @model_validator(mode="after")
    def _one_key(self) -> GitHubApp:
        if (self.private_key is None) == (self.private_key_file is None):
            raise ValueError("needs either private_key or private_key_file")
        return self


class GitHub(Labels, SearchHost):
    """The configuration of a GitHub host; a label has at most 50 characters there:
    https://github.com/github/docs/issues/32156."""

    longest_label: ClassVar[int] = 50
    base_url: Url = Field(default="https://api.github.com", description="Address of the API.")
    app: GitHubApp | None = Field(default=None, description="A GitHub App instead of a token.")
    max_file_size: Size | None = Field(
        default=100 << 20, description="Largest file that the host takes in a push; GitHub: 100M. Empty: not looked at."
    )


class GitLab(Labels, SearchHost):
    """The configuration of a GitLab host; no label has a comma there."""

    not_in_label: ClassVar[str] = ","
    base_url: Url = Field(default="https://gitlab.com", description="Address of the host, with port and sub-path.")
    owner: Text | None = Field(default=None, description="Only projects below this group or user.")
    projects: tuple[Project, ...] = Field(
        default=(),
        description="Only these projects; empty: all that the account develops. Each is group/subgroup/name or a "
        "number, or a mapping of its name and of settings of its own, as {name: acme/web, verify: {command: make "
        "test}} (docs/forges.md, Settings of single projects).",
    )
    max_file_size: Size | None = Field(
        default=100 << 20,
        description="Largest file that the host takes in a push; GitLab: 100M unless its plan says more. Empty: not "
        "looked at.",
    )


class Forgejo(Labels, Host):
    """The configuration of a Forgejo or Gitea host; no label has a comma there, since such hosts separate labels by
    commas."""

    not_in_label: ClassVar[str] = ","
    owner: Text | None = Field(default=None, description="Only repositories of this user or organisation.")
    max_file_size: Size | None = Field(
        default=None, description="Largest file that the host takes in a push; empty: not looked at."
    )


class Tracker(Section):
    """The configuration of a local tracker, a folder of Markdown files."""

    tracker: RootPath = Field(
        default=Path("tracker"), description="Folder of issues/ and pulls/.", validate_default=True
    )
    repos: dict[Text, RootPath] = Field(
        default={"default": Path()},
        description="Repositories by name; an issue without `repo` means `default`.",
        validate_default=True,
    )
    bot_name: Text = Field(default="makimono", description="Author of the agent's comments.")
    max_file_size: Size | None = Field(
        default=100 << 20, description="Largest file that is committed; empty: not looked at."
    )


class Local(Labels, Tracker):
    """The configuration of the local tracker and of the repositories of its issues."""
