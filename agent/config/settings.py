"""The validated configuration: one frozen value that every room gets, with where each key came from.

Not a reader: `loading.py` builds it from config.yaml, the environment and the command line.  It pickles (workers
get it) and carries the few variables of the environment that `window.py` asks for, but never the environment.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from agent.config import commits, hosts, models, sections, shape, window
from agent.config.base import SOURCES, Section, section_in
from agent.config.kinds import Allowed, OneOf, Text, size_text
from agent.config.passwords import MASK, without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOST_SLASH = re.compile(r"\b([a-z]{2,9}):/([^/].*)", re.DOTALL)
_TELLING = re.compile(r"key|token|secret|passw|sig(?:nature)?$|^code$", re.IGNORECASE)
SHORTEST_SECRET = 8
"""Shorter values are not masked: they would hide ordinary words."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One provider, ready to use.

    `context_length` is the configured window in tokens (`window.configured_window`), never None.  `timeout` and
    `idle_timeout` are seconds, `price` is per million tokens.  `base_url` is as written, "" for `replay`.
    `dialect` is "" where none is configured.  `messages` is the recorded messages.jsonl of `replay`.
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
    price: models.Price | None = None
    messages: Path | None = None

    @property
    def wire(self) -> str:
        """The wire that is spoken: LM Studio and a replay speak OpenAI's."""
        return {"lmstudio": "openai", "replay": "openai"}.get(self.name, self.name)


