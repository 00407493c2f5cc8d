"""Reads config.yaml with the safe loader, and refuses some faults that the loader accepts.

Duplicate keys, keys that are not text, more than one document, a top level that is not a mapping, and excessive aliases
raise a ConfigError with the line. `yamlfile.py` does not check the names of configuration keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

Steps = tuple[str, ...]

MOST_NODES = 20_000
"""The maximum number of YAML nodes in a configuration; a configuration has some hundreds, and only aliases of aliases
produce more."""


def read(path: Path) -> tuple[dict[str, Any], dict[Steps, int]]:
    """(the mapping in the file, the line of each key). An empty file counts as an empty mapping. Raises ConfigError
    unless the file is one readable mapping."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; name an existing one, or none for the defaults") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name the file in it, like {path / 'config.yaml'}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; make it readable for this user") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> tuple[dict[str, Any], dict[Steps, int]]:
    """Parse a YAML text as `read` parses a file; error messages use `name` as the name of the file. Raises ConfigError
    if the text is not one valid mapping."""
    lines: dict[Steps, int] = {}
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return {}, {}
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(
                f"{name}, line {_line(node)}: found {_kind(node)}; the top level must be a mapping of sections"
            )
        _Walk(name, lines).mapping(node, ())
        data: dict[str, Any] = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        # The full text of PyYAML's error repeats the line, which may hold a secret.
        raise ConfigError(f"{name}{where}: not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{name}: character {error.position} is not allowed in YAML: {error.reason}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{name}: a value cannot be read: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()
    return data, lines


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


class _Walk:
    """One pass over the YAML nodes, before values are built from them."""

    def __init__(self, name: str, lines: dict[Steps, int]) -> None:
        self.name = name
        self.lines = lines
        self.nodes = 0

    def mapping(self, node: yaml.MappingNode, path: Steps) -> None:
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = _line(key)
            if key.tag == "tag:yaml.org,2002:merge":
                self.value(value, path)
                continue
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                found = repr(key.value) if isinstance(key, yaml.ScalarNode) else _kind(key)
                raise ConfigError(f"{self.name}, line {line}: the key {found} is not text; put it in quotes")
            if key.value in seen:
                dotted = ".".join((*path, key.value))
                first = seen[key.value]
                raise ConfigError(
                    f"{self.name}, line {line}: {dotted} stands here again (first in line {first}); keep one"
                )
            seen[key.value] = line
            self.lines[(*path, key.value)] = line
            self.value(value, (*path, key.value))

    def value(self, node: yaml.Node, path: Steps) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise ConfigError(
                f"{self.name}, line {_line(node)}: more than {MOST_NODES} values; are there aliases of aliases?"
            )
        if isinstance(node, yaml.MappingNode):
            self.mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self.lines[(*path, str(number))] = _line(item)
                self.value(item, (*path, str(number)))
