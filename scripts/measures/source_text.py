"""Comments, docstrings and pages: found with their lines, freed of code, counted in words, cut into sentences."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
CODE = re.compile(r"``[^`]+``|`[^`]+`|\]\([^)\s]+\)|https?://\S+|<!--.*?-->", re.DOTALL)
"""Spans that are no prose: names in backticks, the targets of links, addresses, comments of HTML."""
PRAGMA = re.compile(r"#? ?\b(?:noqa(?:: ?[A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*)?|type: ?ignore(?:\[[\w-]+\])?)(?: - )?")
DRAWN = re.compile(r"[│├└─┌┐┘▶▼◀▲]|-{4,}")
"""A line with one of these is a drawing or a rule, not a sentence."""
FENCE = re.compile(r"^ *(?:```|~~~)")
END_OF_SENTENCE = re.compile(r"[.!?][\"')\]*]*(?=\s+[\"'(\[*]*[A-Z`])")
NEW_ITEM = re.compile(r"(?:[*+-]|\d+\.|#+) |\|")
LEAST_WORDS = 3
"""A shorter text between two full stops is no sentence: a heading, the name of a section."""


@dataclass(frozen=True)
class Block:
    """Some lines of text of a file: a docstring, one or more comment lines in a row, or a page.

    `path` counts from the root of the repository; `line` is that of the first line of `text`, from 1.
    """

    path: str
    line: int
    text: str

    def line_at(self, offset: int) -> int:
        """The line of the file in which the character at `offset` of the text stands."""
        return self.line + self.text.count("\n", 0, offset)


def modules(root: Path = ROOT) -> list[Path]:
    """The modules of the program, without the data of the demo, which is somebody else's program."""
    return [path for path in sorted((root / "agent").rglob("*.py")) if "demo_data" not in path.parts]


def pages(root: Path = ROOT) -> list[Path]:
    """The pages for a reader of the repository; CHANGELOG.md, which tells of what was, is none of them."""
    top = [root / name for name in ("README.md", "ARCHITECTURE.md", "AGENTS.md")]
    return [*(path for path in top if path.exists()), *sorted((root / "docs").rglob("*.md"))]


def blocks(path: Path, root: Path = ROOT) -> Iterator[Block]:
    """The prose of a module (comments and docstrings), or of a page.  SyntaxError for a module that is no Python."""
    name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _comments(name, text)
        yield from _docstrings(name, text)
    else:
        yield Block(name, 1, _unfenced(text))


def _comments(name: str, text: str) -> Iterator[Block]:
    """Comments; those that have whole lines for themselves and follow each other are one block."""
    first, last, lines = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or (token.start[0] == 1 and token.string.startswith("#!")):
            continue
        number, said = token.start[0], PRAGMA.sub(" ", token.string.lstrip("#")).strip()
        alone = not token.line[: token.start[1]].strip()
        if alone and number == last + 1:
            lines.append(said)
        else:
            if lines:
                yield Block(name, first, "\n".join(lines))
            first, lines = number, [said]
        last = number if alone else -1
    if lines:
        yield Block(name, first, "\n".join(lines))


def _docstrings(name: str, text: str) -> Iterator[Block]:
    """Texts that stand alone as statements: docstrings of modules, classes and functions, and those of attributes."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            end = node.end_lineno or node.lineno
            raw = [*lines[node.lineno - 1 : end - 1], lines[end - 1].encode()[: node.end_col_offset].decode()]
            raw[0] = raw[0].encode()[node.col_offset :].decode()
            whole = re.sub(r"^[rRuU]?(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", "", "\n".join(raw))
            yield Block(name, node.lineno, whole)


def _unfenced(text: str) -> str:
    """The same number of lines, those of code between fences empty."""
    lines, inside = [], False
    for line in text.split("\n"):
        fence = FENCE.match(line) is not None
        inside ^= fence
        lines.append("" if inside or fence else line)
    return "\n".join(lines)


def without_code(text: str) -> str:
    """The text of the same length and with the same lines, spaces where code and addresses stand."""
    return CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def words(text: str) -> int:
    """How many words of prose a text has."""
    return len(WORD.findall(without_code(text)))


def sentences(block: Block) -> Iterator[tuple[int, str]]:
    """(line, sentence) of each sentence, its lines joined; an item of a list begins a new one."""
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate(block.text.split("\n"), block.line):
        said = line.strip()
        if not said or DRAWN.search(said) or NEW_ITEM.match(said):
            yield from _cut(paragraph)
            paragraph = []
        if said and not DRAWN.search(said):
            paragraph.append((number, said))
    yield from _cut(paragraph)


def _cut(paragraph: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The sentences of lines that belong together."""
    text, starts = "", list[tuple[int, int]]()
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line + " "
    begin = 0
    for end in [*(found.end() for found in END_OF_SENTENCE.finditer(text)), len(text)]:
        said = text[begin:end].lstrip()
        if len(WORD.findall(said)) >= LEAST_WORDS:
            at = end - len(said)
            yield max(number for start, number in starts if start <= at), said.rstrip()
        begin = end
