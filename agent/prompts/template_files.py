"""Reads a folder of templates (`prompts.folder`) safely: a file is refused if other users may write it, if it is
outside of the folder, or if it is too large, and a FIFO does not block the reader.

The folder of templates is opened once for each reading, so that a reading does not mix templates of two folders if a
symlink to the folder is replaced. `mark_of` returns a mark of the folder's state; the folder is read again when its
mark changes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.config.yamlfile import parse as parse_yaml
from agent.errors import ConfigError
from agent.other_writers import writers, writers_above
from agent.prompts.limited_environment import TEMPLATE_LIMIT
from agent.prompts.revision import TemplateRefused, hash_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = ".md.j2"
DESCRIBED = (".yaml", ".yml", ".json")
SCHEMA = ".schema.json"
_SCHEMA_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.schema\.json")
FILE_LIMIT = 2 * TEMPLATE_LIMIT
"""Maximum size of a template file in bytes; larger than TEMPLATE_LIMIT, since a file in YAML or JSON has more than the
text of the template."""
MOST_FILES = 200


class FolderChanges(TemplateRefused):
    """The folder of templates changed while it was read; the caller reads the folder again."""


def is_template(name: str) -> bool:
    """Whether a file with this name in the folder of templates is a template."""
    return not name.startswith(".") and name.endswith((PLAIN, *DESCRIBED)) and not name.endswith(SCHEMA)


def others(folder: Path) -> list[str]:
    """The names in the folder of templates, sub-folders included, that are neither those of templates nor of schemas;
    they are not read."""
    return sorted(one.name for one in folder.iterdir() if not is_template(one.name) and not one.name.endswith(SCHEMA))


def mark_of(folder: Path) -> tuple[str, float]:
    """Returns (a text that changes when the folder of templates, or a template or schema in it, changes, the time of
    the newest of these changes in seconds since 1970).

    If the folder of templates cannot be read, returns (the message of the error, 0.0).
    """
    try:
        with _opened(folder) as top:
            return _mark(top)
    except OSError as error:
        return f"{error.strerror}", 0.0


def _mark(top: int) -> tuple[str, float]:
    own = os.fstat(top)
    states: list[Any] = [[own.st_dev, own.st_ino, own.st_mode, own.st_uid, own.st_gid]]
    newest = 0.0
    for name in sorted(os.listdir(top)):
        if is_template(name) or name.endswith(SCHEMA):
            try:
                one = os.stat(name, dir_fd=top)
            except OSError as error:
                states.append([name, error.errno])
                continue
            states.append([name, one.st_ino, one.st_mode, one.st_uid, one.st_gid, one.st_size])
            states[-1] += [one.st_mtime_ns, one.st_ctime_ns]
            newest = max(newest, one.st_ctime)
    return hash_of(states), max(newest, own.st_ctime)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield top
    finally:
        os.close(top)


def read_folder(folder: Path) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
    """Reads the folder of templates; returns (path and fields of each template, the schemas by `schema_ref`).

    Raises TemplateRefused, or FolderChanges if the folder of templates changed while it was read.
    """
    try:
        with _opened(folder) as top:
            before = _mark(top)[0]
            found = _read(top, folder)
            if _mark(top)[0] != before:
                raise FolderChanges(f"{folder} changed while it was read")
            return found
    except FileNotFoundError:
        raise TemplateRefused(f"prompts.folder: {folder} does not exist; make it, or remove the key") from None
    except NotADirectoryError:
        raise TemplateRefused(f"prompts.folder: {folder} is not a folder") from None
    except OSError as error:
        raise TemplateRefused(f"{error.filename or folder}: cannot be read: {error.strerror}") from error


def _read(top: int, folder: Path) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
    place = Path(f"/proc/self/fd/{top}").readlink()
    if who := writers(top):
        raise TemplateRefused(f"prompts.folder: {place}: {who}; give it to this user alone (chmod go-w {place})")
    if (above := writers_above(place)) is not None:
        raise TemplateRefused(f"prompts.folder: {above[0]}, which has {place}: {above[1]}; put the folder elsewhere")
    names = sorted(name for name in os.listdir(top) if is_template(name))
    if len(names) > MOST_FILES:
        raise TemplateRefused(f"{folder} has {len(names)} templates; {MOST_FILES} are allowed")
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    schemas: dict[str, Any] = {}
    for file in names:
        path = f"{folder / file}"
        fields = _fields(path, file, _text(top, place, file, path))
        ref = fields.get("schema_ref")
        if isinstance(ref, str) and ref and ref not in schemas:
            schemas[ref] = _schema(top, place, ref, path)
        name = str(fields.get("name"))
        if name in found:
            raise TemplateRefused(f"{path}: the template {name!r} is in {found[name][0]} too; keep one")
        found[name] = (path, fields)
    return list(found.values()), schemas


def _fields(path: str, file: str, text: str) -> dict[str, Any]:
    """The fields of the template in a template file."""
    if file.endswith(PLAIN):
        return {"name": file.removesuffix(PLAIN), "template": text}
    end = next(one for one in DESCRIBED if file.endswith(one))
    fields = parse_json(path, text) if end == ".json" else _yaml(path, text)
    if not isinstance(fields, dict):
        raise TemplateRefused(f"{path}: it must be one mapping with the fields of a template")
    if fields.get("name", "") != file.removesuffix(end):
        raise TemplateRefused(f"{path}: name is {fields.get('name')!r}; it must be that of the file")
    return fields


def _yaml(path: str, text: str) -> Any:
    try:
        return parse_yaml(text, path)[0]
    except ConfigError as error:
        raise TemplateRefused(str(error)) from None


def parse_json(path: str, text: str) -> Any:
    """The JSON value of `text`. Raises TemplateRefused for a text that is not JSON, for duplicate keys and for NaN."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key is given twice")
        return found

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise TemplateRefused(f"{path}: not valid JSON: {error}") from None


