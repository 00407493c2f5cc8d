"""The tool `list_files` lists the paths of the files below a path, sorted, without folders of generated files.

If there are too many files for one result, the tool shows a count per folder, so that the model can narrow the path.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.filetree import printable
from agent.globs import matcher
from agent.tools.base import RawResult, ToolContext, schema, text_of
from agent.tools.encodings import size_of

if TYPE_CHECKING:
    from agent.tools.work_tree import WorkTreeEntry
    from agent.values import Json

MOST = 300_000


class ListFiles:
    """The tool that lists sorted paths, one per line."""

    name = "list_files"
    description = "List files below a folder, recursively."
    parameters = schema(
        (),
        path=text_of("folder; default: all"),
        pattern=text_of("only files like *.py or src/**/*.ts"),
    )

    def __init__(self, place: ToolContext) -> None:
        self.place = place

    def run(self, arguments: Json) -> RawResult:
        tree, path, pattern = self.place.tree, arguments.get("path", "."), arguments.get("pattern")
        start = tree.relative(path)
        if not tree.is_folder(path):
            raise ToolError(f"{printable(start)} is a file; list_files takes a folder, read_file reads files")
        fits = matcher(pattern) if pattern else None
        below = len(start) + 1 if start else 0
        left_out: list[str] = []
        found: list[WorkTreeEntry] = []
        stopped = False
        for entry in tree.walk(path, left_out):
            if fits is None or fits(entry.path) or (below and fits(entry.path[below:])):
                if len(found) == MOST:
                    stopped = True
                    break
                found.append(entry)
        notes = [f"{'more than ' if stopped else ''}{len(found):,} file{'' if len(found) == 1 else 's'}"]
        if left_out:
            more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
            notes.append(f"not entered: {', '.join(printable(one) for one in left_out[:5])}{more}")
        listed, room = [], self.place.page - 400
        for entry in sorted(found, key=lambda one: one.path):
            line = printable(entry.path)
            if entry.kind == "symbolic link":
                line += f" -> {tree.link_target(entry.path)}"
            elif entry.kind != "file":
                line += f" ({entry.kind})"
            listed.append(line)
            room -= size_of(line) + 1
            if room < 0:
                notes.append("too many to list: counts per folder follow; give a path or pattern")
                listed = self._summary(found, below)
                break
        return RawResult("\n".join(listed), head=f"[{'; '.join(notes)}]")

    def _summary(self, found: list[WorkTreeEntry], below: int) -> list[str]:
        """The folders directly below the path with their number of files, and the files beside them, as far as they
        fit."""
        folders: Counter[str] = Counter()
        files = []
        for entry in found:
            name, slash, _ = entry.path[below:].partition("/")
            if slash:
                folders[entry.path[: below + len(name) + 1]] += 1
            else:
                files.append(printable(entry.path))
        listed = [
            f"{printable(name)} ({count:,} file{'' if count == 1 else 's'})" for name, count in sorted(folders.items())
        ]
        listed += sorted(files)
        room = self.place.page - 400
        for position, line in enumerate(listed):
            room -= size_of(line) + 1
            if room < 0:
                return [*listed[:position], f"… and {len(listed) - position:,} more here"]
        return listed
