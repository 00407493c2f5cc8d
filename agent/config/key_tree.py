"""Derives the tree of configuration keys from the models: known keys, allowed values, and their environment variables.

`key_tree.py` has pure functions over the classes of `sections.py`, for `validation_errors.py`, `environment.py` and
`reference.py`. The path of a key is a tuple of text; the entry of a host under `github`, `gitlab` or `forgejo` has its
number as one step: ("github", "0", "token").
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import SecretStr

from agent.config.base import Section, may_be_empty, section_in
from agent.config.value_kinds import SIZE, Allowed, OneOf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

Path = tuple[str, ...]

VARIABLES: dict[Path, tuple[str, ...]] = {
    ("context_storage", "enabled"): ("CONTEXT_STORAGE_ENABLED",),
    ("context_storage", "compression_threshold"): ("COMPRESSION_THRESHOLD",),
    ("context_storage", "cleanup_days"): ("CLEANUP_DAYS",),
    ("task_sources",): ("TASK_SOURCE",),
    ("consensus", "token_budget"): ("CONSENSUS_TOKEN_BUDGET",),
    ("consensus", "stream_retries"): ("MAGI_CLI_STREAM_RETRY_COUNT",),
    ("consensus", "log_reductions"): ("LOG_CONTEXT_REDUCTION_KEY",),
    ("llm", "provider"): ("LLM_PROVIDER",),
    ("llm", "openai", "api_key"): ("OPENAI_API_KEY",),
    ("llm", "openai", "model"): ("OPENAI_MODEL",),
    ("llm", "openai", "base_url"): ("OPENAI_BASE_URL",),
    ("llm", "ollama", "base_url"): ("OLLAMA_ENDPOINT",),
    ("llm", "lmstudio", "base_url"): ("LMSTUDIO_BASE_URL",),
    ("llm", "anthropic", "api_key"): ("ANTHROPIC_API_KEY",),
    ("github", "token"): ("GITHUB_PERSONAL_ACCESS_TOKEN", "GITHUB_TOKEN"),
    ("gitlab", "token"): ("GITLAB_PERSONAL_ACCESS_TOKEN", "GITLAB_TOKEN"),
    ("forgejo", "token"): ("FORGEJO_TOKEN", "GITEA_TOKEN"),
}
"""Configuration key → the environment variables with a well-known name that also set the key; the first of them that is
set counts.

