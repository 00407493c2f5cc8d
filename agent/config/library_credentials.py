"""Finds credentials that libraries of this program find themselves, in environment variables with fixed names and in
files.

No key of config.yaml contains these credentials, so `Settings.secrets` would miss them. `library_credentials.py` reads
credentials only to declare them as secrets. The libraries that find credentials themselves are the drivers of S3, GCS
and Azure, the clients of message brokers in clouds, of PostgreSQL and of Hugging Face, and OpenTelemetry's exporter.
Documentation of the variables and files in which these libraries find credentials: botocore, google-auth, adlfs and
azure-identity; libpq, 34.15 and 34.16; fsspec, "Configuration"; OpenTelemetry, "OTLP Exporter Configuration".
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLES = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    *("AWS_BEARER_TOKEN_BEDROCK", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET", "AZURE_PASSWORD"),
    *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    *("AZURE_CLIENT_CERTIFICATE_PASSWORD", "PGPASSWORD", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
)
"""Environment variables that have a credential as their value, or as `name=value` inside their value."""

FILES = {
    "GOOGLE_APPLICATION_CREDENTIALS": ".config/gcloud/application_default_credentials.json",
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials",
    "AWS_CONFIG_FILE": ".aws/config",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "",
    "AZURE_FEDERATED_TOKEN_FILE": "",
    "AZURE_CLIENT_CERTIFICATE_PATH": "",
    "PGPASSFILE": ".pgpass",
}
"""Environment variable with the path of a credentials file → the default path of that file below HOME, "" if there is
none."""

DRIVER = re.compile(r"FSSPEC_[A-Z0-9]+(?:_(\w+))?")
"""Matches environment variables with one option of an fsspec driver, or with all its options as JSON."""

LARGEST = 256 << 10
"""Maximum bytes of a credentials file; a larger file is ignored."""

_TELLING = re.compile(r"(?:key|token|secret|password|passwd|signature|\bsig)$", re.IGNORECASE)
_PAIR = re.compile(r"^\s*([\w.-]+)\s*[=:]\s*(\S.*?)\s*$")
_SEPARATOR = re.compile(r"[;&?\n]")


def find_credentials(environ: Mapping[str, str]) -> Iterator[str]:
    """Every credential in the variables and files, as a whole and in parts; files that cannot be read are ignored."""
    for name in VARIABLES:
        value = environ.get(name, "")
        yield value
        yield from _pairs(value)
        if name.startswith("OTEL_"):
            yield from _header_values(value)
    for name, value in environ.items():
        if match := DRIVER.fullmatch(name):
            yield from _values(value if match[1] is None else json.dumps({match[1]: value}))
    home = environ.get("HOME", "")
    for name, below_home in FILES.items():
        path = environ.get(name) or (f"{home}/{below_home}" if home and below_home else "")
        text = _text_of(path)
        yield from _passwords(text) if name == "PGPASSFILE" else _values(text)


def _values(text: str) -> Iterator[str]:
    """The values with a secret's name, in JSON or in `name = value` lines; the whole text if it is a key or a single
    word."""
    text = text.strip()
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        if "-----BEGIN" in text or (text and not re.search(r"\s", text)):
            yield text
        yield from _pairs(text)
    else:
        yield from _telling(data)


def _telling(data: Any) -> Iterator[str]:
    waiting = [("", data)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((str(key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((name, inner) for inner in value)
        elif isinstance(value, str) and _TELLING.search(name):
            yield value


def _header_values(text: str) -> Iterator[str]:
    """The values in a text `name=value,name=value`, both as they are written and as they are sent."""
    for pair in text.split(","):
        value = pair.partition("=")[2].strip()
        yield value
        yield unquote(value)
        yield unquote(value).rpartition(" ")[2]  # in `Bearer TOKEN`, the token alone


def _pairs(text: str) -> Iterator[str]:
    for part in _SEPARATOR.split(text):
        pair = _PAIR.match(part)
        if pair is not None and _TELLING.search(pair[1]):
            yield pair[2]


def _passwords(text: str) -> Iterator[str]:
    r"""The passwords of a .pgpass file: the last field of `host:port:database:user:password`, with the escapes `\:` and
    `\\` resolved."""
    for line in text.splitlines():
        fields = re.split(r"(?<!\\):", line, maxsplit=4)
        if len(fields) == 5 and not line.startswith("#"):
            yield re.sub(r"\\(.)", r"\1", fields[4])


def _text_of(path: str) -> str:
    """The text of a regular file; "" if the path is no regular file, or if the file is too large or cannot be read."""
    if not path:
        return ""
    try:
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError, ValueError):
        return ""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return ""
        return os.read(descriptor, LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