def _text(top: int, place: Path, name: str, path: str, *, follow: bool = True) -> str:
    """The text of a file below the folder of templates; all checks are made on the opened file, which cannot be
    replaced."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
        descriptor = os.open(name, flags, dir_fd=top)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TemplateRefused(f"{path}: is a symlink, which is not allowed here") from None
        raise TemplateRefused(f"{path}: cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        where = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not stat.S_ISREG(status.st_mode):
            raise TemplateRefused(f"{path}: is no regular file")
        if not where.is_relative_to(place):
            raise TemplateRefused(f"{path}: leads out of the folder, to {where}")
        if not follow and where != place / name:
            raise TemplateRefused(f"{path}: a symlink leads to {where}, which is not allowed here")
        if who := writers(descriptor) or _writers_between(place, where):
            raise TemplateRefused(f"{path}: {who}; give it to this user alone (chmod go-w {where})")
        if status.st_size > FILE_LIMIT:
            raise TemplateRefused(f"{path}: has {status.st_size} bytes; {FILE_LIMIT} are allowed")
        data = b""
        while len(data) <= FILE_LIMIT and (more := os.read(descriptor, FILE_LIMIT + 1 - len(data))):
            data += more
        if len(data) > FILE_LIMIT:
            raise TemplateRefused(f"{path}: has more than the {FILE_LIMIT} bytes that are allowed")
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TemplateRefused(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    finally:
        os.close(descriptor)


def _writers_between(place: Path, file: Path) -> str:
    """Which other users may write a folder between `place` and the file, as text; "" if none can."""
    for folder in file.parents:
        if folder == place:
            break
        if who := writers(folder):
            return f"{folder}: {who}"
    return ""


def _schema(top: int, place: Path, ref: str, path: str) -> Any:
    """The JSON schema in the file with the name `ref` in the folder of templates."""
    if not _SCHEMA_NAME.fullmatch(ref):
        raise TemplateRefused(
            f"{path}: schema_ref {ref[:200]!r}; allowed is the name of a file in the folder that ends in {SCHEMA}"
        )
    where = f"{path}: schema_ref {ref}"
    schema = parse_json(where, _text(top, place, ref, where, follow=False))
    check_schema(where, schema)
    return schema


def check_schema(where: str, schema: Any) -> None:
    """Raise TemplateRefused unless `schema` is a JSON schema that refers only to parts of itself."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
        foreign = next(_foreign_references(schema), None)
    except SchemaError as error:
        raise TemplateRefused(f"{where}: is no JSON schema: {error.message[:200]}") from None
    except RecursionError:
        raise TemplateRefused(f"{where}: is nested too deeply") from None
    if foreign is not None:
        raise TemplateRefused(f"{where}: $ref {foreign[:200]!r}; allowed are references inside the file (#/…)")


def _foreign_references(schema: Any) -> Iterator[str]:
    for key, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if key in ("$ref", "$dynamicRef", "$id", "$schema") and isinstance(value, str):
            if not value.startswith("#") and key not in ("$id", "$schema"):
                yield value
        elif isinstance(value, dict | list):
            yield from _foreign_references(value)
