"""Defines the section `llm` of config.yaml: the model, its server, and the configuration of its window.

`llm_section.py` only defines keys of config.yaml, as `sections.py` does; `configured_window.py` computes the window.
The keys of the section `llm` come from docs/design/context.md, 9.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, SecretStr, field_validator

from agent.config.base import DIALECTS, PROVIDERS, Section
from agent.config.value_kinds import Header, Number, OneOf, RootPath, Secret, ServerUrl, Text, Whole
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.values import Usage

TOOL_CALLS = ("auto", "native", "text")
SILENCE = "Seconds without a byte of the answer after which a request is given up."
SLOW_START = 600
"""Seconds for which a self-hosted server may send nothing.

A self-hosted server sends nothing while it loads the model (Ollama itself waits five minutes for that) and reads the
prompt, and a client that disconnects makes it start again."""


class Price(Section):
    """Prices per million tokens, in the currency `llm.currency`."""

    input: Number = Field(ge=0, description="Price of a million prompt tokens.")
    cached: Number | None = Field(
        default=None, ge=0, description="Price of a million cached prompt tokens; empty: that of `input`."
    )
    output: Number = Field(ge=0, description="Price of a million completion tokens.")

    def cost(self, usage: Usage) -> float:
        """The cost of the tokens in `usage`; cached tokens have their own price if one is configured."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, usage.prompt - usage.cached)
        return (fresh * self.input + usage.cached * cached + usage.completion * self.output) / 1_000_000


