"""Comments, docstrings and pages: found with their lines, freed of code, counted in words, cut into sentences."""

from __future__ import annotations

import ast
import re
from collections import deque
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
STRING_OR_COMMENT = re.compile(
    r"""(?P<triple>\"{3}|'{3})(?:[^\\]|\\.)*?(?P=triple)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
"""A string or a comment of Python before 3.12, where a string in an f-string has the other quotes."""
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


def comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, comment with its `#`, whether it has the line for itself) of each comment of a module.

    The module `tokenize` of Python 3.11 takes ten times as long.
    """
    line = at = 0
    for found in STRING_OR_COMMENT.finditer(text):
        if found["comment"] is None:
            continue
        begin = found.start()
        line, at = line + text.count("\n", at, begin), begin
        yield line + 1, found["comment"], not text[text.rfind("\n", 0, begin) + 1 : begin].strip()


def standing_texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The texts that stand alone as statements: docstrings of modules, classes and functions, and of attributes."""
    left = deque([tree])
    while left:
        node = left.popleft()
        for name in ("body", "cases", "handlers", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            left.extend(inner if isinstance(inner, list) else ())
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _comments(name: str, text: str) -> Iterator[Block]:
    """Comments; those that have whole lines for themselves and follow each other are one block."""
    first, last, lines = 0, -1, list[str]()
    for number, comment, alone in comments(text):
        if number == 1 and comment.startswith("#!"):
            continue
        said = PRAGMA.sub(" ", comment.lstrip("#")).strip()
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
    """The texts that stand alone as statements, without their quotes."""
    lines = text.split("\n")
    for value in standing_texts(ast.parse(text)):
        end = value.end_lineno or value.lineno
        raw = [*lines[value.lineno - 1 : end - 1], lines[end - 1].encode()[: value.end_col_offset].decode()]
        raw[0] = raw[0].encode()[value.col_offset :].decode()
        whole = re.sub(r"^[rRuU]?(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", "", "\n".join(raw))
        yield Block(name, value.lineno, whole)


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
