"""What a server said when it refused: the words and numbers of an error body, whatever its shape.

Objects (`{"error": {...}}`), bare strings (`{"error": "..."}`), FastAPI's `detail`, lists of errors, HTML pages of a
proxy, no body at all.  Pure functions; `faults.py` makes typed errors of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

CAP = 600  # characters of a server's words that go into a message
MATCHED = 8_192  # characters that are looked at; an error body may be a megabyte of anything


@dataclass(frozen=True, slots=True)
class Said:
    """`status` None: the error came inside a stream that began with 200.  `code` and `type` are lower case."""

    status: int | None = None
    message: str = ""
    type: str = ""
    code: str = ""
    limit: int | None = None  # n_ctx
    requested: int | None = None  # n_prompt_tokens
    html: bool = False
    retry_after: float | None = None

    @property
    def text(self) -> str:
        """Message, type and code in one lower-case string, for matching."""
        return f"{self.message} {self.type} {self.code}".lower()

    @property
    def quote(self) -> str:
        """The words for a person."""
        words = " ".join(self.message.split()) or self.code or self.type or "no reason given"
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
        return Said(status, text, retry_after=retry_after(text, headers))
    return read(status, parsed, headers)


def read(status: int | None, parsed: Any, headers: Mapping[str, str] | None = None) -> Said:
    """The same, of a parsed body."""
    if isinstance(parsed, list):
        parsed = parsed[0] if parsed else {}
    if not isinstance(parsed, dict):
        parsed = {"error": parsed}
    error = parsed.get("error", parsed.get("errors", parsed.get("detail", parsed)))
    if isinstance(error, list):
        error = error[0] if error else {}
    if not isinstance(error, dict):
        error = {"message": str(error if error is not None else "")}
    message = _word(error, "message") or _word(error, "msg") or _word(error, "detail") or _word(parsed, "message")
    detail = error.get("metadata")
    if isinstance(detail, dict) and isinstance(detail.get("raw"), str):
        message = f"{message}: {detail['raw']}"  # a router quotes the provider behind it
    message = message[:MATCHED]
    numbers = error if "n_ctx" in error or "n_prompt_tokens" in error else parsed
    return Said(
        status,
        message,
        _word(error, "type").lower() or (_word(error, "status").lower()),
        _word(error, "code").lower(),
        _number(numbers.get("n_ctx")),
        _number(numbers.get("n_prompt_tokens")),
        retry_after=retry_after(f"{message} {_delay(error)}", headers or {}),
    )


def looks_like_html(text: str, content_type: str = "") -> bool:
    """A page of a proxy or of a wrong address."""
    begins = text[:200].lstrip().lower()
    return "text/html" in content_type.lower() or begins.startswith(("<!doctype", "<html", "<head"))


_UNITS = r"(?:ms|milliseconds?|h|hours?|m|min|minutes?|s|secs?|seconds?)"
_AGAIN = re.compile(
    r"(?:try again|retry|retry again|available again|wait|retrydelay)\s*(?:in|after|for|:|=)?\s*"
    rf"(?:about |approximately )?((?:\d+(?:\.\d+)?\s*{_UNITS}\b,?\s*|\d+(?:\.\d+)?[hms](?=\d))+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|h|m|s)", re.IGNORECASE)
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


def _delay(error: Mapping[str, Any]) -> str:
    """Google's RetryInfo: `details: [{"retryDelay": "34s"}]`."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return f"retryDelay {detail['retryDelay']}"
    return ""


def _word(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return "" if value is None else str(value)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
