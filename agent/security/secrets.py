"""Searches a change for secrets before it is published: declared ones, and shapes of well-known tokens and keys.

The search for secrets reads the diff as a stream, in bounded memory for any length of line. A finding about a secret
names file, line and kind, never the value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.added_lines import LONGEST_LINE, added_lines
from agent.security.example_keys import is_example
from agent.security.redact import SHORTEST, needles
from agent.security.secret_spellings import spellings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OVERLAP = 4096
"""Neighbouring pieces of a long line overlap by this many bytes, more than the longest known form of a token has; the
overlap is larger if a declared secret is longer."""

MOST = 50
"""Maximum number of findings about secrets that are listed."""

_START = rb"(?<![A-Za-z0-9_-])"

# Programs that parse keys also contain the header of a private key, so the header counts only if a key or the end of
# the line follows.
_PEM = rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?>(?:\\[rn]|\s)*)[A-Za-z0-9+/=]{20}|\s*+$)"

SHAPES: tuple[tuple[str, str, re.Pattern[bytes]], ...] = tuple(
    (rule, name, re.compile(pattern))
    for rule, name, pattern in (
        ("SE-02", "GitHub token", _START + rb"gh[pousr]_[A-Za-z0-9]{36,255}"),
        ("SE-02", "GitHub token", _START + rb"github_pat_[A-Za-z0-9_]{22,255}"),
        ("SE-02", "GitLab token", _START + rb"gl(?:pat|dt|rt|ptt|ft|oas|cbt|soat|agent|imt)-[A-Za-z0-9_-]{20,255}"),
        ("SE-02", "OpenAI key", _START + rb"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,255}"),
        ("SE-02", "Anthropic key", _START + rb"sk-ant-[A-Za-z0-9_-]{20,255}"),
        ("SE-02", "model provider key", _START + rb"sk-(?:or-v1-)?[A-Za-z0-9]{20,255}"),
        ("SE-02", "AWS access key", _START + rb"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("SE-02", "Slack token", _START + rb"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255}"),
        ("SE-02", "Google API key", _START + rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
        ("SE-02", "Google OAuth token", _START + rb"ya29\.[A-Za-z0-9_-]{30,255}"),
        ("SE-02", "npm token", _START + rb"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
        ("SE-02", "PyPI token", _START + rb"pypi-AgE[A-Za-z0-9_-]{50,255}"),
        ("SE-02", "Hugging Face token", _START + rb"hf_[A-Za-z0-9]{34}(?![A-Za-z0-9])"),
        ("SE-02", "Stripe key", _START + rb"[rs]k_live_[A-Za-z0-9]{20,255}"),
        ("SE-02", "SendGrid key", _START + rb"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
        ("SE-02", "DigitalOcean token", _START + rb"do[opr]_v1_[a-f0-9]{64}"),
        ("SE-02", "Docker Hub token", _START + rb"dckr_pat_[A-Za-z0-9_-]{27,64}"),
        ("SE-03", "private key", _PEM),
    )
)

_PLACEHOLDER = frozenset(b"xX0*.-_")
HINTS = re.compile(
    rb"gh[pousr]_|_pat_|gl(?:pat|dt|rt|ptt|ft|oas|cbt|soat|agent|imt)-"
    rb"|sk[-_]|rk_|AKIA|ASIA|xox|xapp|AIza|ya29|npm_|pypi-|hf_|SG\.|_v1_|PRIVATE KEY"
)


def scan(diff: Iterable[bytes], declared: Iterable[str] = ()) -> list[str]:
    """Findings in the lines that a diff adds, in order, each once: `SE-02 GitHub token in src/app.py, line 3`.

    `diff` is git's output in chunks of any size. `declared` are the values of the configuration's secrets; their
    encodings (`redact`, `secret_spellings`) are searched too. Removed and unchanged lines of the diff are skipped; text
    outside of hunks (file names, messages) is searched. Git shows the content of binary files only if they are forced
    to text (`work/changes.history`). The list has at most 50 findings, then a line that says that there are more.
    """
    search = _Search(declared)
    pieces = added_lines(diff, search.suspects, search.overlap)
    return _limited(f"{what} in {where}" for where, piece in pieces for what in search(piece))


ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
"""Encodings in which a file may contain a secret; some programs write UTF-16.

ASCII text in UTF-16 and UTF-32 is equal to ASCII text in UTF-8 once its NUL bytes are removed.  Declared secrets
are compared without NUL bytes: one search covers five encodings, and a file of zeros takes no time.
"""

WIDE, WIDEST = ("utf-32-le", "utf-32-be"), 4
"""WIDE are encodings in which only the value of a secret itself is searched for, not its other forms; WIDEST is their
number of bytes per character."""


class _Search:
    """Searches a piece of text for secrets; yields the kind of each secret as words for a person."""

    def __init__(self, declared: Iterable[str]) -> None:
        declared = [value for value in (one.strip() for one in declared) if len(value) >= SHORTEST]
        plain = [_bare(one.encode(name, "surrogatepass")) for one in needles(declared) for name in ENCODINGS]
        plain += [_bare(one.encode(name, "surrogatepass")) for one in declared for name in WIDE]
        spelt = {text.encode("utf-8", "surrogatepass") for value in declared for text in spellings(value)}
        self.needles = list(dict.fromkeys((*plain, *sorted(spelt))))
        self.overlap = min(LONGEST_LINE // 2, max([OVERLAP, *(WIDEST * len(one) for one in self.needles)]))

    def suspects(self, block: bytes) -> bool:
        """A fast check whether a block of many lines may contain a secret."""
        return HINTS.search(block) is not None or self._has_declared(block)

    def _has_declared(self, text: bytes) -> bool:
        text = _bare(text)
        return any(needle in text for needle in self.needles)

    def __call__(self, piece: bytes) -> Iterator[str]:
        if self._has_declared(piece):
            yield "SE-01 a declared secret"
        if HINTS.search(piece) is not None:
            for rule, name, shape in SHAPES:
                if any(is_real(match[0]) for match in shape.finditer(piece)):
                    yield f"{rule} {name}"


def _bare(text: bytes) -> bytes:
    """`text` without NUL bytes."""
    return text.translate(None, b"\0") if b"\0" in text else text


def is_real(token: bytes) -> bool:
    """Whether a token may be a real one: no placeholder such as `ghp_xxxxxxxx` and no vendor's documented example."""
    return not (_PLACEHOLDER.issuperset(token[-16:]) or is_example(token))


def _limited(findings: Iterable[str]) -> list[str]:
    unique: dict[str, None] = {}
    for found in findings:
        if len(unique) >= MOST:
            return [*unique, f"and more; the first {MOST} are listed"]
        unique[found] = None
    return list(unique)
