"""Searches a change, before its publication, for secrets: declared ones, and texts in the form of a well-known token or
key.

The search for secrets reads the diff as a stream, in bounded memory for any length of line. A finding about a secret
names the secret's kind and, inside a hunk, its file and line; it does not contain the secret.
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
"""Neighbouring pieces of a long line overlap by at least this many bytes, so that a token, of which the patterns match
less than 300 bytes, is whole in one piece. For a long declared secret the overlap is larger, at most half a piece."""

MOST = 50
"""Maximum number of findings about secrets that are listed."""

_START = rb"(?<![A-Za-z0-9_-])"

# Programs that parse keys contain the header of a private key as a string, so the header is a finding only if 20
# characters of base64, or the end of the line, follow the header.
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

    `diff` is git's output in chunks of any size. `declared` are secrets of the configuration and those learnt at run
    time (`Redactor.secrets`); values shorter than 8 characters are ignored. The encodings of declared secrets
    (`redact`, `secret_spellings`) are searched for too. Removed and unchanged lines of the diff are skipped; text
    outside of hunks (file names, messages) is searched. Git shows the content of binary files only if they are forced
    to text (`work/changes.history`). The list has at most 50 findings, then a line that says that there are more.
    """
    search = _Search(declared)
    pieces = added_lines(diff, search.suspects, search.overlap)
    return _limited(f"{what} in {where}" for where, piece in pieces for what in search(piece))


ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
"""Encodings of a file in which every form (`redact.forms`) of a declared secret is searched for.

ASCII text in UTF-16 or UTF-32 is equal to ASCII text in UTF-8 once its NUL bytes are removed.  NUL bytes are removed
from the declared secrets and from the searched text before they are compared: one search for a secret in ASCII covers
UTF-8, UTF-16 and UTF-32, and a file of zeros is searched fast.
"""

WIDE, WIDEST = ("utf-32-le", "utf-32-be"), 4
"""WIDE are the encodings of a file in which only the value of a declared secret itself is searched for, not the other
forms of the secret; WIDEST is the number of bytes per character in these encodings."""


class _Search:
    """A call searches a piece of text for secrets, and yields a text for each kind of secret in the piece: `SE-02
    GitHub token`."""

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
    """Whether a text in the form of a token may be a real token: False for a placeholder such as `ghp_xxxxxxxx`, and
    for an example (`is_example`)."""
    return not (_PLACEHOLDER.issuperset(token[-16:]) or is_example(token))


def _limited(findings: Iterable[str]) -> list[str]:
    unique: dict[str, None] = {}
    for found in findings:
        if len(unique) >= MOST:
            return [*unique, f"and more; the first {MOST} are listed"]
        unique[found] = None
    return list(unique)
