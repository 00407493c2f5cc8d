"""Masks declared secrets: their exact values, and the encodings in which a program may write them without intent.

The masker of declared secrets is applied to comments, logs, context files and tool results. The masker does not find
secrets that are neither in the configuration nor learnt at run time; `secrets` and `token_masking` search for texts in
the form of a token or key.

A process has one masker for its configuration (`masker_of`).  Code that obtains a secret at run time (a token from a
forge, a key read from a file) calls `learn` before it uses the secret.  From the call of `learn` on, every writer masks
the secret, since all writers share the masker.
"""

from __future__ import annotations

import base64
import json
import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus
from weakref import WeakKeyDictionary

from agent import clock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from agent.config import Settings
    from agent.config.settings import Loaded

MASK = "***"
SHORTEST = 8
"""Minimum number of characters of a secret that is masked: a shorter value may occur in ordinary text."""

LINE = 24
"""Lines of at least this many characters of a multi-line secret (a key file, a JSON account) are also masked
separately, except lines that begin with `-----`."""

AFTERWARDS = timedelta(days=1)
"""For at least this long after its expiry a secret is still masked, since texts that contain it may be written
later."""


class Redactor:
    """`Redactor(secrets)(text)` returns `text` with each secret and each of its encodings replaced by `***`.

    Values shorter than 8 characters are not masked as secrets. The method `bytes` of a Redactor masks secrets in bytes.
    The attribute `secrets` has the values that are masked now. Thread-safe.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        # secret → the time after which the next `learn` that adds another secret drops this secret; None: never dropped
        self._forgotten: dict[str, datetime | None] = {}
        self.secrets: tuple[str, ...] = ()
        self.needles: tuple[str, ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self.learn(*secrets)

    def learn(self, *secrets: str, until: datetime | None = None) -> None:
        """Mask the values in `secrets` too from now on. `until` is the time at which the values expire (None: never).
        Expired values are masked for one more day at least, and then until `learn` adds another secret. A time `until`
        for a value that is masked already is ignored. A value shorter than SHORTEST is not masked."""
        with self._lock:
            new = [one for one in secrets if self._is_news(one, until)]
            if not new:
                return
            now = clock.now()
            end = None if until is None else max(until, now) + AFTERWARDS
            known = self._forgotten | dict.fromkeys(new, end)
            self._forgotten = {one: end for one, end in known.items() if end is None or end > now}
            self.secrets = tuple(self._forgotten)
            self.needles = needles(self.secrets)
            self._bytes = tuple(needle.encode("utf-8", "surrogatepass") for needle in self.needles)

    def _is_news(self, secret: str, until: datetime | None) -> bool:
        if len(secret.strip()) < SHORTEST:
            return False
        return secret not in self._forgotten or (until is None and self._forgotten[secret] is not None)

    def __call__(self, text: str) -> str:
        # The text is searched once per needle: CPython's substring search passes 10 MB in milliseconds, a regular
        # expression with alternatives in seconds.
        for needle in self.needles:
            if needle in text:
                text = text.replace(needle, MASK)
        return text

    def bytes(self, data: bytes) -> bytes:
        """`data` (UTF-8) with each secret and each of its encodings replaced by `***`."""
        for needle in self._bytes:
            if needle in data:
                data = data.replace(needle, MASK.encode())
        return data


_maskers: WeakKeyDictionary[Loaded, Redactor] = WeakKeyDictionary()
_making = threading.Lock()


def masker_of(settings: Settings) -> Redactor:
    """The masker of this process for the configuration `settings`; all copies of `settings` share one masker.

    The masker masks the secrets in the configuration and the secrets that were learnt at run time. No other function of
    `agent/` constructs a masker, so that no writer has one that does not know the learnt secrets.
    """
    with _making:
        masker = _maskers.get(settings.loaded)
        if masker is None:
            masker = _maskers[settings.loaded] = Redactor()
    masker.learn(*settings.secrets())
    return masker


def needles(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every string that is masked for `secrets`, longest first, so that a short one does not split a longer one."""
    found: set[str] = set()
    for secret in secrets:
        value = secret.strip()
        if len(value) < SHORTEST:
            continue
        found |= forms(value)
        lines = [line.strip() for line in value.splitlines()]
        if len(lines) > 1:
            for line in lines:
                if len(line) >= LINE and not line.startswith("-----"):
                    found |= forms(line)
    return tuple(sorted(found, key=lambda needle: (-len(needle), needle)))


def forms(value: str) -> set[str]:
    """`value` itself, and its forms as JSON, in URLs, in hexadecimal, and in base64 at any offset; no form shorter than
    SHORTEST."""
    data = value.encode("utf-8", "surrogatepass")
    escaped = json.dumps(value)[1:-1]
    percent = {quote(data, safe=""), quote(data), quote_plus(data), quote_plus(data, safe="/:@")}
    found = {value, escaped, json.dumps(value, ensure_ascii=False)[1:-1], escaped.replace("/", "\\/")}
    # In JSON inside JSON, such as tool arguments, a secret is escaped twice.
    found.add(json.dumps(escaped)[1:-1])
    found |= percent | {text.replace("%", "%25") for text in percent} | {_lower_percent(text) for text in percent}
    found |= {data.hex(), data.hex().upper()}
    for shift in range(3):
        found |= base64_forms(data, shift)
    return {text for text in found if len(text) >= SHORTEST}


def _lower_percent(text: str) -> str:
    head, *rest = text.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


def base64_forms(data: bytes, shift: int) -> set[str]:
    """The characters that depend on `data` alone in the base64 of a text in which `data` begins at byte 3n + `shift`,
    in the standard and the URL alphabet; for `shift` 0 also as lines of 76 characters."""
    start = math.ceil(shift * 8 / 6)
    end = (shift + len(data)) * 8 // 6
    found = set()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"\0" * shift + data).decode("ascii")[start:end]
        found.add(text)
        if shift == 0 and len(text) > 76:
            # The command `base64` breaks lines at 76 characters, so each line of the encoded secret is masked too.
            found |= {text[at : at + 76] for at in range(0, len(text) - LINE, 76)}
    return found
