"""The base class of the sections of config.yaml, and two helpers for annotations.

The keys of config.yaml are fields of the subclasses of `Section` in other modules of `agent/config`.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, model_validator

PROVIDERS = ("openai", "ollama", "lmstudio", "anthropic", "replay")
DIALECTS = (
    "openai",
    "azure",
    "github",
    "openrouter",
    "deepseek",
    "mistral",
    "groq",
    "gemini",
    "kimi",
    "dashscope",
    "anthropic",
    "compatible",
    "vllm",
    "sglang",
    "tgi",
    "llamacpp",
    "lmstudio",
    "ollama",
    "litellm",
    "replay",
)
"""The names of the dialects that `llm/dialects` defines, in the same order; they are the values of the key
`llm.<provider>.dialect`."""
SOURCES = ("local", "github", "gitlab", "forgejo")


def may_be_empty(annotation: Any) -> bool:
    """Whether a field of a section with this annotation may have the value None."""
    return type(None) in get_args(annotation)


def section_in(annotation: Any) -> type[Section] | None:
    """The section class in an annotation `Section`, `Section | None`, `tuple[Section, ...]` or `dict[str, Section]`,
    else None."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


class Section(BaseModel):
    """The base class for a section of config.yaml, which is a mapping there.

    In a section, unknown keys are refused, values are immutable, and pydantic's error messages do not contain values.
    """

    inline: ClassVar[bool] = False
    """Whether a list of these sections counts as one value, which is documented and shown as a whole."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, data: Any) -> Any:
        """An empty section (`local:`) gets its defaults; an empty text as the value of a key that may be None means
        None."""
        if not isinstance(data, dict):
            return data
        cleaned = dict(data)
        for key, value in data.items():
            field = cls.model_fields.get(key)
            if field is None:
                continue
            if value is None and not may_be_empty(field.annotation) and section_in(field.annotation):
                del cleaned[key]
            elif value == "" and may_be_empty(field.annotation):
                cleaned[key] = None
        return cleaned