Of all environment variables, only `AGENT__SECTION__KEY` sets a configuration key that is not in this mapping.
"""

PREFIX = "AGENT__"

NAME = "NAME"
"""The placeholder in a path for a name that the user chooses, such as the name of an MCP server."""


def is_many(field: FieldInfo) -> bool:
    """Whether the value of a key is a list of sections (`github`, `gitlab`, `forgejo`)."""
    inner = section_in(field.annotation)
    return get_origin(field.annotation) is tuple and inner is not None and not inner.inline


def is_inline(field: FieldInfo) -> bool:
    """Whether the value of a key is a list of sections that counts as one value (`github.projects`)."""
    inner = section_in(field.annotation)
    return get_origin(field.annotation) is tuple and inner is not None and inner.inline


def is_named(field: FieldInfo) -> bool:
    """Whether the value of a key is a mapping from free names to sections (`mcp_servers`)."""
    return get_origin(field.annotation) is dict and section_in(field.annotation) is not None


def is_secret(field: FieldInfo) -> bool:
    """Whether the value of a key is secret."""
    return SecretStr in (field.annotation, *_parts(field.annotation))


def is_list(field: FieldInfo) -> bool:
    """Whether the value of a key is a list that counts as one value: a list of plain values, or one as in
    `is_inline`."""
    return get_origin(field.annotation) is tuple and not is_many(field)


def is_mapping(field: FieldInfo) -> bool:
    """Whether the value of a key is a mapping with free keys and plain values (`local.repos`)."""
    return get_origin(field.annotation) is dict and section_in(field.annotation) is None


def is_size(field: FieldInfo) -> bool:
    """Whether the value of a key is a number of bytes."""
    return any(mark == SIZE for mark in (*_inner_metadata(field.annotation), *field.metadata))


def leaves(model: type[Section], path: Path = ()) -> Iterator[tuple[Path, FieldInfo]]:
    """Yields every configuration key with a value, in the order of the models; in a path the lists of sections have no
    number, and NAME stands for a free name."""
    for name, field in model.model_fields.items():
        inner = section_in(field.annotation)
        if inner is None or is_inline(field):
            yield (*path, name), field
        else:
            yield from leaves(inner, (*path, name, NAME) if is_named(field) else (*path, name))


def find(model: type[Section], path: Path) -> tuple[type[Section], FieldInfo | None, int]:
    """Follow the path of a key as far as its steps are known; returns (last section, the field of the last step or None
    if the next step is unknown, number of steps taken).

    The index of an entry in a list of sections counts as a step of the path, and so does the name of an entry in a
    mapping of sections.
    """
    steps = 0
    field: FieldInfo | None = None
    while steps < len(path):
        field = model.model_fields.get(path[steps])
        if field is None:
            return model, None, steps
        steps += 1
        inner = section_in(field.annotation)
        if inner is None:
            return model, field, steps
        numbered = is_many(field) or is_inline(field)
        if steps < len(path) and ((numbered and path[steps].isdigit()) or is_named(field)):
            steps += 1
        model = inner
    return model, field, steps


def allowed(field: FieldInfo) -> str:
    """A description of the allowed values of a field: type, bounds, names."""
    text = _words(field.annotation, field.metadata)
    return f"{text}, or empty" if may_be_empty(field.annotation) else text


def _words(annotation: Any, metadata: list[Any] | tuple[Any, ...]) -> str:
    section = section_in(annotation)
    if section is not None:
        text = f"a mapping of {', '.join(section.model_fields)}"
        if get_origin(annotation) is dict:
            return f"a mapping of names, each {text}"
        if section.inline:
            return f"a list, each a name or {text}"
        return f"{text}, or a list of them" if get_origin(annotation) is tuple else text
    metadata = [*_inner_metadata(annotation), *metadata]
    for mark in reversed(metadata):
        if isinstance(mark, OneOf):
            return mark.text
    for mark in metadata:
        if isinstance(mark, Allowed):
            return mark.text
    names = _literals(annotation)
    if names:
        return OneOf(names).text
    if get_origin(annotation) is tuple:
        return f"a list, each {_words(get_args(annotation)[0], ())}"
    if get_origin(annotation) is dict:
        return f"a mapping of names, each {_words(get_args(annotation)[1], ())}"
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "text", FilePath: "a path"}
    text = next((kinds[part] for part in (annotation, *_parts(annotation)) if part in kinds), "text")
    return text + _bounds(metadata)


def _parts(annotation: Any) -> list[Any]:
    """The types inside an annotation `Annotated[…]` or `… | None`."""
    found: list[Any] = []
    for part in get_args(annotation):
        if isinstance(part, type):
            found.append(part)
        elif get_args(part):
            found.extend(_parts(part))
    return found


def _inner_metadata(annotation: Any) -> list[Any]:
    """The metadata objects of an `Annotated[…]` inside a union; pydantic extracts only the outermost ones."""
    found = list(getattr(annotation, "__metadata__", ()))
    if get_origin(annotation) in (tuple, dict):
        return found
    for part in get_args(annotation):
        found.extend(_inner_metadata(part))
    return found


def _literals(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((names for part in get_args(annotation) if (names := _literals(part))), ())


def _bounds(metadata: list[Any]) -> str:
    words = []
    for mark in metadata:
        if isinstance(mark, annotated_types.Ge):
            words.append(f"from {mark.ge:g}")
        elif isinstance(mark, annotated_types.Gt):
            words.append(f"above {mark.gt:g}")
        elif isinstance(mark, annotated_types.Le):
            words.append(f"to {mark.le:g}")
    return " " + " ".join(words) if words else ""


def names_of(field: FieldInfo) -> tuple[str, ...]:
    """The fixed names among the allowed values of a field, for a "did you mean" in an error message."""
    for mark in (*_inner_metadata(field.annotation), *field.metadata, *_element_metadata(field.annotation)):
        if isinstance(mark, OneOf):
            return mark.names
    return _literals(field.annotation)


def _element_metadata(annotation: Any) -> list[Any]:
    return _inner_metadata(get_args(annotation)[0]) if get_origin(annotation) is tuple else []


def variable(path: Path) -> str:
    """The environment variable for a key: `AGENT__LLM__OPENAI__MODEL` for ("llm", "openai", "model")."""
    return PREFIX + "__".join(path).upper()


def nearest(model: type[Section], path: Path, steps: int) -> Path | None:
    """The known key that is most similar to an unknown key, None if no key is similar. A key of the same section is
    preferred, then a key of any section that has the same last step."""
    here = path[:steps]
    siblings = list(find(model, here)[0].model_fields)
    near = get_close_matches(path[steps].lower().replace("-", "_"), siblings, n=1)
    if near:
        return (*here, near[0])
    everywhere = {".".join(known): known for known, _ in leaves(model)}
    same = [known for known in everywhere.values() if known[-1] == path[-1].lower()]
    close = [everywhere[dotted] for dotted in get_close_matches(".".join(path).lower(), everywhere, n=1)]
    return next(iter(same + close), None)
