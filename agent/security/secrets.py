"""Looks for secrets in what would be published: declared ones, and the shapes of well-known tokens and keys.

Reads a diff as a stream, in bounded memory whatever the length of a line.  A finding names file, line and kind,
never the value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.security.redact import needles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_LINE = 1 << 16
"""A longer line is looked at in pieces of this many bytes."""

OVERLAP = 4096
"""How much of the last piece is looked at again: longer than every shape; more where a secret is longer."""

MOST = 50
"""More findings than this are not listed."""

_START = rb"(?<![A-Za-z0-9_-])"

# The header alone is also in programs that read keys: what follows must be the key, or the end of the line.
_PEM = rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?:\\[rn]|\s)*+[A-Za-z0-9+/=]{20}|\s*+$)"

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
_HINTS = re.compile(
    rb"gh[pousr]_|_pat_|gl[a-z]+-|sk[-_]|rk_|AKIA|ASIA|xox|xapp|AIza|ya29|npm_|pypi-|hf_|SG\.|_v1_|PRIVATE KEY"
)


def scan(diff: Iterable[bytes], declared: Iterable[str] = ()) -> list[str]:
    """Findings in what a diff *adds*, in order, each once: `SE-02 GitHub token in src/app.py, line 3`.

    `diff` is git's output in chunks of any size, cut anywhere.  `declared` are the values of the configuration's
    secrets; their encodings (see `redact`) are looked for too.  What a change removes or leaves is not its doing;
    whatever is no hunk (names of files, messages) is looked at whole.  git shows no content of binary files: give
    that to `scan_content`.
    At most 50 findings, then one that says so.
    """
    return _limited(_in_diff(diff, _Search(declared)))


def scan_content(chunks: Iterable[bytes], name: str, declared: Iterable[str] = ()) -> list[str]:
    """The same for the plain content of a file, a message or a body called `name`."""
    search = _Search(declared)

    def found() -> Iterator[str]:
        number = 0
        for line, continued, suspect in _lines(chunks, search):
            number += not continued
            if suspect:
                yield from (f"{what} in {name}, line {number}" for what in search(line))

    return _limited(found())


class _Search:
    """What a piece of text holds, as words for a person."""

    def __init__(self, declared: Iterable[str]) -> None:
        self.needles = [needle.encode("utf-8", "surrogatepass") for needle in needles(declared)]
        self.overlap = min(LONGEST_LINE // 2, max([OVERLAP, *map(len, self.needles)]))

    def suspects(self, block: bytes) -> bool:
        """A quick look at many lines at once."""
        return _HINTS.search(block) is not None or any(needle in block for needle in self.needles)

    def __call__(self, piece: bytes) -> Iterator[str]:
        if any(needle in piece for needle in self.needles):
            yield "SE-01 a declared secret"
        if _HINTS.search(piece) is not None:
            for rule, name, shape in SHAPES:
                if any(_is_real(match[0]) for match in shape.finditer(piece)):
                    yield f"{rule} {name}"


def _is_real(token: bytes) -> bool:
    """Whether it is no placeholder, as in `ghp_xxxxxxxx`."""
    return not _PLACEHOLDER.issuperset(token[-16:])


_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def _in_diff(diff: Iterable[bytes], search: _Search) -> Iterator[str]:
    path = where = ""
    kind = b""
    number = left_old = left_new = 0
    for line, continued, suspect in _lines(diff, search):
        if continued:
            pass  # the same line goes on
        elif left_old > 0 or left_new > 0:
            # Inside a hunk, whose header said how many lines it has: `+++ x` is then an added line `++ x`.
            kind = line[:1]
            if kind == b"+":
                where = f"{path or 'the change'}, line {number}"
                left_new, number = left_new - 1, number + 1
            elif kind == b"-":
                left_old -= 1
            elif kind != b"\\":
                left_old, left_new, number = left_old - 1, left_new - 1, number + 1
        else:
            kind = b"+"
            if hunk := _HUNK.match(line):
                left_old, number, left_new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
            elif line.startswith(b"+++ "):
                path = _path(line[4:])
            where = path or "the change"
        if suspect and kind == b"+":
            yield from (f"{what} in {where}" for what in search(line))


def _path(name: bytes) -> str:
    text = name.rstrip(b"\r\n\t").decode("utf-8", "replace").strip('"')
    return text.removeprefix("b/") if text != "/dev/null" else ""


def _lines(chunks: Iterable[bytes], search: _Search) -> Iterator[tuple[bytes, bool, bool]]:
    """The lines of a stream as (line, whether it continues the one before, whether it may hold something).

    A line longer than `LONGEST_LINE` that is not whole yet comes in pieces that overlap.
    """
    rest = b""
    continued = False
    for chunk in chunks:
        rest += chunk
        end = rest.rfind(b"\n")
        if end >= 0:
            block, rest = rest[:end], rest[end + 1 :]
            suspect = search.suspects(block)
            for line in block.split(b"\n"):
                yield line, continued, suspect
                continued = False
        while len(rest) > LONGEST_LINE:
            piece = rest[:LONGEST_LINE]
            yield piece, continued, search.suspects(piece)
            rest = rest[LONGEST_LINE - search.overlap :]
            continued = True
    if rest:
        yield rest, continued, search.suspects(rest)


def _limited(findings: Iterable[str]) -> list[str]:
    unique: dict[str, None] = {}
    for found in findings:
        if len(unique) >= MOST:
            return [*unique, f"and more; the first {MOST} are listed"]
        unique[found] = None
    return list(unique)