class Provider(Section):
    """The configuration of one provider of models.

    If `context_length` is missing, the window of the provider's default model comes from `KNOWN_WINDOWS`.
    """

    model: Text = Field(default="", description="Model name as the server knows it.")
    context_length: Whole | None = Field(
        default=None,
        ge=1,
        description="Window of the model in tokens; empty: the known window of a vendor's model, else the window that "
        "the server reports, DEFAULT_MAX_TOKENS or 4096.",
    )
    max_output_tokens: Whole | None = Field(
        default=None, ge=1, description="Most tokens of one answer; empty: 8192, at most a quarter of the window."
    )
    base_url: ServerUrl = Field(default="", description="Address of the server; `endpoint` is the same key.")
    api_key: Secret | None = Field(default=None, description="Key of the server; empty: none is sent.")
    api_key_header: Header | None = Field(
        default=None,
        description="Header that carries `api_key`; empty: the usual one of the server (`Authorization: Bearer`, "
        "`x-api-key`, `api-key`).",
    )
    headers: dict[Header, Secret] = Field(
        default={},
        description="More headers of each request. Their values are secrets, best as ${NAME}. They replace headers of "
        "the program with the same name.",
    )
    dialect: Annotated[Text, OneOf(DIALECTS)] | None = Field(
        default=None,
        description="Kind of the server; empty: the program recognises it by its address and its answers "
        "(docs/wire.md).",
    )
    tool_calls: Annotated[Text, OneOf(TOOL_CALLS)] = Field(
        default="auto",
        description="How the model calls tools. native: by the server's tool calls. text: in its text, for models "
        "without tool calls. auto: native, and text once the server has refused tools.",
    )
    images: Annotated[Text, OneOf(("auto", "never"))] = Field(
        default="auto",
        description="Pictures of issues and comments: `auto` sends them until the server refuses, `never` does not.",
    )
    timeout: Number = Field(
        default=1800, gt=0, description="Seconds that one request may take until the end of its answer."
    )
    idle_timeout: Number = Field(default=120, gt=0, description=SILENCE)
    price: Price | None = Field(default=None, description="Price of the model, for costs in reports and `limits.cost`.")

    @field_validator("headers")
    @classmethod
    def _one_line_each(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        """Strip white space around the value of each header, since the value of an environment variable may have some;
        refuse a value that no header can contain."""
        kept = {name: SecretStr(secret.get_secret_value().strip()) for name, secret in value.items()}
        for name, secret in kept.items():
            text = secret.get_secret_value()
            if not text.isascii() or not text.isprintable():
                raise ValueError(
                    f"the value of {name} (not shown) has a sign that no header can carry; allowed is ASCII"
                )
        return kept


class OpenAI(Provider):
    """The configuration of OpenAI, or of any server with its chat completions API."""

    model: Text = Field(default="gpt-4o", description="Model name as the server knows it.")
    base_url: ServerUrl = Field(
        default="https://api.openai.com/", description="Address of the server; `endpoint` is the same key."
    )


class Ollama(Provider):
    """The configuration of Ollama, with its own API."""

    model: Text = Field(default="qwen3-30b", description="Model name as the server knows it.")
    base_url: ServerUrl = Field(
        default="http://localhost:11434", description="Address of the server; `endpoint` is the same key."
    )
    idle_timeout: Number = Field(default=SLOW_START, gt=0, description=SILENCE)


class LMStudio(Provider):
    """The configuration of LM Studio."""

    model: Text = Field(default="qwen3-30b", description="Model name as the server knows it.")
    base_url: ServerUrl = Field(
        default="http://localhost:1234", description="Address of the server; `endpoint` is the same key."
    )
    idle_timeout: Number = Field(default=SLOW_START, gt=0, description=SILENCE)


class Anthropic(Provider):
    """The configuration of Anthropic's messages API."""

    model: Text = Field(default="claude-sonnet-4-5", description="Model name as the server knows it.")
    base_url: ServerUrl = Field(
        default="https://api.anthropic.com", description="Address of the server; `endpoint` is the same key."
    )


class Replay(Section):
    """A provider without a server: it reads answers from a recorded messages.jsonl."""

    messages: RootPath | None = Field(default=None, description="messages.jsonl with the answers to repeat.")
    model: Text = Field(
        default="replay", description="Name of the model in the records; it also chooses the token counter."
    )
    context_length: Whole | None = Field(default=None, ge=1, description="Window in tokens; empty: known for `replay`.")
    max_output_tokens: Whole | None = Field(
        default=None, ge=1, description="Most tokens of one answer; empty: no limit."
    )
    price: Price | None = Field(default=None, description="Price to reckon with.")


class Plugin(Provider):
    """The provider of a third-party package, in use when `llm.provider` is a dotted path."""

    model: Text = Field(default="plugin", description="Model name as the server knows it.")
    base_url: ServerUrl | None = Field(default=None, description="Address of the server; `endpoint` is the same key.")  # type: ignore[assignment]


class LLM(Section):
    """The configured model and its provider."""

    provider: Annotated[Text, OneOf(PROVIDERS, dotted=True)] = Field(
        default="openai", description="The provider in use."
    )
    currency: Text = Field(default="USD", description="The currency of all prices and costs, as texts name it.")
    openai: OpenAI = Field(
        default_factory=OpenAI, description="OpenAI, or any server that speaks its chat completions."
    )
    ollama: Ollama = Field(default_factory=Ollama, description="Ollama, by its own API.")
    lmstudio: LMStudio = Field(default_factory=LMStudio, description="LM Studio.")
    anthropic: Anthropic = Field(default_factory=Anthropic, description="Anthropic's messages API.")
    replay: Replay = Field(default_factory=Replay, description="Recorded answers, without a server.")
    plugin: Plugin = Field(default_factory=Plugin, description="Settings of a provider given as a dotted path.")

    def provider_section(self, name: str) -> Provider | Replay:
        """The keys of one provider; a provider with a dotted path has the keys of `plugin`.

        Raises ConfigError for a name that is neither a provider's nor a dotted path.
        """
        if name in PROVIDERS:
            section: Provider | Replay = getattr(self, name)
            return section
        try:
            OneOf(PROVIDERS, dotted=True).check(name)
        except ValueError:
            known = ", ".join(PROVIDERS)
            raise ConfigError(f"llm.provider: {name!r} is not known; known are {known}, or a dotted path") from None
        return self.plugin


KNOWN_WINDOWS = {
    "openai": ("gpt-4o", 128_000),
    "ollama": ("qwen3-30b", 32_768),
    "lmstudio": ("qwen3-30b", 32_768),
    "anthropic": ("claude-sonnet-4-5", 200_000),
    "replay": ("replay", 128_000),
}
"""provider → (default model, its window in tokens).

The window of a model that is not one of these defaults comes from `known_windows.py`, the configuration or the server.
"""
