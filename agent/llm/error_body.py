"""Reads the bodies of error responses: messages, codes and numbers, from a body of any shape.

Error bodies have one of these shapes: objects (`{"error": {...}}`), bare strings (`{"error": "..."}`), FastAPI's
`detail` with one entry per field, lists of errors, JSON inside a message (a gateway quotes the server behind it), HTML
pages of a proxy, an empty body. `error_mapping.py` maps the parsed error body (`ErrorBody`) to a typed error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

MASKED = re.compile(r"(?<![\w.~+/=-])[\w.~+/=-]*+(?:\*{3,}|[•●]{3,})(?:[\w.~+/=•●*-]*[\w=•●*-])?")
"""Matches a masked API key in a server's message; some servers show the beginning or the end of the key."""
_OPENS_TITLE = re.compile("<title", re.IGNORECASE)
_CLOSES_TITLE = re.compile("</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]++(?:>|\Z)")
"""Matches an HTML tag, or an unclosed `<` with all text after it, so that the search for tags does not start again at
each `<`."""
CAP = 600  # maximum characters of a server's text that an error message of this program quotes
MATCHED = 8_192  # maximum characters of an error body that are searched, since the body may be very long
# the maximum number of error codes (the innermost are preferred), and of characters of one code
MOST_CODES, CODE = 64, 200
DEEPEST = 16  # maximum depth of nested JSON: a gateway may quote a router, which quotes a server
BRANCHES = 16  # maximum number of errors that are read from a list of errors
MOST_WORDS = 64  # maximum number of texts of nested errors that are compared with each other, outermost first
MOST_TRIES = 64  # maximum number of brackets in a text at which the search for embedded JSON begins
LONGEST = MATCHED + MOST_CODES * (CODE + 1)
"""Maximum characters of `ErrorBody.text`."""
WRAPPERS = ("error", "errors", "detail", "details", "innererror", "base_resp", "cause", "raw", "metadata", "body")
"""Keys of an error body of which the value may be the error itself, or a quoted error of another server."""
CODES = ("code", "type", "status", "reason", "error_code", "errorcode", "__type", "status_code", "error_type", "name")
PLACES = ("body", "query", "path", "header", "__root__")
"""First elements of a `loc` (the place of an error in a request) in FastAPI's errors that are not names of
parameters."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """A parsed error body.  `status` is the HTTP status, None when the error arrived inside a stream that began with
    status 200.

    `codes` are the codes, types and reasons of the error body and of nested errors, in lower case, the innermost last;
    `params` are the parameters that the error body names, as dotted paths (`messages.0.content`, `max_tokens`).
    `generation` is True if the error body quotes text that the model generated.
    """

    status: int | None = None
    message: str = ""
    codes: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    limit: int | None = None  # maximum tokens of a request that the error body names under the key `n_ctx`
    requested: int | None = None  # tokens of the prompt that the error body names under the key `n_prompt_tokens`
    html: bool = False
    retry_after: float | None = None
    generation: bool = False

    @property
    def text(self) -> str:
        """The message and codes of an error in one lower-case string, in which known codes and wordings are searched
        for."""
        return " ".join([self.message, *self.codes]).lower()

    @property
    def quoted(self) -> str:
        """The server's error message (without one, an error code) as a quotation: masked keys are replaced, and it has
        at most CAP characters."""
        code = next((code for code in self.codes if not code.isdigit()), "")
        words = MASKED.sub("***", " ".join(self.message.split())) or code or "no reason given"
        return words if len(words) <= CAP else f"{words[: CAP - 1]}…"


def parse_error_body(status: int | None, body: bytes, headers: Mapping[str, str] | None = None) -> ErrorBody:
    """Parse the body of an error response; the body may have any form."""
    headers = {name.lower(): value for name, value in (headers or {}).items()}
    text = body.decode("utf-8", "replace").strip()[:MATCHED]
    if looks_like_html(text, headers.get("content-type", "")):
        title = _title(text)
        words = title if title is not None else _TAG.sub(lambda tag: " " if tag[0].endswith(">") else tag[0], text)
        return ErrorBody(status, words.strip(), html=True, retry_after=retry_after("", headers))
    try:
        parsed: Any = orjson.loads(body) if text else {}
    except orjson.JSONDecodeError:
        parsed = text
    return parse_document(status, parsed, headers)


def parse_document(status: int | None, parsed: Any, headers: Mapping[str, str] | None = None) -> ErrorBody:
    """Make an `ErrorBody` from the body of an error response that was decoded from JSON."""
    found = ErrorParts()
    found.add(parsed, DEEPEST)
    message = found.message[:MATCHED]
    return ErrorBody(
        status,
        message,
        tuple(dict.fromkeys(found.codes))[-MOST_CODES:],
        tuple(dict.fromkeys(found.params)),
        found.limit,
        found.requested,
        retry_after=retry_after(f"{message} {found.delay}", headers or {}),
        generation=found.generation,
    )


@dataclass
class ErrorParts:
    """Collects the parts of an error body while it is read, from the outermost to the innermost of nested errors."""

    words: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    limit: int | None = None
    requested: int | None = None
    delay: str = ""
    generation: bool = False

    @property
    def message(self) -> str:
        """The texts of the nested errors, joined without repetitions, with the text of the outermost error first."""
        said: list[str] = []
        for words in self.words[:MOST_WORDS]:
            if not any(words in other for other in said):
                said = [other for other in said if other not in words]
                said.append(words)
        text = ""
        for words in said:
            apart = "; " if words.partition(":")[0] in self.params else ": "
            text += (apart if text else "") + words
        return text

    def add(self, value: Any, depth: int) -> None:
        """Read a decoded error body, or a part of an error body, down to `depth` further levels."""
        if depth <= 0 or value is None:
            return
        if isinstance(value, str):
            self._text(value, depth)
        elif isinstance(value, list):
            for entry in value[:BRANCHES]:
                self.add(entry, depth - 1)
        elif isinstance(value, dict):
            self._error(value, depth)

    def _text(self, text: str, depth: int) -> None:
        """Read a text of an error body; JSON inside the text is read as a nested error."""
        text = text.strip()[:MATCHED]
        start, inner = _embedded(text)
        if inner is None:
            if text:
                self.words.append(text)
            return
        before = text[:start].strip().rstrip(":-").strip()
        if before:
            self.words.append(before)
        self.add(inner, depth - 1)

    def _error(self, error: Mapping[str, Any], depth: int) -> None:
        self._names(error)
        self.limit = self.limit or _number(error.get("n_ctx"))
        self.requested = self.requested or _number(error.get("n_prompt_tokens"))
        self.generation |= bool(error.get("failed_generation"))
        if isinstance(error.get("retryDelay"), str):  # Google's RetryInfo contains the time to wait
            self.delay = f"retryDelay {error['retryDelay']}"
        for key in ("message", "msg", "Message", "error_description", "error_message", "status_msg"):
            if isinstance(error.get(key), str | dict | list):
                self.add(error[key], depth - 1)
                break
        else:
            # an object without known keys, such as {"error parsing tool call": "invalid character"}: its texts are the
            # error message
            if not set(error) & {*WRAPPERS, *CODES}:
                self.words.extend(f"{key}: {value}" for key, value in error.items() if isinstance(value, str))
        for key in WRAPPERS:
            if key in error:
                self.add(error[key], depth - 1)

    def _names(self, error: Mapping[str, Any]) -> None:
        for key in CODES:
            value = error.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and (code := str(value).strip().lower()):
                self.codes.append(code[:CODE])
        place = error.get("loc")
        if isinstance(place, list):
            parts = list(dropwhile(PLACES.__contains__, map(str, place)))
            if parts:
                self.params.append(".".join(parts)[:MATCHED])
                if isinstance(error.get("msg"), str):
                    self.words.append(f"{'.'.join(parts)}: {error['msg'].strip()}")
        if isinstance(error.get("param"), str) and error["param"].strip():
            self.params.append(re.sub(r"\.?\[(\w+)\]", r".\1", error["param"].strip()[:MATCHED]))


def _embedded(text: str) -> tuple[int, Any]:
    """Find JSON with an error inside a text: (offset of the JSON, the decoded object or list), or (-1, None)."""
    for found in islice(re.finditer(r"[{\[]", text), MOST_TRIES):
        start = found.start()
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        entry = value[0] if isinstance(value, list) and value else value
        if isinstance(entry, dict) and ({"message", "msg", *WRAPPERS} & set(entry)):
            return start, value
        if end >= len(text):
            break
    return -1, None


def _title(text: str) -> str | None:
    """The title of an HTML page, None if it has none.

    The closing tag `</title>` is searched only once: if none follows the first opening tag, none follows a later
    opening tag.
    """
    if (opening := _OPENS_TITLE.search(text)) is None or (start := text.find(">", opening.end()) + 1) == 0:
        return None
    closing = _CLOSES_TITLE.search(text, start)
    return text[start : closing.start()] if closing else None


def looks_like_html(text: str, content_type: str = "") -> bool:
    """Whether an answer is an HTML page, by its content type or the beginning of its text; a proxy or a wrong address
    may send one."""
    begins = text[:200].lstrip().lower()
    return "text/html" in content_type.lower() or begins.startswith(("<!doctype", "<html", "<head"))


_UNITS = r"(?:ms|milliseconds?|h|hours?|m|min|minutes?|s|secs?|seconds?)"
_NUMBER = r"\d{1,9}(?:\.\d{1,15})?"
_AGAIN = re.compile(
    r"(?:try again|retry|retry again|available again|wait|retrydelay)\s{0,9}(?:in|after|for|:|=)?\s{0,9}"
    rf"(?:about |approximately )?((?:{_NUMBER}\s{{0,9}}{_UNITS}\b,?\s{{0,9}}|{_NUMBER}[hms](?=\d))+)",
    re.IGNORECASE,
)
_PART = re.compile(rf"({_NUMBER})\s{{0,9}}(ms|milli|h|m|s)", re.IGNORECASE)
_UNIT = {"ms": 0.001, "milli": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def retry_after(text: str, headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before a retry: the longest of the headers `retry-after-ms` and `retry-after` (seconds or a date)
    and of a time that the text names.

    `retry_after` returns None when the response names no time to wait; the result is not negative. The names of
    `headers` must be in lower case.
    """
    found: list[float] = []
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            found.append(float(value) * unit)
        except ValueError:
            found.extend(_date(value))
    if match := _AGAIN.search(text):
        found.append(sum(float(number) * _UNIT[unit.lower()] for number, unit in _PART.findall(match.group(1))))
    sane = [max(0.0, seconds) for seconds in found if seconds == seconds]  # noqa: PLR0124 - NaN, which is unequal to itself, is left out
    return max(sane) if sane else None


def _date(value: str) -> list[float]:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return []
    if moment.tzinfo is None:
        return []
    return [(moment - clock.now()).total_seconds()]


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
