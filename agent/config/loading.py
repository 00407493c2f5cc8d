"""Builds `Settings`: reads config.yaml, combines the layers, validates the result, and records the origin of each key.

`load` is for the program, `settings_of` for packages that accept a mapping as their `config` (docs/design/context.md,
9.1).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.config import configured_window, environment, key_tree, validation_errors
from agent.config.base import PROVIDERS, SOURCES
from agent.config.layers import Layer, Merged, canonical, expand
from agent.config.settings import Settings
from agent.errors import ConfigError

FILE = "config.yaml"


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    complete: bool = True,
) -> Settings:
    """Load the configuration: defaults < `path` (else ./config.yaml, if it exists) < environment < `overrides`.

    `environ` replaces the process's environment.  `overrides` are keys from the command line, dotted (`{"llm.provider":
    "replay"}`) or nested.  With `complete` False a key with an unset `${NAME}` is ignored, for commands that only read
    stored data.  Raises ConfigError for every fault of the configuration.
    """
    environ = environment.current() if environ is None else environ
    merged = Merged()
    writers: dict[str, str] = {}
    missing: list[tuple[key_tree.Path, str]] = []
    file = Path(os.path.abspath(FILE if path is None else path))  # noqa: PTH100 - `os.path.abspath` is used, since resolve() would follow a symlink
    if path is not None or file.exists():
        from agent.config import yamlfile

        shown = FILE if path is None else str(path)
        writers[file.name] = _writers(file)
        data, lines = yamlfile.read(file)
        places = {steps: f"{shown}, line {line}" for steps, line in lines.items()}
        layer = canonical(data, file.name, places)
        missing = expand(layer, environ)
        merged.lay(layer)
    merged.lay(environment.layer(environ, merged))
    merged.lay(_command_line(overrides or {}))
    if complete:
        _refuse_unset(missing, merged, file.name)
    unset = {path: name for path, name in reversed(missing) if not _is_set_above(path, merged, file.name)}
    labels = {p: f"{file.name}, {name} is not set" for p, name in unset.items()}
    settings = _build(merged, file.parent, environ, labels, writers)
    if complete:
        configured_window.configured_window(settings)
    return settings


def settings_of(config: Mapping[str, Any] | Settings, *, root: Path | None = None) -> Settings:
    """`config` itself if it is `Settings`; otherwise settings from a mapping as in docs/design/context.md, 9.1.

    The mapping is the whole configuration: only `${NAME}` and the window sizes are read from the environment, and an
    unset `${NAME}` leaves the default. Relative paths are below `root`, which defaults to the current folder. Raises
    ConfigError for every fault of the configuration.
    """
    if isinstance(config, Settings):
        return config
    if not isinstance(config, Mapping):
        raise ConfigError(f"configuration: found {type(config).__name__}; allowed is a mapping of sections or Settings")
    environ = environment.current()
    merged = Merged()
    layer = canonical(config, "configuration")
    expand(layer, environ)
    merged.lay(layer)
    return _build(merged, root or Path.cwd(), environ)


def _writers(file: Path) -> str:
    """A text that names the other users who may write the configuration file; "" if nobody else may, or if there is no
    file."""
    from agent.other_writers import writers_of

    try:
        return writers_of(file)
    except OSError:
        return ""  # the caller then reads the configuration file, and shows the error of that read


def _build(
    merged: Merged,
    root: Path,
    environ: Mapping[str, str],
    unset: Mapping[key_tree.Path, str] | None = None,
    writers: Mapping[str, str] | None = None,
) -> Settings:
    """The validated settings; `unset` has the origins of the keys of a file that use an unset variable."""
    try:
        return Settings.build(
            merged.written_form(),
            root=root,
            origins=_origins({**merged.labels, **(unset or {})}, merged),
            variables={name: value for name, value in environ.items() if configured_window.is_window_variable(name)},
            hidden=environment.hidden_values(environ),
            files=writers,
        )
    except ValidationError as error:
        raise validation_errors.explain(error, merged) from None


def _command_line(overrides: Mapping[str, Any]) -> Layer:
    """A layer from the command line: dotted keys are split into steps, nested mappings are used unchanged."""
    plain = Layer("command line")
    for key, value in overrides.items():
        plain.set_key(tuple(key.split(".")), value)
    return canonical(plain.data, "command line")


def _origins(labels: Mapping[key_tree.Path, str], merged: Merged) -> dict[str, str]:
    """Known key → label of the layer of configuration that sets it (`environment`, a file's name, …).

    A layer that sets only an entry of a mapping, such as `local.repos.NAME`, counts as the layer that sets the whole
    mapping `local.repos`.
    """
    found: dict[str, str] = {}
    for path, label in labels.items():
        _, field, steps = key_tree.find(Settings, path)
        if field is not None:
            found[validation_errors.dotted(path[:steps], merged)] = label
    return found


def _is_set_above(path: key_tree.Path, merged: Merged, file: str) -> bool:
    """Whether a layer above the configuration file sets the key.

    `expand` has already removed keys with an unset `${NAME}` from the layer of the file, so the file does not count as
    the layer that sets them.
    """
    return merged.labels.get(path, file) != file


def _refuse_unset(missing: list[tuple[key_tree.Path, str]], merged: Merged, file: str) -> None:
    """Raise ConfigError for an unset `${NAME}` in a section in use, unless a higher layer sets the key."""
    lines = []
    for path, name in missing:
        if _is_set_above(path, merged, file) or not _in_use(path, merged.data):
            continue
        key = validation_errors.dotted(path, merged)
        found = f"found ${{{name}}}, but the environment has no {name}"
        lines.append(f"{merged.place(path)}: {key}: {found}; set it, or remove the key")
    if lines:
        raise ConfigError("\n".join(lines))


def _in_use(path: key_tree.Path, data: Mapping[str, Any]) -> bool:
    if path[0] in SOURCES:
        return path[0] in (data.get("task_sources") or ("local",))
    if path[0] == "llm" and len(path) > 2:
        llm = data["llm"] if isinstance(data["llm"], dict) else {}
        chosen = str(llm.get("provider") or "openai")
        storage = data.get("context_storage")
        summary = storage.get("summary_model") if isinstance(storage, dict) else None
        other = summary.get("provider") if isinstance(summary, dict) else None
        return path[1] in (chosen if chosen in PROVIDERS else "plugin", other)
    return True
