"""Registries: name → "module:Class", loaded on first use.

A plug-in is one file and one line.  A name with a dot or colon that is not registered is taken as a dotted
path of somebody else's package.  Not a place for instances: `run/wiring.py` builds those.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from agent.errors import ConfigError


class Registry:
    """A named table of lazily imported classes.

    `kind` is the word used in errors ("llm provider").  `load(name)` returns the class; an unknown name is a
    ConfigError that lists the known ones and the nearest.
    """

    def __init__(self, kind: str, entries: dict[str, str]) -> None:
        self.kind = kind
        self.entries = dict(entries)

    def names(self) -> list[str]:
        """The registered names, sorted."""
        return sorted(self.entries)

    def load(self, name: str) -> Any:
        """The class behind `name`, or behind a dotted path `package.module:Class`."""
        target = self.entries.get(name)
        if target is None and (":" in name or "." in name):
            target = name if ":" in name else ":".join(name.rsplit(".", 1))
        if target is None:
            near = get_close_matches(name, self.entries, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(self.names())
            raise ConfigError(f"{self.kind}: {name!r} is not known; known are {known}, or a dotted path{hint}")
        module, _, attribute = target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{self.kind}: {name!r} ({target}) cannot be loaded: {error}") from error
