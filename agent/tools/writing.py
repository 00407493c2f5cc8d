"""`write_file`: the whole of a file, new or over an old text; encoding, byte order mark and line ends of the old stay.

A binary file or one in an unknown encoding is never overwritten: removing it first, with `rm` in run_command, is a
decision that shows in the record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.filetree import printable
from agent.tools import kinds, splice, text
from agent.tools.base import Place, Product, schema, text_of
from agent.tools.editing import LARGEST, load
from agent.tools.text import UTF8

if TYPE_CHECKING:
    from agent.values import Json

_ENDS = ("\r\n", "\n", "\r")


def with_ends_of(old: str, new: str) -> str:
    """`new` with the line ends of `old`: lines at its beginning and end that are unchanged keep theirs, the rest gets
    the commonest."""
    before = _lines(old)
    if not before:
        return new
    after = _lines(splice.unify(new))
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
            end = before[number][1] or usual  # noqa: PLW2901 - the end in force
        elif end and number >= len(after) - back:
            end = before[number - len(after)][1] or usual  # noqa: PLW2901
        elif end:
            end = usual  # noqa: PLW2901
        result.append(line + end)
    return "".join(result)


def _lines(value: str) -> list[tuple[str, str]]:
    """(line, its end) pairs; the last may have none."""
    result, position = [], 0
    for match in splice.END.finditer(value):
        result.append((value[position : match.start()], match.group()))
        position = match.end()
    if position < len(value):
        result.append((value[position:], ""))
    return result


class WriteFile:
    """Create or overwrite."""

    name = "write_file"
    description = "Create or overwrite a whole text file; folders are made. For changes prefer edit_file."
    parameters = schema(("path", "content"), path=text_of(), content=text_of())

    def __init__(self, place: Place) -> None:
        self.place = place

    def run(self, arguments: Json) -> Product:
        tree, path, content = self.place.tree, arguments["path"], arguments["content"]
        shown = printable(tree.relative(path))
        if text.size_of(content) > LARGEST:
            raise ToolError(f"content has {kinds.size_text(text.size_of(content))}; at most {kinds.size_text(LARGEST)}")
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
            return Product("", head=f"[wrote {shown}: new file, {size}]{self.place.fate(path)}")
        data, form, status = before
        old = text.decode(data, form)
        written = form.bom + text.encode(with_ends_of(old, content) if data else content, form)
        if written == data:
            return Product("", head=f"[{shown} has exactly this content already; nothing was written]")
        tree.replace(path, written, like=status)
        kept = [] if form == UTF8 else [form.label]
        kept += ["CRLF"] if "\r\n" in old else []
        said = f"[wrote {shown}: {size}, replaced{'; ' + ', '.join(kept) + ' kept' if kept else ''}]"
        return Product("", head=said + self.place.fate(path))
