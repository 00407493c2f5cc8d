"""The validated configuration as one frozen value for all packages, with the origin of each key.

`settings.py` reads no configuration file: `loading.py` builds the settings from config.yaml, the environment and the
command line. The settings can be pickled for workers. Of the environment, the settings contain only the values that set
a key, the variables that `configured_window.py` uses, and the secrets that are to be masked.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from agent.config import (
    commits,
    configured_window,
    dashboard_section,
    forge_sections,
    key_tree,
    llm_section,
    long_term_memory,
    observe_section,
    path_policy,
    prompt_templates,
    repository_section,
    reviewer_section,
    sections,
    security_section,
    webhook_endpoint,
)
from agent.config.base import SOURCES, Section, section_in
from agent.config.mcp_servers import McpServer, ServerName  # noqa: TC001 - pydantic evaluates the annotations
from agent.config.url_passwords import MASK, is_telling, shown_command, without_passwords
from agent.config.value_kinds import OneOf, Text, size_text
from agent.plugin_guard import PluginGuard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOST_SLASH = re.compile(r"\b([a-z]{2,9}):/([^/].*)", re.DOTALL)
SHORTEST_SECRET = 8
"""A secret with fewer characters than SHORTEST_SECRET is not masked, since its mask would also hide ordinary text."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The configuration of one provider, ready to be used by a model client.

    `context_length` is the configured window in tokens (`configured_window.configured_window`), never None. `timeout`
    and `idle_timeout` are in seconds, `price` is per million tokens. `base_url` is the configured address of the
    provider, "" if none is configured, as for `replay`. `dialect` is "" if no dialect is configured. `messages` is the
    path of the recorded messages.jsonl of `replay`.
    """

    name: str
    model: str
    context_length: int
    max_output_tokens: int | None = None
    base_url: str = ""
    api_key: SecretStr | None = None
    timeout: float = 1800
    idle_timeout: float = 120
    api_key_header: str = ""
    headers: Mapping[str, SecretStr] = dataclasses.field(default_factory=dict)
    dialect: str = ""
    tool_calls: str = "auto"
    images: str = "auto"
    price: llm_section.Price | None = None
    messages: Path | None = None

    @property
    def wire(self) -> str:
        """The name of the provider's wire protocol, which is the name of the provider itself, but `openai` for LM
        Studio and a replay."""
        return {"lmstudio": "openai", "replay": "openai"}.get(self.name, self.name)


class Loaded:
    """The identity of one loaded configuration, which all copies of its settings share.

    The identity is the key of per-process data, so that all copies of the settings use the same data
    (`security/redact.py`).
    """


def _working_folder() -> Path:
    """The current folder. The name `Path` is looked up at each call, since a replacement of the file system (pyfakefs)
    replaces it."""
    return Path.cwd()


class Settings(Section):
    """The settings: all keys of config.yaml. `Settings()` has the defaults, with the current folder as root."""

    task_sources: tuple[Annotated[Text, OneOf(SOURCES, dotted=True)], ...] = Field(
        default=("local",), min_length=1, description="Where tasks come from."
    )
    context_storage: sections.ContextStorage = Field(
        default_factory=sections.ContextStorage, description="Where a task's state is stored, and when it is compacted."
    )
    assembler: sections.Assembler = Field(
        default_factory=sections.Assembler, description="How a request is put together."
    )
    llm: llm_section.LLM = Field(default_factory=llm_section.LLM, description="Which model works, and where.")
    github: tuple[forge_sections.GitHub, ...] = Field(
        default_factory=lambda: (forge_sections.GitHub(),), description="GitHub: one mapping, or a list of them."
    )
    gitlab: tuple[forge_sections.GitLab, ...] = Field(
        default_factory=lambda: (forge_sections.GitLab(),), description="GitLab: one mapping, or a list of them."
    )
    forgejo: tuple[forge_sections.Forgejo, ...] = Field(
        default_factory=lambda: (forge_sections.Forgejo(),),
        description="Forgejo or Gitea: one mapping, or a list of them.",
    )
    local: forge_sections.Local = Field(default_factory=forge_sections.Local, description="The local tracker.")
    scheduling: sections.Scheduling = Field(
        default_factory=sections.Scheduling, description="How often hosts are polled, and how many tasks run at a time."
    )
    observe: observe_section.Observe = Field(
        default_factory=observe_section.Observe, description="Where traces of tasks are sent."
    )
    poke: webhook_endpoint.Poke = Field(
        default_factory=webhook_endpoint.Poke, description="How a webhook makes the daemon poll at once."
    )
    repository_file: repository_section.RepositoryFile = Field(
        default_factory=repository_section.RepositoryFile,
        description="What the file `.makimono.yaml` of a repository may set.",
    )
    limits: sections.Limits = Field(default_factory=sections.Limits, description="When a task is ended.")
    ci: sections.Ci = Field(default_factory=sections.Ci, description="What follows when CI of a pull request is red.")
    workspace: sections.Workspace = Field(
        default_factory=sections.Workspace, description="How a work tree is made ready."
    )
    branch: commits.Branch = Field(default_factory=commits.Branch, description="How branches of the program are named.")
    commit: commits.Commit = Field(default_factory=commits.Commit, description="How commits are written and signed.")
    policy: path_policy.Policy = Field(
        default_factory=path_policy.Policy, description="Which files of a change a person must change, or look at."
    )
    verify: sections.Verify = Field(
        default_factory=sections.Verify, description="The automatic check of finished work."
    )
    sandbox: sections.Sandbox = Field(default_factory=sections.Sandbox, description="Where commands run.")
    taskqueue: sections.TaskQueue = Field(default_factory=sections.TaskQueue, description="Ledger and broker.")
    context_inheritance: sections.ContextInheritance = Field(
        default_factory=sections.ContextInheritance, description="What a later task takes over."
    )
    memory: long_term_memory.LongTermMemory = Field(
        default_factory=long_term_memory.LongTermMemory,
        description="Long-term memory: what a task knows of earlier ones.",
    )
    consensus: reviewer_section.Consensus = Field(
        default_factory=reviewer_section.Consensus, description="The reviewers that vote on a change or a question."
    )
    mcp_servers: dict[ServerName, McpServer] = Field(
        default={}, description="Servers of the Model Context Protocol, by name; the model gets their tools."
    )
    security: security_section.Security = Field(
        default_factory=security_section.Security, description="How texts from outside are treated."
    )
    prompts: prompt_templates.Prompts = Field(
        default_factory=prompt_templates.Prompts,
        description="Templates of your own that replace the program's.",
    )
    dashboard: dashboard_section.Dashboard = Field(
        default_factory=dashboard_section.Dashboard, description="The page of the command `dashboard`."
    )

    _root: Path = PrivateAttr(default_factory=_working_folder)
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _variables: dict[str, str] = PrivateAttr(default_factory=dict)
    _hidden: tuple[str, ...] = PrivateAttr(default=())
    _of_project: frozenset[str] = PrivateAttr(default=frozenset())
    _files: dict[str, str] = PrivateAttr(default_factory=dict)
    _loaded: Loaded = PrivateAttr(default_factory=Loaded)

    @field_validator("task_sources")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for name in value if value.count(name) > 1), None)
        if twice:
            raise ValueError(f"{twice} stands in the list twice; keep one")
        return value

    @field_validator("mcp_servers", mode="before")
    @classmethod
    def _no_servers(cls, value: Any) -> Any:
        return {} if value in (None, [], ()) else value

    @classmethod
    def build(
        cls,
        data: Mapping[str, Any],
        *,
        root: Path,
        origins: Mapping[str, str],
        variables: Mapping[str, str],
        hidden: tuple[str, ...] = (),
        files: Mapping[str, str] | None = None,
    ) -> Settings:
        """Build settings from merged and expanded data; raises pydantic's ValidationError for a fault (see
        `validation_errors.py`).

        `files` says which configuration files other users may write (`plugin_guard.PluginGuard`)."""
        whole: dict[str, Any] = {
            name: {}
            for name, field in cls.model_fields.items()
            if section_in(field.annotation) and not key_tree.is_many(field) and not key_tree.is_named(field)
        }
        settings = cls.model_validate(
            whole | {name: value for name, value in data.items() if value is not None or name not in whole},
            context={"root": root},
        )
        settings._remember(root, origins, variables, hidden)  # noqa: SLF001 - a private method of this class
        settings._files = dict(files or {})  # noqa: SLF001 - as above
        return settings

    def _remember(
        self, root: Path, origins: Mapping[str, str], variables: Mapping[str, str], hidden: tuple[str, ...]
    ) -> None:
        self._root = root
        self._variables = dict(variables)
        self._hidden = hidden
        self._origins = dict(origins)  # keys that have their default are missing in `origins`

    __hash__ = None  # type: ignore[assignment]  # `Settings` is unhashable, since its sections contain mappings

    def __eq__(self, other: object) -> bool:
        """Whether all keys of two configurations have equal values; the origins of the keys are not compared."""
        return isinstance(other, Settings) and self.__dict__ == other.__dict__

    # --- paths and origins -----------------------------------------------------------------------------------

    @property
    def loaded(self) -> Loaded:
        """The identity that these settings share with all their copies."""
        return self._loaded

    @property
    def root(self) -> Path:
        """The folder of config.yaml; the current folder if there is no config.yaml and the caller has named no other
        folder."""
        return self._root

    @property
    def base_dir(self) -> Path:
        """The value of `context_storage.base_dir` as an absolute path."""
        return self._root / self.context_storage.base_dir

    @property
    def plugin_guard(self) -> PluginGuard:
        """The guard of plug-ins and commands, with `plugins.lock` in the folder of config.yaml."""
        return PluginGuard(self._root, self._files)

    @property
    def origins(self) -> Mapping[str, str]:
        """Dotted key → `default`, the name of a file, `environment NAME` or `command line`.

        The dotted key of a forge's token is `github.0.token` if the section `github` has several hosts, else
        `github.token`. Each access to `origins` walks over all keys; `origin` gives the origin of a single key.
        """
        return {key: self.origin(key) for key, _, _ in self.values()}

    def origin(self, key: str) -> str:
        """The origin of one dotted key, as in `origins`; `default` for a key that nothing sets."""
        return self._origins.get(key, "default")

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables for window sizes, as they were when the settings were loaded."""
        return self._variables

    @property
    def remembers(self) -> bool:
        """Whether long-term memories are extracted from ended tasks; the extraction needs the tasks' folders."""
        return self.memory.enabled and self.context_storage.enabled

    def setup_hosts(self, section: sections.Setup) -> tuple[str, ...]:
        """Allow-list entries of the hosts that a set-up command may reach: those of `section.network`, then those of
        `sandbox.network`."""
        return tuple(dict.fromkeys((*section.network, *self.sandbox.network)))

    def origin_of_projects(self, section: object) -> str:
        """The origin of the list `projects` of a forge's section. `section` is the forge's section, or a
        part of it (`project_settings.sections_by_labels`)."""
        section = getattr(section, "_whole", None) or section
        for name in SOURCES:
            entries = getattr(self, name) if isinstance(getattr(self, name), tuple) else ()
            for number, one in enumerate(entries):
                if one is section or one == section:
                    key = f"{name}.{number}.projects" if len(entries) > 1 else f"{name}.projects"
                    return self.origin(key)
        return "default"

    def is_of_project(self, key: str) -> bool:
        """Whether the value of a key comes from a single project's entry (`config/project_settings.py`), or from the
        file `.makimono.yaml` of its repository (`config/repository_keys.py`)."""
        return key in self._of_project

    def replaced(self, sections: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
        """A copy with `sections` in place of those with the same names. `origins` maps each replaced key to its origin;
        the copy's `is_of_project` returns True for these keys."""
        made = self.model_copy(update=dict(sections))
        made._origins = {**self._origins, **origins}  # noqa: SLF001 - a private attribute of this class
        made._of_project = self._of_project | frozenset(origins)  # noqa: SLF001 - as above
        return made

    # --- models ----------------------------------------------------------------------------------------------

    def provider(self) -> ProviderSettings:
        """The configured provider of models."""
        return self.provider_of(self.llm.provider)

    def provider_of(self, name: str) -> ProviderSettings:
        """The provider with this name; if the name is a dotted path, the provider of the section `llm.plugin`.  Raises
        ConfigError for an unknown name."""
        section = self.llm.provider_section(name)
        tokens, _ = configured_window.configured_window(self, name)
        if isinstance(section, llm_section.Replay):
            return ProviderSettings(
                name=name,
                model=section.model,
                context_length=tokens,
                max_output_tokens=section.max_output_tokens,
                price=section.price,
                messages=section.messages,
            )
        return ProviderSettings(
            name=name,
            model=section.model,
            context_length=tokens,
            max_output_tokens=section.max_output_tokens,
            base_url=section.base_url or "",
            api_key=section.api_key,
            timeout=section.timeout,
            idle_timeout=section.idle_timeout,
            api_key_header=section.api_key_header or "",
            headers=section.headers,
            dialect=section.dialect or "",
            tool_calls=section.tool_calls,
            images=section.images,
            price=section.price,
        )

    # --- secrets and display ---------------------------------------------------------------------------------

    def secrets(self) -> tuple[str, ...]:
        """Every declared secret of at least 8 characters, the longest first.

        The declared secrets are the values of secret keys, passwords in addresses, and the secrets in the environment
        (`environment.hidden_values`), even if config.yaml sets another value.
        """
        found = set(self._hidden)
        for _, value in _held(self):
            if isinstance(value, SecretStr):
                found.add(value.get_secret_value())
                # A command may print a PEM key line by line; its first and last line are not secret.
                found.update(line for line in value.get_secret_value().splitlines() if not line.startswith("-----"))
            elif isinstance(value, dict):
                # The value of a header can be a scheme and a key (`Bearer …`), and the key may appear without the
                # scheme.
                texts = [one.get_secret_value() for one in value.values() if isinstance(one, SecretStr)]
                found.update(texts, (word for text in texts for word in text.split()))
                # An address in `local.repos` is stored as a path, which removes a slash (`https:/user:password@host`).
                paths = [_LOST_SLASH.search(str(one)) for one in value.values() if isinstance(one, Path)]
                found.update(one for path in paths if path for one in passwords_in(f"{path[1]}://{path[2]}"))
            elif isinstance(value, str):
                found.update(passwords_in(value))
        return tuple(sorted((one for one in found if len(one) >= SHORTEST_SECRET), key=lambda one: (-len(one), one)))

    def show(self) -> list[tuple[str, str, str]]:
        """(key, value as text with secrets masked, origin) for every key, in the order of the documentation."""
        secrets = self.secrets()
        rows = []
        for key, value, is_size in self.values():
            text = value_text(value, is_size=is_size)
            for secret in secrets:
                text = text.replace(secret, MASK)
            text = without_passwords(text)
            if key.endswith((".command", ".args")):
                text = shown_command(text)
            rows.append((key, text, self.origin(key)))
        return rows

    def paths(self) -> list[tuple[str, Path]]:
        """(key, path) for every key of which the value is a path on this machine, and for every entry of `local.repos`;
        lists of paths are left out."""
        single = [(".".join(path), value) for path, value in _held(self) if isinstance(value, Path)]
        return [*single, *((f"local.repos.{name}", path) for name, path in self.local.repos.items())]

    def values(self) -> Iterator[tuple[str, Any, bool]]:
        """(dotted key, value, whether the value is a size in bytes) for every key, also for a key with the value
        None."""
        yield from _walk(self, ())


def passwords_in(address: str) -> list[str]:
    """The secrets in an address, both as they are written and in decoded form.

    Secrets in an address are the password in amqp://user:password@host, and query values with a secret's name (`?key=`,
    `?access_token=`).
    """
    if "://" not in address or ("@" not in address and "?" not in address):
        return []
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return []
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    found = [password, *(value for name, _, value in pairs if is_telling(name))]
    return [form for secret in found if secret for form in (secret, unquote(secret))]


def value_text(value: Any, *, is_size: bool = False) -> str:
    """One configuration value as one line of text; a secret as a mask, None and an empty secret as ""."""
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, dict):
        value = {key: value_text(one) if isinstance(one, SecretStr) else one for key, one in value.items()}
        value = {key: MASK if isinstance(one, str) and one and is_telling(key) else one for key, one in value.items()}
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_size:
        return size_text(value)
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).replace("\n", "\\n")


