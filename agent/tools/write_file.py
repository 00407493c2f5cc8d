"""The tool `write_file` writes a whole file: it creates a new file, or overwrites a text file; encoding, byte order
mark and line ends are preserved.

A binary file, or one in an unknown encoding, is never overwritten: removing it first, with `rm` in run_command, is an
explicit step in the record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.filetree import printable
from agent.tools import edit, encodings, file_types
from agent.tools.base import RawResult, ToolContext, schema, text_of
from agent.tools.edit_file import LARGEST, load
from agent.tools.encodings import UTF8

if TYPE_CHECKING:
    from agent.values import Json

_ENDS = ("\r\n", "\n", "\r")


def with_ends_of(old: str, new: str) -> str:
    """The text `new` with the line ends of the text `old`.

    Unchanged lines at the beginning and end have their old line ends, all other lines the most common line end of
    `old`.
    """
    before = _lines(old)
    if not before:
        return new
    after = _lines(edit.normalize_newlines(new))
    ends = Counter(end for _, end in before if end)
    usual = ends.most_common(1)[0][0] if ends else "\n"
    front = 0
    while front < min(len(before), len(after)) and before[front][0] == after[front][0]:
        front += 1
    back = 0
    while back < min(len(before), len(after)) - front and before[-1 - back][0] == after[-1 - back][0]:
        back += 1
    result = []
    for number, (line, end) in enumerate(after):
        if end and number < front:
            end = before[number][1] or usual  # noqa: PLW2901 - `end` is replaced on purpose: the line keeps its old end
        elif end and number >= len(after) - back:
            end = before[number - len(after)][1] or usual  # noqa: PLW2901
        elif end:
            end = usual  # noqa: PLW2901
        result.append(line + end)
    return "".join(result)


def _lines(value: str) -> list[tuple[str, str]]:
    """(line, its line end) pairs; the last line may have no line end."""
    result, position = [], 0
    for match in edit.END.finditer(value):
        result.append((value[position : match.start()], match.group()))
        position = match.end()
    if position < len(value):
        result.append((value[position:], ""))
    return result


class WriteFile:
    """The tool that creates or overwrites a file."""

    name = "write_file"
    description = "Create or overwrite a whole text file; folders are made. For changes prefer edit_file."
    parameters = schema(("path", "content"), path=text_of(), content=text_of())

    def __init__(self, place: ToolContext) -> None:
        self.place = place

    def run(self, arguments: Json) -> RawResult:
        tree, path, content = self.place.tree, arguments["path"], arguments["content"]
        shown = printable(tree.relative(path))
        if encodings.size_of(content) > LARGEST:
            raise ToolError(
                f"content has {file_types.size_text(encodings.size_of(content))}; "
                f"at most {file_types.size_text(LARGEST)}"
            )
        before = None
        try:
            before = load(tree, path)
        except ToolError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise ToolError(f"{error}. To replace it whole, remove it with rm in run_command first") from error
        count = content.count("\n") + (not content.endswith("\n") and content != "")
        size = f"{count:,} line{'' if count == 1 else 's'}"
        if before is None:
            tree.replace(path, content.encode())
            return RawResult("", head=f"[wrote {shown}: new file, {size}]{self.place.fate(path)}")
        data, form, status = before
        old = encodings.decode(data, form)
        written = form.bom + encodings.encode(with_ends_of(old, content) if data else content, form)
        if written == data:
            return RawResult("", head=f"[{shown} has exactly this content already; nothing was written]")
        tree.replace(path, written, like=status)
        kept = [] if form == UTF8 else [form.label]
        kept += ["CRLF"] if "\r\n" in old else []
        said = f"[wrote {shown}: {size}, replaced{'; ' + ', '.join(kept) + ' kept' if kept else ''}]"
        return RawResult("", head=said + self.place.fate(path))
