"""Combines layers of configuration in their order: default < config.yaml < environment < command line.

A layer of configuration is a nested mapping in a canonical form, with the origin of each key. Making a layer resolves
two alternative spellings (`endpoint` for `base_url`, and one mapping instead of a list for `github`, `gitlab` or
`forgejo`), but does not check values; `loading.py` checks them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.config.key_tree import Path

MANY = ("github", "gitlab", "forgejo")
_NAME = re.compile(r"\$(\$\{|\{([^}]*)\}?)")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Layer:
    """`label` is the origin of the layer's keys, `labels` the more exact origin of single keys ("environment
    LLM_PROVIDER"); `places` has the exact place of a key ("config.yaml, line 7")."""

    label: str
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, str] = field(default_factory=dict)
    labels: dict[Path, str] = field(default_factory=dict)

    def set_key(self, path: Path, value: Any, *, label: str = "", place: str = "") -> None:
        """Set one key of the layer, creating the mappings above it."""
        target = self.data
        for step in path[:-1]:
            inner = target.get(step)
            if not isinstance(inner, dict):
                inner = target[step] = {}
            target = inner
        target[path[-1]] = _copy(value)
        self.labels[path] = label or self.label
        self.places[path] = place or label or self.label


@dataclass(slots=True)
class Merged:
    """All layers of configuration, combined into one.

    The hosts of `github`, `gitlab` and `forgejo` are mappings from number to entry, until `written_form` makes lists of
    them."""

    data: dict[str, Any] = field(default_factory=dict)
    labels: dict[Path, str] = field(default_factory=dict)
    places: dict[Path, str] = field(default_factory=dict)

    def lay(self, layer: Layer) -> None:
        """Add a layer of configuration on top: its mappings are merged with those below, its other values replace those
        below.

        Entries with the same number under `github`, `gitlab` or `forgejo` describe one host, so they are merged too.
        """
        _merge(self.data, layer.data)
        for path, _ in _ends(layer.data):
            for known in [one for one in self.labels if one[: len(path)] == path or path[: len(one)] == one]:
                del self.labels[known]
            self.labels[path] = _nearest(path, layer.labels, layer.label)
            self.places[path] = _nearest(path, layer.places, self.labels[path])
        for path, place in layer.places.items():
            self.places[path] = place

    def written_form(self) -> dict[str, Any]:
        """The merged configuration in the form of config.yaml, with the hosts as lists."""
        data = dict(self.data)
        for name in MANY:
            entries = data.get(name)
            if isinstance(entries, dict):
                data[name] = list(entries.values())
        return data

    def entries(self, name: str) -> dict[str, Any]:
        """The entries of hosts under `github`, `gitlab` or `forgejo` in the layers so far, by number."""
        found = self.data.get(name)
        return found if isinstance(found, dict) else {}

    def place(self, path: Path) -> str:
        """The place in the configuration that sets the key, or the nearest mapping around the key, or a key below it;
        "configuration" if none of them is known."""
        below = (place for known, place in self.places.items() if known[: len(path)] == path)
        return _nearest(path, self.places, "") or next(below, "configuration")


def canonical(data: Mapping[str, Any], label: str, places: Mapping[Path, str] | None = None) -> Layer:
    """Make a layer from a mapping in the form of config.yaml. Raises ConfigError when `endpoint` and `base_url`
    differ."""
    layer = Layer(label)
    single = {name for name in MANY if isinstance(data.get(name), dict)}
    for name, value in data.items():
        if name in MANY and value is not None:
            entries = value if isinstance(value, list | tuple) else [value]
            layer.data[name] = {str(number): entry for number, entry in enumerate(entries)}
        elif name == "llm" and isinstance(value, dict):
            layer.data[name] = {key: _one_address(key, inner, label) for key, inner in value.items()}
        else:
            layer.data[name] = _copy(value)
    for path, place in (places or {}).items():
        where = path
        if path[0] in single and len(path) > 1:
            where = (path[0], "0", *path[1:])
        if path[0] == "llm" and len(path) == 3 and path[2] == "endpoint":
            where = (*path[:2], "base_url")
        layer.places[where] = place
    return layer


def _one_address(provider: str, section: Any, label: str) -> Any:
    """A copy of a provider's section with the key `endpoint` renamed to `base_url`. Raises ConfigError when the section
    has both `endpoint` and `base_url`, with different values."""
    if not isinstance(section, dict) or "endpoint" not in section:
        return _copy(section)
    rest = {key: value for key, value in section.items() if key != "endpoint"}
    if rest.get("base_url") not in (None, section["endpoint"]):
        raise ConfigError(f"{label}: llm.{provider} has both endpoint and base_url, and they differ; keep one of them")
    return {**rest, "base_url": section["endpoint"]}


def expand(layer: Layer, environ: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Replace `${NAME}` in every text of the layer, in place; `$${` is a literal `${`.

    A text of the configuration with an unset or empty variable is removed, so that the default applies, and is returned
    as (key, NAME): `load` reports it as an error if its section is in use and no later layer sets the key. Raises
    ConfigError for `${…}` around anything but a name.
    """
    missing: list[tuple[Path, str]] = []

    def text(value: str, path: Path) -> str | None:
        unset = ""

        def one(match: re.Match[str]) -> str:
            nonlocal unset
            if match[1] == "${":
                return "${"
            if not match[0].endswith("}") or not _IDENTIFIER.fullmatch(match[2]):
                where = layer.places.get(path, layer.label)
                raise ConfigError(
                    f"{where}: {'.'.join(path)} has ${{…}} around something that is not a name of a variable; "
                    "write $${ for a literal ${"
                )
            found = environ.get(match[2], "")
            unset = unset or ("" if found else match[2])
            return found

        expanded = _NAME.sub(one, value)
        if unset:
            missing.append((path, unset))
            return None
        return expanded

    def walk(value: Any, path: Path) -> Any:
        if isinstance(value, str):
            return text(value, path)
        if isinstance(value, dict):
            pairs = ((key, inner, walk(inner, (*path, str(key)))) for key, inner in value.items())
            return {key: new for key, old, new in pairs if new is not None or old is None}
        if isinstance(value, list):
            return [new for old in value if (new := walk(old, path)) is not None or old is None]
        return value

    layer.data = walk(layer.data, ())
    return missing


def _nearest(path: Path, known: Mapping[Path, str], otherwise: str) -> str:
    """The value of `known` for a key, else its value for the nearest mapping around the key, else `otherwise`."""
    for length in range(len(path), 0, -1):
        if path[:length] in known:
            return known[path[:length]]
    return otherwise


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value


def _merge(base: dict[str, Any], top: Mapping[str, Any]) -> None:
    for key, value in top.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = _copy(value)


def _ends(data: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _ends(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value
