"""Downloads a set of templates (`prompts.url`) into a file of base_dir, from which the loader reads it.

The daemon downloads the templates in a thread of its own (`daemon/template_reloader.py`), and the command `prompts
reload` downloads them; tasks do not, so a server that hangs delays no task. The document with templates is a JSON
object with `templates`, a list of objects with the fields of a template, and `schemas`, a mapping of `schema_ref` to
JSON Schema. The document with templates is accepted only if its SHA-256 is `prompts.sha256`, or without a check if
`prompts.sha256` is not set and the configuration allows that.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, durable_files
from agent.error_text import named
from agent.prompts.revision import TemplateRefused, hash_of
from agent.prompts.template_files import MOST_FILES, check_schema, parse_json

if TYPE_CHECKING:
    import requests

    from agent.config import Settings

NAME = "prompts.download.json"
"""The file in base_dir that stores the downloaded document with templates: a JSON object with `url`, `etag`, `sha256`
and `text`."""
LIMIT = 1 << 20
"""The maximum size of a document with templates in bytes."""
TIMEOUTS = (5.0, 10.0)
"""Timeout in seconds for the connection to the server of templates, and for each read of its answer."""
WHOLE_SECONDS = 30.0
"""Maximum seconds until the whole answer of the server of templates has arrived, its head included."""
MOST_HANGING = 8
"""Maximum number of requests for templates that still run although their callers no longer wait for the answer."""
_hanging: list[threading.Thread] = []


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A document with templates that was downloaded from `url`; `sha256` is the hash of `text` in UTF-8."""

    url: str
    etag: str
    sha256: str
    text: str