class Settings(Section):
    """Every key of config.yaml.  `Settings()` has the defaults, with the current folder as root."""

    task_sources: tuple[Annotated[Text, OneOf(SOURCES, dotted=True)], ...] = Field(
        default=("local",), min_length=1, description="Where tasks come from."
    )
    context_storage: sections.ContextStorage = Field(
        default_factory=sections.ContextStorage, description="Where a task's mind is kept, and when it is compacted."
    )
    assembler: sections.Assembler = Field(
        default_factory=sections.Assembler, description="How a request is put together."
    )
    llm: models.LLM = Field(default_factory=models.LLM, description="Which model works, and where.")
    github: tuple[hosts.GitHub, ...] = Field(
        default_factory=lambda: (hosts.GitHub(),), description="GitHub: one mapping, or a list of them."
    )
    gitlab: tuple[hosts.GitLab, ...] = Field(
        default_factory=lambda: (hosts.GitLab(),), description="GitLab: one mapping, or a list of them."
    )
    local: hosts.Local = Field(default_factory=hosts.Local, description="The local tracker.")
    scheduling: sections.Scheduling = Field(
        default_factory=sections.Scheduling, description="How often to look, and how much at a time."
    )
    limits: sections.Limits = Field(default_factory=sections.Limits, description="When a task is ended.")
    workspace: sections.Workspace = Field(
        default_factory=sections.Workspace, description="How a work tree is made ready."
    )
    branch: commits.Branch = Field(
        default_factory=commits.Branch, description="What the branches of this program are called."
    )
    commit: commits.Commit = Field(default_factory=commits.Commit, description="How commits are written and signed.")
    verify: sections.Verify = Field(default_factory=sections.Verify, description="What a machine can check.")
    sandbox: sections.Sandbox = Field(default_factory=sections.Sandbox, description="Where commands run.")
    taskqueue: sections.TaskQueue = Field(default_factory=sections.TaskQueue, description="Ledger and broker.")
    context_inheritance: sections.ContextInheritance = Field(
        default_factory=sections.ContextInheritance, description="What a later task takes over."
    )
    mcp_servers: Annotated[tuple[Any, ...], Allowed("an empty list")] = Field(
        default=(), description="MCP servers; none are supported yet, so it must be empty."
    )

    _root: Path = PrivateAttr(default_factory=Path.cwd)
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _variables: dict[str, str] = PrivateAttr(default_factory=dict)
    _hidden: tuple[str, ...] = PrivateAttr(default=())

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
        if value in (None, [], {}, ()):
            return ()
        raise ValueError("MCP servers are not supported by this version; remove them")

    @classmethod
    def build(
        cls,
        data: Mapping[str, Any],
        *,
        root: Path,
        origins: Mapping[str, str],
        variables: Mapping[str, str],
        hidden: tuple[str, ...] = (),
    ) -> Settings:
        """From merged, expanded data; pydantic's ValidationError when something is wrong (see `faults.py`)."""
        whole: dict[str, Any] = {
            name: {}
            for name, field in cls.model_fields.items()
            if section_in(field.annotation) and not shape.is_many(field)
        }
        settings = cls.model_validate(
            whole | {name: value for name, value in data.items() if value is not None or name not in whole},
            context={"root": root},
        )
        settings._remember(root, origins, variables, hidden)  # noqa: SLF001 - of this class
        return settings

    def _remember(
        self, root: Path, origins: Mapping[str, str], variables: Mapping[str, str], hidden: tuple[str, ...]
    ) -> None:
        known = {key: "default" for key, _, _ in self.values()}
        self._root = root
        self._variables = dict(variables)
        self._hidden = hidden
        self._origins = known | {key: origin for key, origin in origins.items() if key in known}

    __hash__ = None  # type: ignore[assignment]  # it holds mappings

    def __eq__(self, other: object) -> bool:
        """Equal when every key is; where it came from does not matter."""
        return isinstance(other, Settings) and self.__dict__ == other.__dict__

    # --- where things are ------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The folder of config.yaml, or the current folder when there is none."""
        return self._root

    @property
    def base_dir(self) -> Path:
        """`context_storage.base_dir`, absolute."""
        return self._root / self.context_storage.base_dir

    @property
    def origins(self) -> Mapping[str, str]:
        """Dotted key → `default`, name of the file, `environment NAME` or `command line`.  Entries of several
        hosts are `github.0.token`, of a single one `github.token`."""
        return self._origins

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables about window sizes, as they were when the configuration was loaded."""
        return self._variables

    # --- models ----------------------------------------------------------------------------------------------

    def provider(self) -> ProviderSettings:
        """The provider in use."""
        return self.provider_of(self.llm.provider)

    def provider_of(self, name: str) -> ProviderSettings:
        """Another provider by name; a dotted path gets `llm.plugin`.  ConfigError for an unknown one."""
        section = self.llm.of(name)
        tokens, _ = window.configured_window(self, name)
        if isinstance(section, models.Replay):
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

    # --- secrets and showing ---------------------------------------------------------------------------------

    def secrets(self) -> tuple[str, ...]:
        """Every declared secret of at least 8 characters, longest first: secret keys, passwords in addresses, and
        the tokens that the environment holds for this program even where a key overrides them."""
        found = set(self._hidden)
        for value in _held(self):
            if isinstance(value, SecretStr):
                found.add(value.get_secret_value())
                # A PEM key may be printed line by line; its first and last line are no secret.
                found.update(line for line in value.get_secret_value().splitlines() if not line.startswith("-----"))
            elif isinstance(value, dict):
                # A header's value is a word and a key (`Bearer …`); either may be repeated alone.
                texts = [one.get_secret_value() for one in value.values() if isinstance(one, SecretStr)]
                found.update(texts, (word for text in texts for word in text.split()))
                # An address in the place of a path (`local.repos`) lost a slash on its way.
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
            rows.append((key, text, self._origins.get(key, "default")))
        return rows

    def paths(self) -> list[tuple[str, Path]]:
        """(key, path) for every key that names a place of this machine, entries of mappings too."""
        single = [(key, value) for key, value, _ in self.values() if isinstance(value, Path)]
        return [*single, *((f"local.repos.{name}", path) for name, path in self.local.repos.items())]

    def values(self) -> Iterator[tuple[str, Any, bool]]:
        """(dotted key, value, whether it is a size) for every key that holds a value."""
        yield from _walk(self, ())


def passwords_in(address: str) -> list[str]:
    """The secrets of an address, as written and decoded: the password in amqp://user:password@host, and values of its
    query with a telling name (`?key=`, `?access_token=`)."""
    if "://" not in address or ("@" not in address and "?" not in address):
        return []
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return []
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    found = [password, *(value for name, _, value in pairs if _TELLING.search(name))]
    return [form for secret in found if secret for form in (secret, unquote(secret))]


def value_text(value: Any, *, is_size: bool = False) -> str:
    """One value as one line of text; secrets as a mask, nothing as ""."""
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, dict):
        value = {key: value_text(one) if isinstance(one, SecretStr) else one for key, one in value.items()}
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_size:
        return size_text(value)
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).replace("\n", "\\n")


def _held(section: Section) -> Iterator[Any]:
    """Every value below a section, without a look at what the keys are: each worker asks for the secrets, and what
    describes the keys is large."""
    for value in section.__dict__.values():
        if isinstance(value, Section):
            yield from _held(value)
        elif isinstance(value, tuple):
            for entry in value:
                if isinstance(entry, Section):
                    yield from _held(entry)
        else:
            yield value


def _walk(section: Section, path: shape.Path) -> Iterator[tuple[str, Any, bool]]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        inner = (*path, name)
        if isinstance(value, Section):
            yield from _walk(value, inner)
        elif shape.is_many(field):
            for number, entry in enumerate(value):
                yield from _walk(entry, (*inner, str(number)) if len(value) > 1 else inner)
        else:
            yield ".".join(inner), value, shape.is_size(field)
