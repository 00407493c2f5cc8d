"""Builds `Settings`: reads the file, lays the layers on each other, checks, and remembers where each key came from.

`load` is for the program, `settings_of` for rooms that accept the mapping of the seeds as their `config`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.config import environment, faults, shape, window
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
    """The configuration: default < `path` (else ./config.yaml, if there is one) < environment < `overrides`.

    `environ` stands for the process's environment.  `overrides` are keys of the command line, dotted
    (`{"llm.provider": "replay"}`) or nested.  With `complete` False an unset `${NAME}` is as if the key were not
    there: for commands that only look at what is kept.  ConfigError for everything that is wrong.
    """
    environ = environment.current() if environ is None else environ
    merged = Merged()
    missing: list[tuple[shape.Path, str]] = []
    file = Path(os.path.abspath(FILE if path is None else path))  # noqa: PTH100 - resolve() would follow a symlink
    if path is not None or file.exists():
        from agent.config import yamlfile

        shown = FILE if path is None else str(path)
        data, lines = yamlfile.read(file)
        places = {steps: f"{shown}, line {line}" for steps, line in lines.items()}
        layer = canonical(data, file.name, places)
        missing = expand(layer, environ)
        merged.lay(layer)
    merged.lay(environment.layer(environ, merged))
    merged.lay(_command_line(overrides or {}))
    if complete:
        _refuse_unset(missing, merged)
    settings = _build(merged, file.parent, environ)
    if complete:
        window.configured_window(settings)
    return settings


def settings_of(config: Mapping[str, Any] | Settings, *, root: Path | None = None) -> Settings:
    """`config` itself when it is `Settings`; else from a mapping as in seed 002, section 9.

    The mapping is the configuration as it is: of the environment only `${NAME}` and the window sizes are taken, and
    an unset `${NAME}` leaves the default.  Relative paths count from `root`, or the current folder.
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


def _build(merged: Merged, root: Path, environ: Mapping[str, str]) -> Settings:
    try:
        return Settings.build(
            merged.plain(),
            root=root,
            origins=_origins(merged),
            variables={name: value for name, value in environ.items() if window.is_window_variable(name)},
            hidden=environment.hidden_values(environ),
        )
    except ValidationError as error:
        raise faults.explain(error, merged) from None


def _command_line(overrides: Mapping[str, Any]) -> Layer:
    """Dotted keys are taken apart; nested mappings stay."""
    plain = Layer("command line")
    for key, value in overrides.items():
        plain.put(tuple(key.split(".")), value)
    return canonical(plain.data, "command line")


def _origins(merged: Merged) -> dict[str, str]:
    """Known key → label.  What lies below a key (an entry of `local.repos`) counts for the key."""
    found: dict[str, str] = {}
    for path, label in merged.labels.items():
        _, field, steps = shape.find(Settings, path)
        if field is not None:
            found[faults.dotted(path[:steps], merged)] = label
    return found


def _refuse_unset(missing: list[tuple[shape.Path, str]], merged: Merged) -> None:
    """An unset `${NAME}` is an error where its section is in use and no higher layer set the key."""
    lines = []
    for path, name in missing:
        if path in merged.labels or not _in_use(path, merged.data):
            continue
        key = faults.dotted(path, merged)
        found = f"found ${{{name}}}, but the environment has no {name}"
        lines.append(f"{merged.place(path)}: {key}: {found}; set it, or remove the key")
    if lines:
        raise ConfigError("\n".join(lines))


def _in_use(path: shape.Path, data: Mapping[str, Any]) -> bool:
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