def read_download(settings: Settings) -> Downloaded | None:
    """The document with templates that base_dir stores; None if none is stored from the configured address with the
    configured hash."""
    try:
        data = orjson.loads((settings.base_dir / NAME).read_bytes())
        found = Downloaded(*(str(data[name]) for name in ("url", "etag", "sha256", "text")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    pin = settings.prompts.sha256
    right = found.url == settings.prompts.url and pin in (None, found.sha256)
    return found if right and _hash(found.text.encode("utf-8", "surrogatepass")) == found.sha256 else None


def mark_of_download(settings: Settings) -> tuple[str, float]:
    """Returns (a text that changes when the document with templates changes, the time of its download in seconds since
    1970); ("", 0.0) if no document is stored."""
    found = read_download(settings)
    if found is None:
        return "", 0.0
    return hash_of([found.url, found.sha256]), (settings.base_dir / NAME).stat().st_mtime


def parse_document(where: str, text: str) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
    """Parse a document with templates; returns (a list with, for each template, a description of its place for messages
    and its fields; the mapping `schemas`). Raises TemplateRefused."""
    document = parse_json(where, text)
    if not isinstance(document, dict) or set(document) - {"templates", "schemas"}:
        raise TemplateRefused(f"{where}: it must be one object with `templates` and `schemas`")
    templates, schemas = document.get("templates"), document.get("schemas", {})
    if not isinstance(templates, list) or not all(isinstance(one, dict) for one in templates):
        raise TemplateRefused(f"{where}: templates must be a list of objects with the fields of a template")
    if not isinstance(schemas, dict) or len(templates) + len(schemas) > MOST_FILES:
        raise TemplateRefused(f"{where}: schemas is a mapping; {MOST_FILES} templates and schemas are allowed in all")
    names = [str(one.get("name")) for one in templates]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TemplateRefused(f"{where}: the template {twice!r} is there twice; keep one")
    for ref, schema in schemas.items():
        check_schema(f"{where}: schema {ref}", schema)
    return [(f"{where}: template {name}", one) for name, one in zip(names, templates, strict=True)], schemas


def download(settings: Settings) -> bool:
    """Ask the server for the document with templates, and store it if it has changed; returns whether its text has
    changed.

    Raises TemplateRefused if the document with templates cannot be downloaded, is invalid or too large, or has another
    hash than the configured one; the stored document is then unchanged. Raises DiskError."""
    url = settings.prompts.url
    assert url is not None, "the callers check this"
    before = read_download(settings)
    answer = _ask_in_time(url, before.etag if before is not None else "")
    if answer is None:
        return False
    data, etag = answer
    sha = _hash(data)
    if (pin := settings.prompts.sha256) is not None and sha != pin:
        raise TemplateRefused(f"prompts.url: {url} has the SHA-256 {sha}; prompts.sha256 allows {pin} alone")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TemplateRefused(f"prompts.url: {url}: byte {error.start} is not UTF-8") from None
    parse_document(url, text)
    if before is not None and (before.sha256, before.etag) == (sha, etag):
        return False
    durable_files.make_dir(settings.base_dir, durable_files.passable())
    record = {"url": url, "etag": etag, "sha256": sha, "text": text, "at": clock.stamp()}
    durable_files.write_file(settings.base_dir / NAME, orjson.dumps(record))
    return before is None or before.sha256 != sha


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _ask_in_time(url: str, etag: str) -> tuple[bytes, str] | None:
    """Call `_request_document`, but raise TemplateRefused if the answer of the server has not arrived within
    WHOLE_SECONDS, or if MOST_HANGING earlier requests still run.

    The time limits of a connection hold for each read, so a server that sends the head of its answer byte by byte would
    hold the caller for hours. So that the caller waits at most WHOLE_SECONDS for the templates, a separate thread
    requests them.
    """
    _hanging[:] = [one for one in _hanging if one.is_alive()]
    late = TemplateRefused(f"prompts.url: {url} has not answered whole within {WHOLE_SECONDS:g} s")
    if len(_hanging) >= MOST_HANGING:
        raise late
    found: Future[tuple[bytes, str] | None] = Future()

    def ask() -> None:
        try:
            found.set_result(_request_document(url, etag))
        except Exception as error:  # noqa: BLE001 - the waiting thread raises the error
            found.set_exception(error)

    thread = threading.Thread(target=ask, name="download of templates", daemon=True)
    thread.start()
    try:
        return found.result(WHOLE_SECONDS + 1)
    except TimeoutError:
        _hanging.append(thread)
        raise late from None


def _request_document(url: str, etag: str) -> tuple[bytes, str] | None:
    """Returns (body, ETag) of the document with templates; None if the server answers that the document has not
    changed."""
    import requests

    headers = {"Accept": "application/json", "Accept-Encoding": "identity", **({"If-None-Match": etag} if etag else {})}
    session = requests.Session()
    session.auth = _no_login  # keeps `requests` from sending credentials from ~/.netrc
    try:
        with session, session.get(url, headers=headers, timeout=TIMEOUTS, stream=True, allow_redirects=False) as answer:
            if answer.status_code == requests.codes.not_modified and etag:
                return None
            if answer.status_code != requests.codes.ok:
                raise TemplateRefused(f"prompts.url: {url} answered {answer.status_code}; 200 is expected, no redirect")
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise TemplateRefused(f"prompts.url: {url} answered in a compressed form, which was not asked for")
            return _body(answer, url), answer.headers.get("ETag", "")[:1000]
    except requests.RequestException as error:
        raise TemplateRefused(f"prompts.url: {url} cannot be read: {named(error)}") from error


def _no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _body(answer: requests.Response, url: str) -> bytes:
    """Read the body of a server's answer, at most LIMIT bytes in WHOLE_SECONDS; the body is read in pieces, so that the
    time limit also holds for a slow server.
    """
    import requests
    from urllib3.exceptions import HTTPError

    until, data = clock.monotonic() + WHOLE_SECONDS, b""
    try:
        while more := answer.raw.read1(65_536):
            data += more
            if len(data) > LIMIT:
                raise TemplateRefused(f"prompts.url: {url} has more than the {LIMIT} bytes that are allowed")
            if clock.monotonic() > until:
                raise TemplateRefused(f"prompts.url: {url} has not answered whole within {WHOLE_SECONDS:g} s")
    except (OSError, HTTPError) as error:
        raise requests.ConnectionError(str(error)) from error
    expected = answer.headers.get("Content-Length", "")
    if expected.isdigit() and int(expected) != len(data):
        raise TemplateRefused(f"prompts.url: {url} sent {len(data)} of {expected} bytes")
    return data
