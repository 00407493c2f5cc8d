"""Lists the plug-ins that a configuration names: the values of its keys that are dotted paths into other packages.

When `run` or `solve` starts, `check_plug_ins` refuses a plug-in that is not pinned, so that this is found before a task
needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.config.key_tree import leaves
from agent.config.value_kinds import OneOf
from agent.errors import PlugInRefused
from agent.plugin_guard import MISSING, OWN, PINNED
from agent.registry import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config.settings import Settings

LAYERS = ("assembler", "memory")
"""The key `assembler.memory`, the only one with values that are always dotted paths."""
SPARED = (".".join(LAYERS), "memory.embeddings")
"""The keys of plug-ins that a task can do without: if such a plug-in is not installed, the task reports that and
continues."""


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


def check_plug_ins(settings: Settings) -> None:
    """Raise PlugInRefused for the first configured plug-in that is not pinned as it is now. The plug-in of a key in
    `SPARED` may be missing.

    `check_plug_ins` reads the files of a plug-in, but does not import the plug-in.
    """
    named = plug_ins_of(settings)
    if not named:
        return
    found = {
        one.plug_in: one
        for one in settings.plugin_guard.compare_with_pins(list(dict.fromkeys(one for _, one in named)))
    }
    for key, target in named:
        one = found[target]
        if one.state != PINNED and not (one.state == MISSING and key in SPARED):
            raise PlugInRefused(f"{key}: {one.why}")


def _plug_in(value: str | None, mark: OneOf | None) -> str | None:
    """The plug-in that a configured value names; None if the value is a name, an address or a class of this program."""
    if value is None:
        return None
    scheme, separator, _ = value.partition("://")
    if mark is not None and (value in mark.names or (separator and scheme in mark.schemes)):
        return None
    target = dotted(scheme if separator else value)
    return None if target is None or target.partition(":")[0].partition(".")[0] == OWN else target


def _marks(annotation: Any, metadata: Any) -> Iterator[Any]:
    """The metadata objects (`Annotated[…]`) in the annotation of a field, and in the annotation of a list's items."""
    yield from metadata
    yield from getattr(annotation, "__metadata__", ())
    for part in getattr(annotation, "__args__", ()):
        yield from _marks(part, ())