def _held(section: Section, path: key_tree.Path = ()) -> Iterator[tuple[key_tree.Path, Any]]:
    """(path, value) of every value below a section, except that lists of plain values are left out.

    The walk over the values does not use the field definitions, because every worker needs the secrets and the paths,
    and the definitions need much memory.
    """
    for name, value in section.__dict__.items():
        inner = (*path, name)
        if isinstance(value, Section):
            yield from _held(value, inner)
        elif isinstance(value, tuple):
            for number, entry in enumerate(value):
                if isinstance(entry, Section):
                    yield from _held(entry, (*inner, str(number)) if len(value) > 1 else inner)
        elif isinstance(value, dict) and any(isinstance(entry, Section) for entry in value.values()):
            for key, entry in value.items():
                yield from _held(entry, (*inner, str(key)))
        else:
            yield inner, value


def _walk(section: Section, path: key_tree.Path) -> Iterator[tuple[str, Any, bool]]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        inner = (*path, name)
        if isinstance(value, Section):
            yield from _walk(value, inner)
        elif key_tree.is_inline(field):
            yield ".".join(inner), tuple(entry.written_form() for entry in value), False
        elif key_tree.is_many(field):
            for number, entry in enumerate(value):
                yield from _walk(entry, (*inner, str(number)) if len(value) > 1 else inner)
        elif key_tree.is_named(field) and value:
            for key, entry in value.items():
                yield from _walk(entry, (*inner, key))
        else:
            yield ".".join(inner), value, key_tree.is_size(field)
