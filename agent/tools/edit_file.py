"""The tool `edit_file` replaces one text by another; all other bytes of the file stay unchanged.

Files in an unknown encoding, binary files and files over 10 MB are refused with advice.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.filetree import printable
from agent.tools import edit, encodings, file_types
from agent.tools.base import RawResult, ToolContext, schema, text_of
from agent.tools.outputs import blocks
from agent.tools.read_file import detect_file

if TYPE_CHECKING:
    from agent.tools.encodings import TextEncoding
    from agent.tools.work_tree import Tree
    from agent.values import Json

LARGEST = 10_000_000


def load(tree: Tree, path: str) -> tuple[bytes, TextEncoding, os.stat_result]:
    """Load a whole text file for an edit; raises ToolError when the file cannot be edited."""
    shown = printable(tree.relative(path))
    with tree.open(path) as descriptor:
        status = os.fstat(descriptor)
        if status.st_size > LARGEST:
            raise ToolError(
                f"{shown} has {file_types.size_text(status.st_size)}; "
                f"files over {file_types.size_text(LARGEST)} are not edited. Use sed or a small script in run_command"
            )
        form, kind = detect_file(descriptor, status.st_size)
        if kind is not None:
            raise ToolError(
                f"{shown} is a binary file ({kind}, {file_types.size_text(status.st_size)}); it is not edited"
            )
        if form is None:
            raise ToolError(
                f"{shown}: its encoding is not known for certain, so it is not edited (nothing is lost). "
                "Convert it with iconv in run_command, or change it there byte by byte"
            )
        return b"".join(blocks(descriptor)), form, status


def apply_changes(data: bytes, form: TextEncoding, made: list[edit.Change]) -> bytes:
    """The content of the file after the changes; bytes outside of the changes stay the same: they are copied, or, in
    ISO-2022-JP, encoded again to equal bytes. Raises ToolError if the bytes outside of the changes cannot stay the same
    in the file's encoding."""
    raw = encodings.decode(data, form)
    if form.codec == "iso2022_jp":  # in ISO-2022-JP, the bytes of a character depend on the bytes before it
        if encodings.encode(raw, form) != data:
            raise ToolError("this ISO-2022-JP file cannot be edited without changing other bytes; use run_command")
        parts, position = [], 0
        for change in made:
            parts += [raw[position : change.start], change.text]
            position = change.end
        return encodings.encode("".join([*parts, raw[position:]]), form)
    pieces = [form.bom]
    position, at = 0, len(form.bom)
    for change in made:
        for start, end, keep in ((position, change.start, True), (change.start, change.end, False)):
            segment = raw[start:end]
            size = len(segment.encode(form.codec))
            if data[at : at + size].decode(form.codec, "replace") != segment:
                raise ToolError("this file cannot be edited without changing other bytes; use run_command")
            if keep:
                pieces.append(data[at : at + size])
            at += size
        pieces.append(encodings.encode(change.text, form))
        position = change.end
    pieces.append(data[at:])
    return b"".join(pieces)


class EditFile:
    """The tool that replaces an exact text in a file."""

    name = "edit_file"
    description = "Replace exact text in a file. old_text must occur once unless replace_all."
    parameters = schema(
        ("path", "old_text", "new_text"),
        path=text_of(),
        old_text={"type": "string", "minLength": 1},
        new_text=text_of(),
        replace_all={"type": "boolean"},
    )

    def __init__(self, place: ToolContext) -> None:
        self.place = place

    def run(self, arguments: Json) -> RawResult:
        path, old, new = arguments["path"], arguments["old_text"], arguments["new_text"]
        tree = self.place.tree
        shown = printable(tree.relative(path))
        if old == new:
            raise ToolError("old_text and new_text are the same; nothing was changed")
        data, form, status = load(tree, path)
        view, places, was, now = edit.find(encodings.decode(data, form), old, new)
        if not places:
            hint = edit.nearest(edit.normalize_newlines(view.raw), edit.normalize_newlines(old))
            raise ToolError(
                f"old_text is not in {shown}; it must be the exact text, with its indentation. "
                + (hint or "Read the file again")
            )
        numbers = [edit.line_number(view.text, place) for place in places]
        if len(places) > 1 and not arguments.get("replace_all", False):
            raise ToolError(
                f"old_text is {len(places)} times in {shown} (lines {_join_numbers(numbers)}); add lines around it "
                "until it is unique, or set replace_all"
            )
        made = edit.changes(view, places, was, now)
        if not made:
            raise ToolError("old_text and new_text differ only in characters that are not shown; nothing was changed")
        tree.replace(path, apply_changes(data, form, made), like=status)
        where = f"line {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} places, lines {_join_numbers(numbers)}"
        said = f"[edited {shown}: {where}{'' if form.label == 'UTF-8' else '; ' + form.label + ' kept'}]"
        return RawResult("", head=said + self.place.fate(path))


def _join_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")
