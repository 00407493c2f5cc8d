"""Lists the plug-ins that a configuration names: the values of its keys that are dotted paths into other packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.config.key_tree import leaves
from agent.config.value_kinds import OneOf
from agent.registry import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config.settings import Settings

LAYERS = ("assembler", "memory")
"""The key with values that are always dotted paths."""


def plug_ins_of(settings: Settings) -> list[tuple[str, str]]:
    """(key, `package.module:name`) of each plug-in, in the order of the keys."""
    found: list[tuple[str, str]] = []
    for path, field in leaves(type(settings)):
        mark = next((one for one in _marks(field.annotation, field.metadata) if isinstance(one, OneOf)), None)
        if (mark is None or not mark.dotted) and path != LAYERS:
            continue
        value: Any = settings
        for step in path:
            value = getattr(value, step)
        targets = [_plug_in(one, mark) for one in (value if isinstance(value, tuple) else (value,))]
        found += [(".".join(path), target) for target in targets if target is not None]
    return found


def _plug_in(value: str | None, mark: OneOf | None) -> str | None:
    """The plug-in that a value names; None for a name or an address of the program."""
    if value is None:
        return None
    scheme, separator, _ = value.partition("://")
    if mark is not None and (value in mark.names or (separator and scheme in mark.schemes)):
        return None
    return dotted(scheme if separator else value)


def _marks(annotation: Any, metadata: Any) -> Iterator[Any]:
    """The marks in the annotation of a field, and in the annotation of a list's items."""
    yield from metadata
    yield from getattr(annotation, "__metadata__", ())
    for part in getattr(annotation, "__args__", ()):
        yield from _marks(part, ())
