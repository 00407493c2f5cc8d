"""Registries: name → "module:Class", loaded on first use.

A plug-in is one file and one line.  A name with a dot or colon that is not registered is taken as a dotted
path of somebody else's package.  Not a place for instances: `run/wiring.py` builds those.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without(*modules: str) -> Iterator[None]:
    """Around the first import of a library that takes in `modules` where it finds them, and does without (with a
    warning, which nobody needs): what is never used here should not be in the memory of each process."""
    known = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(dict.fromkeys(modules))  # type: ignore[arg-type]  # None is "there is no such module"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, module in known.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


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
