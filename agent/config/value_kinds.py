"""Defines the kinds of values in config.yaml, each with a description of the allowed values.

`value_kinds.py` has annotated types for `sections.py`; it reads no file and has no defaults. A kind checks one value of
the configuration; its text `allowed` appears in error messages and in the table of docs/configuration.md.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import AllowInfNan, BeforeValidator, SecretStr
from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, ValidationInfo

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Allowed:
    """A description of the allowed values, for a type that does not show them."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The value must be one of `names`, or have a form that one of the other attributes allows.

    With `dotted`, the value may name a plug-in, as `package.module:Class` or in the form that `dotted` describes. With
    `schemes`, the value may be an address with one of these schemes; with `addressed`, an address with a plug-in
    as its scheme (`package.module:function://…`).
    """

    names: tuple[str, ...]
    dotted: bool | str = False
    schemes: tuple[str, ...] = ()
    addressed: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: str) -> str:
        scheme, separator, rest = value.partition("://")
        if separator:
            plug_in = self.addressed and ":" in scheme and _is_dotted(scheme)
            fits = bool(rest) and (scheme in self.schemes or plug_in)
        else:
            fits = value in self.names or (bool(self.dotted) and _is_dotted(value))
        if not fits:
            raise ValueError
        return value

    @property
    def text(self) -> str:
        words = [*self.names, *(f"{scheme}://…" for scheme in self.schemes)]
        if self.dotted:
            words.append(f"a dotted path {'package.module:Class' if self.dotted is True else self.dotted}")
        return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]


def _is_dotted(value: str) -> bool:
    parts = value.replace(":", ".", 1).split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _no_bool(value: Any) -> Any:
    """Refuse a boolean (YAML reads `yes` and `on` as booleans), since Python accepts a boolean as a number."""
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - pydantic reports a ValueError as a fault of the value
    return value


def _not_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError
    return value


def _size(value: Any) -> Any:
    """Convert a size such as `512M`, `2G` or `1.5GiB` to bytes; the units are powers of 1024."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError
        return int(float(match[1]) * _UNITS[match[2].upper()])
    return _no_bool(value)


_PERCENT = re.compile(r"\s*(\d{1,3})\s*%\s*")


def _memory(value: Any) -> Any:
    """Convert a size such as `2G` to bytes; a share of this machine's memory (`50%`) is returned unchanged."""
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        if not 1 <= int(match[1]) <= 100:
            raise ValueError
        return f"{int(match[1])}%"
    if (size := _size(value)) < 1:
        raise ValueError
    return size


def memory_in_bytes(value: int | str | None, machine: int) -> int | None:
    """A limit of the kind `Memory` in bytes, on a machine with `machine` bytes of memory; None for no limit."""
    return machine * int(value[:-1]) // 100 if isinstance(value, str) else value


def memory_text(value: int | str | None) -> str:
    """A limit of the kind `Memory` as a text for people."""
    return f"{value} of this machine's memory" if isinstance(value, str) else size_text(value or 0)


def size_text(value: int) -> str:
    """The shortest exact text of a size: 2147483648 → `2G`."""
    for unit in ("T", "G", "M", "K"):
        if value and value % _UNITS[unit] == 0:
            return f"{value // _UNITS[unit]}{unit}"
    return str(value)


def _url(value: Any) -> Any:
    if isinstance(value, str):
        try:
            parts = urlsplit(value)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # the port of the address is not a number from 0 to 65535, or a bracket is not closed
            fits = False
        if not fits or value != value.strip():
            raise ValueError
    return value


_BARE = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/\S*)?")


def _server(value: Any) -> Any:
    """Check the URL of a model server, which may lack the scheme: LM Studio and Ollama show their own addresses as
    `localhost:1234`."""
    if isinstance(value, str) and _BARE.fullmatch(value):
        _url(f"http://{value}")
        return value
    return _url(value)


PLACES = ("file", "s3", "gs", "gcs", "abfs", "az", "sftp", "ssh")
"""The allowed URL schemes of a place: `file`, and schemes of fsspec for storage on other hosts."""


def _place(value: Any) -> Any:
    """Check that the value is an absolute path, or an address with a scheme of PLACES."""
    if isinstance(value, str):
        try:
            parts = urlsplit(_check_one_line(value))
            local = parts.scheme in ("", "file")
            fits = value.startswith("/") if not parts.scheme else parts.scheme in PLACES and "://" in value
            fits = fits and (parts.path.startswith("/") and not parts.netloc if local else bool(parts.netloc))
        except ValueError:
            fits = False
        if not fits or value != value.strip():
            raise ValueError
    return value


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = ("content-length", "transfer-encoding", "content-type", "connection", "host", "accept-encoding")


def _header(value: Any) -> Any:
    """Check that the value is a header name by RFC 9110, and refuse the headers that the HTTP client sets itself."""
    if isinstance(value, str) and (not _HEADER.fullmatch(value) or value.lower() in _OURS):
        raise ValueError("a name of an HTTP header that is not one of " + ", ".join(_OURS))
    return value


def _check_one_line(path: str) -> str:
    """Check that a path has no line break and no other control character, since logs, git and SQLite need a path on one
    line, and a NUL ends a path in C."""
    found = next((sign for sign in path if unicodedata.category(sign) in ("Cc", "Zl", "Zp")), None)
    if found is not None:
        raise ValueError(f"a path with U+{ord(found):04X} in it; take out line breaks and other control characters")
    return path


def _rooted(value: Any, info: ValidationInfo) -> Any:
    """Convert a path to an absolute path: `~` is the home folder, and a relative path starts from the folder of
    config.yaml."""
    if isinstance(value, str):
        _not_blank(value)
    if isinstance(value, str | os.PathLike):
        path = Path(_check_one_line(os.fspath(value))).expanduser()
        root = (info.context or {}).get("root")
        return Path(os.path.normpath(root / path)) if root is not None else path
    return value


Whole = Annotated[int, BeforeValidator(_no_bool)]
MOST_PRIORITY = 1000
Priority = Annotated[int, BeforeValidator(_no_bool), Ge(-MOST_PRIORITY), Le(MOST_PRIORITY)]
Number = Annotated[float, BeforeValidator(_no_bool), AllowInfNan(False)]
Text = Annotated[str, BeforeValidator(_not_blank), Allowed("text")]
Url = Annotated[str, BeforeValidator(_url), Allowed("an address http://… or https://…")]
ServerUrl = Annotated[str, BeforeValidator(_server), Allowed("an address http://…, https://… or host:port")]
SIZE = Allowed("bytes, as a number or like 512M or 2G")
Size = Annotated[int, BeforeValidator(_size), Ge(1), SIZE]
Memory = Annotated[
    int | str,
    BeforeValidator(_memory),
    Allowed("bytes, as a number or like 512M or 2G, or a share of this machine's memory like 50%"),
]
PlaceText = Annotated[
    str,
    BeforeValidator(_place),
    Allowed("an absolute path, or an address file://…, s3://…, gs://…, abfs://… or sftp://…"),
]
RootPath = Annotated[Path, BeforeValidator(_rooted), Allowed("a path; a relative one counts from config.yaml's folder")]
Header = Annotated[str, BeforeValidator(_header), Allowed("a name of an HTTP header")]
Secret = Annotated[SecretStr, Allowed("text (a secret)")]
