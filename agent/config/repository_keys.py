"""Defines the keys that the file `.makimono.yaml` of a repository may set, and checks the text of such a file.

`.makimono.yaml` is text from outside, which is not trusted. The file `.makimono.yaml` may set only what concerns tasks
of its own repository, or runs inside the sandbox anyway. docs/forges.md, "A repository's own file", lists the keys that
it may not set, with the reasons. A `${NAME}` in the file `.makimono.yaml` is not replaced, since the environment is
that of the operator. `worker/repository_settings.py` reads `.makimono.yaml`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from agent.config import validation_errors, yamlfile
from agent.config.base import Section
from agent.config.commits import BranchName  # noqa: TC001 - pydantic needs this import at run time
from agent.config.layers import Merged
from agent.config.repository_section import KEYS
from agent.config.sections import Setup, Verify
from agent.config.value_kinds import Allowed, Number, Text
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.config.settings import Settings

FILE = ".makimono.yaml"
MOST_BYTES = 64 << 10
MOST_INSTRUCTIONS = 8000

Instructions = Annotated[
    Text,
    StringConstraints(max_length=MOST_INSTRUCTIONS),
    Allowed(f"text of at most {MOST_INSTRUCTIONS} characters"),
]


class RepositorySetup(Section):
    """The keys of `setup` in the file `.makimono.yaml`: those of `workspace.setup`, without `network`."""

    command: Text = Field(description="Shell command that installs the repository's dependencies.")
    env: dict[Text, str] = Field(default={}, description="Environment variables of the command.")
    cache_key_files: tuple[Text, ...] = Field(default=(), description="Files that the command depends on.")
    timeout: Number = Field(default=1800, gt=0, le=7200, description="Seconds that the command may take.")


class RepositoryVerify(Section):
    """The keys of `verify` in the file `.makimono.yaml`: the command that checks the repository's commits."""

    command: Text = Field(description="Shell command that must end with 0 before work is shown as ready.")
    timeout: Number = Field(default=600, gt=0, le=7200, description="Seconds that the command may take.")


class RepositoryKeys(Section):
    """All keys of the file `.makimono.yaml`."""

    verify: RepositoryVerify | None = Field(default=None, description="In place of `verify`.")
    base: BranchName | None = Field(default=None, description="In place of `workspace.base`.")
    instructions: Instructions | None = Field(default=None, description="Rules for the model, beside AGENTS.md.")
    setup: RepositorySetup | None = Field(default=None, description="In place of `workspace.setup`.")


def parse_file(
    data: bytes, allow: tuple[str, ...], is_branch: Callable[[str], bool] = lambda _name: True
) -> RepositoryKeys:
    """Parse the text of a `.makimono.yaml`; returns its keys. `is_branch(name)` says whether the repository has a
    branch with that name.

    Raises ConfigError for an invalid `.makimono.yaml`; its text has the line, the key, the value found and the allowed
    values, unless the whole file is too large or is not UTF-8.
    """
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{FILE}: the file has {len(data)} bytes; allowed are {MOST_BYTES}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{FILE}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    values, lines = yamlfile.parse(text, FILE)
    places = {steps: f"{FILE}, line {line}" for steps, line in lines.items()}
    merged = Merged(data=values, places=places)
    for key in KEYS:
        if values.get(key) is not None and key not in allow:
            where = merged.place((key,))
            known = ", ".join(allow)
            raise ConfigError(f"{where}: {key} may not be set here (`repository_file.allow`); allowed are {known}")
    try:
        keys = RepositoryKeys.model_validate(values)
    except ValidationError as error:
        raise validation_errors.explain(error, merged, RepositoryKeys) from None
    if keys.base is not None and not is_branch(keys.base.removeprefix("refs/heads/")):
        raise ConfigError(
            f"{merged.place(('base',))}: base: found {keys.base!r}; allowed is a branch of the repository"
        )
    return keys


def with_file(settings: Settings, keys: RepositoryKeys) -> Settings:
    """`settings` with the values of `keys` (from the repository's `.makimono.yaml`), except for `instructions`. A
    section that the project's entry in `projects` sets stays as it is.
    """
    update: dict[str, Any] = {}
    workspace: dict[str, Any] = {}
    replaced: list[str] = []
    if keys.verify is not None and not settings.is_of_project("verify.command"):
        update["verify"] = Verify(command=keys.verify.command, timeout=keys.verify.timeout)
        replaced += ["verify.command", "verify.timeout"]
    if keys.setup is not None and not settings.is_of_project("workspace.setup.command"):
        found = keys.setup.model_dump()
        workspace["setup"] = Setup(**found, network=settings.repository_file.network)
        replaced += [f"workspace.setup.{key}" for key in Setup.model_fields]
    if keys.base is not None and not settings.is_of_project("workspace.base"):
        workspace["base"] = keys.base
        replaced.append("workspace.base")
    if workspace:
        update["workspace"] = settings.workspace.model_copy(update=workspace)
    return settings.replaced(update, dict.fromkeys(replaced, FILE)) if update else settings
