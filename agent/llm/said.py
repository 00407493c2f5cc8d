"""What a server said when it refused: the words, codes and numbers of an error body, whatever its shape.

Objects (`{"error": {...}}`), bare strings (`{"error": "..."}`), FastAPI's `detail` with one entry a field, lists of
errors, JSON inside a message (gateways quote the server behind them), HTML pages of a proxy, no body at all.  Pure
functions; `faults.py` makes typed errors of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

MASKED = re.compile(r"(?<![\w.~+/=-])[\w.~+/=-]*+(?:\*{3,}|[•●]{3,})(?:[\w.~+/=•●*-]*[\w=•●*-])?")
"""A key of which a server shows the beginning or the end."""
CAP = 600  # characters of a server's words that go into a message
MATCHED = 8_192  # characters that are looked at; an error body may be a megabyte of anything
DEEPEST = 16  # containers inside each other: a gateway before a router before a server
BRANCHES = 16  # errors beside each other
WRAPPERS = ("error", "errors", "detail", "details", "innererror", "base_resp", "cause", "raw", "metadata", "body")
"""Where an error body keeps the error itself, or the one behind it."""
CODES = ("code", "type", "status", "reason", "error_code", "errorcode", "__type", "status_code", "error_type", "name")
PLACES = ("body", "query", "path", "header", "__root__")
"""Beginnings of a FastAPI `loc` that name no parameter."""


@dataclass(frozen=True, slots=True)
class Said:
    """`status` None: the error came inside a stream that began with 200.

    `codes` are all codes, types and reasons of the body and of the errors in it, in lower case, the innermost last;
    `params` the parameters that it names, as dotted paths (`messages.0.content`, `max_tokens`).
    `generation`: the body quotes what the model had written.
    """

    status: int | None = None
    message: str = ""
    codes: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    limit: int | None = None  # n_ctx
    requested: int | None = None  # n_prompt_tokens
    html: bool = False
    retry_after: float | None = None
    generation: bool = False

    @property
    def text(self) -> str:
        """Message and codes in one lower-case string, for matching."""
        return " ".join([self.message, *self.codes]).lower()

    @property
    def quote(self) -> str:
        """The words for a person."""
        code = next((code for code in self.codes if not code.isdigit()), "")
        words = MASKED.sub("***", " ".join(self.message.split())) or code or "no reason given"
        return words if len(words) <= CAP else f"{words[: CAP - 1]}…"


def hear(status: int | None, body: bytes, headers: Mapping[str, str] | None = None) -> Said:
    """Read an error body of any shape."""
    headers = {name.lower(): value for name, value in (headers or {}).items()}
    text = body.decode("utf-8", "replace").strip()[:MATCHED]
    if looks_like_html(text, headers.get("content-type", "")):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        words = title.group(1) if title else re.sub(r"<[^>]+>", " ", text)
        return Said(status, words.strip(), html=True, retry_after=retry_after("", headers))
    try:
        parsed: Any = orjson.loads(body) if text else {}
    except orjson.JSONDecodeError:
        parsed = text
    return read(status, parsed, headers)


def read(status: int | None, parsed: Any, headers: Mapping[str, str] | None = None) -> Said:
    """The same, of a parsed body."""
    found = Found()
    found.take(parsed, DEEPEST)
    message = found.message[:MATCHED]
    return Said(
        status,
        message,
        tuple(dict.fromkeys(found.codes)),
        tuple(dict.fromkeys(found.params)),
        found.limit,
        found.requested,
        retry_after=retry_after(f"{message} {found.delay}", headers or {}),
        generation=found.generation,
    )


@dataclass
class Found:
    """What was found so far, from the outside in."""

    words: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    limit: int | None = None
    requested: int | None = None
    delay: str = ""
    generation: bool = False

    @property
    def message(self) -> str:
        """All words, each once: what the outer error says, then the ones that it quotes."""
        said: list[str] = []
        for words in self.words:
            if not any(words in other for other in said):
                said = [other for other in said if other not in words]
                said.append(words)
        text = ""
        for words in said:
            apart = "; " if words.partition(":")[0] in self.params else ": "
            text += (apart if text else "") + words
        return text

    def take(self, value: Any, depth: int) -> None:
        """One error body, or a part of one."""
        if depth <= 0 or value is None:
            return
        if isinstance(value, str):
            self._text(value, depth)
        elif isinstance(value, list):
            for entry in value[:BRANCHES]:
                self.take(entry, depth - 1)
        elif isinstance(value, dict):
            self._error(value, depth)

    def _text(self, text: str, depth: int) -> None:
        """Words, with the JSON that stands in them read as what it is."""
        text = text.strip()[:MATCHED]
        start, inner = _embedded(text)
        if inner is None:
            if text:
                self.words.append(text)
            return
        before = text[:start].strip().rstrip(":-").strip()
        if before:
            self.words.append(before)
        self.take(inner, depth - 1)

    def _error(self, error: Mapping[str, Any], depth: int) -> None:
        self._names(error)
        self.limit = self.limit or _number(error.get("n_ctx"))
        self.requested = self.requested or _number(error.get("n_prompt_tokens"))
        self.generation |= bool(error.get("failed_generation"))
        if isinstance(error.get("retryDelay"), str):  # Google's RetryInfo
            self.delay = f"retryDelay {error['retryDelay']}"
        for key in ("message", "msg", "Message", "error_description", "error_message", "status_msg"):
            if isinstance(error.get(key), str | dict | list):
                self.take(error[key], depth - 1)
                break
        else:
            if not set(error) & {*WRAPPERS, *CODES}:  # {"error parsing tool call": "invalid character"}
                self.words.extend(f"{key}: {value}" for key, value in error.items() if isinstance(value, str))
        for key in WRAPPERS:
            if key in error:
                self.take(error[key], depth - 1)

    def _names(self, error: Mapping[str, Any]) -> None:
        for key in CODES:
            value = error.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and (code := str(value).strip().lower()):
                self.codes.append(code[:200])
        place = error.get("loc")
        if isinstance(place, list):
            parts = [str(part) for part in place]
            while parts and parts[0] in PLACES:
                parts = parts[1:]
            if parts:
                self.params.append(".".join(parts))
                if isinstance(error.get("msg"), str):
                    self.words.append(f"{'.'.join(parts)}: {error['msg'].strip()}")
        if isinstance(error.get("param"), str) and error["param"].strip():
            self.params.append(re.sub(r"\.?\[(\w+)\]", r".\1", error["param"].strip()))


def _embedded(text: str) -> tuple[int, Any]:
    """(where it begins, the object or list that a text holds), None for a text that holds none."""
    for found in re.finditer(r"[{\[]", text):
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


def looks_like_html(text: str, content_type: str = "") -> bool:
    """A page of a proxy or of a wrong address."""
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
    """Seconds to wait: the longest of `retry-after-ms`, `retry-after` (seconds or a date) and the words of the text.
    None when nothing was said; never negative.  Header names are lower case."""
    found: list[float] = []
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            found.append(float(value) * unit)
        except ValueError:
            found.extend(_date(value))
    if match := _AGAIN.search(text):
        found.append(sum(float(number) * _UNIT[unit.lower()] for number, unit in _PART.findall(match.group(1))))
    sane = [max(0.0, seconds) for seconds in found if seconds == seconds]  # noqa: PLR0124 - not a number
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
