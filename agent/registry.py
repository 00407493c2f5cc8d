"""Registries map a name to "module:Class", which is loaded when it is first used.

A new adapter class of this program needs only its own file and one line in a registry. A name that is not registered
and has a dot or colon is a dotted path into another package, which a `Guard` checks before the package is imported
(`plugin_guard.py`). A registry contains classes, not instances of them.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


OWN = __name__.partition(".")[0]


@contextmanager
def without(*modules: str) -> Iterator[None]:
    """Hide `modules`, and suppress warnings, while a library that can do without them is imported for the first time.

    Modules that are never used should not occupy memory in each process."""
    known = {name: sys.modules.get(name) for name in modules}
    # importing a module that has the value None in `sys.modules` raises ImportError
    sys.modules.update(dict.fromkeys(modules))  # type: ignore[arg-type]
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


class Guard(Protocol):
    """Checks plug-ins and imports them (`plugin_guard.PluginGuard`)."""

    def load(self, kind: str, target: str) -> Any:
        """The object of a plug-in that `package.module:name` names. Raises ConfigError when the plug-in is refused."""
        ...


def dotted(name: str) -> str | None:
    """The dotted path `name` in the form `package.module:name`; None for a plain name."""
    if ":" in name:
        return name
    return ":".join(name.rsplit(".", 1)) if "." in name else None


class Registry:
    """A named table of lazily imported classes.

    `kind` is the word for the classes of the registry in error messages ("llm provider").
    """

    def __init__(self, kind: str, entries: dict[str, str]) -> None:
        self.kind = kind
        self.entries = dict(entries)

    def names(self) -> list[str]:
        """The names in the registry, sorted."""
        return sorted(self.entries)

    def load(self, name: str, guard: Guard | None = None) -> Any:
        """The class that is registered as `name`, or, with a `guard`, the one that `name` names as a dotted path
        `package.module:Class`.

        Raises ConfigError if the name is unknown (the message lists the known names), if the class cannot be loaded, or
        if the guard refuses the plug-in.
        """
        target = self.entries.get(name)
        if target is None and guard is not None and (path := dotted(name)) is not None:
            return guard.load(self.kind, path)
        if target is None:
            near = get_close_matches(name, self.entries, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(self.names())
            raise ConfigError(f"{self.kind}: {name!r} is not known; known are {known}, or a dotted path{hint}")
        module, _, attribute = target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ImportError as error:
            if (error.name or "").partition(".")[0] == OWN:
                raise  # a module of this program is missing, not an optional package
            raise ConfigError(f"{self.kind}: {name!r} ({target}) cannot be loaded: {error}") from error
