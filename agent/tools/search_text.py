"""The tool `search_text` searches a regular expression in the lines of the tree, with an enforced time limit.

A pattern that consists only of plain characters, classes and anchors is searched for in the process of the task itself.
A pattern that could backtrack runs in a child process that is killed when its CPU time reaches the time limit, or
START_SECONDS after the time limit by the clock; the matches until then are shown.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import agent
from agent import proc
from agent.errors import ToolError
from agent.filetree import printable
from agent.tools.base import RawResult, ToolContext, schema, text_of
from agent.tools.search_text_process import compiled, search

if TYPE_CHECKING:
    from agent.values import Json

LIMIT = 200
SECONDS = 30.0
START_SECONDS = 10.0
"""Seconds beyond the time limit in which a busy machine must start the child process and give it its CPU time; then the
child process is killed."""
_BACKTRACKS = re.compile(r"[*+?{(|]|\\[1-9]")
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from agent.tools.search_text_process import main; main()"


class SearchText:
    """The tool that shows matching lines as `path:line: text`."""

    name = "search_text"
    description = "Find lines that match a regular expression (Python syntax, one line at a time)."
    parameters = schema(
        ("pattern",),
        pattern=text_of(),
        path=text_of("file or folder; default: all"),
        glob=text_of("only files like *.py or src/**/*.ts"),
    )

    def __init__(self, place: ToolContext, seconds: float = SECONDS) -> None:
        self.place = place
        self.seconds = seconds

    def run(self, arguments: Json) -> RawResult:
        pattern, path, glob = arguments["pattern"], arguments.get("path", "."), arguments.get("glob")
        if not pattern:
            raise ToolError("pattern is empty; give what to look for")
        compiled(pattern)
        found: list[str] = []
        if _BACKTRACKS.search(pattern):
            note = self._in_child(pattern, path, glob, found)
        else:
            note = search(self.place.tree, pattern, path, glob, LIMIT, self.seconds, found.append)
        where = printable(self.place.tree.relative(path)) or "the tree"
        count = f"{len(found)} matching line{'' if len(found) == 1 else 's'}" if found else "no match"
        head = f"[{count} in {where}{' for ' + glob if glob else ''}{'; ' + note if note else ''}]"
        return RawResult("\n".join(found), head=head)

    def _in_child(self, pattern: str, path: str, glob: str | None, found: list[str]) -> str:
        request: Json = {"root": str(self.place.tree.root), "pattern": pattern, "path": path, "glob": glob}
        request |= {"limit": LIMIT, "seconds": self.seconds}
        home = str(Path(agent.__file__).parent.parent)
        folders = [home, *(folder for folder in sys.path if folder not in ("", home))]
        done = proc.run(
            [sys.executable, "-I", "-c", _CHILD, *folders],
            env={"LANG": "C.UTF-8"},
            timeout=self.seconds + START_SECONDS,
            stdin=json.dumps(request).encode(),
            cap=4 << 20,
            merge=False,
        )
        for line in done.output.decode("utf-8", "replace").split("\n"):
            if not line.startswith("{") or not line.endswith("}"):
                continue
            record = json.loads(line)
            if "error" in record:
                raise ToolError(record["error"])
            if "note" in record:
                return str(record["note"])
            found.append(record["match"])
        if done.timed_out or done.returncode == -signal.SIGPROF:
            return f"stopped after {self.seconds:g} s: the pattern is too costly; give a simpler one or a narrower path"
        raise ToolError(
            f"the search ended early (exit code {done.returncode}); give a simpler pattern or a narrower path"
        )
