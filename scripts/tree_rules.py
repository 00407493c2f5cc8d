"""Holds that only `agent/filetree`, `treecopy` and `git_guard` go through trees that a command may have filled.

Prints a line for each place in `agent/` that breaks a rule, and ends with 1 if there is one.  `scripts/check` calls it.

* nowhere: what walks or removes a tree by joined paths (`shutil.rmtree`, `os.walk`, `Path.rglob`, ...);
* in the rooms that see such trees: removing by a path, and opening, asking or changing what lies below a variable that
  holds such a tree (`tree / path`).

A place that works on files which this program alone writes says `# ours` at the end of the line.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parents[1] / "agent"
ALLOWED = ("filetree", "treecopy.py")
ROOMS = (
    "work",
    "worker",
    "issue",
    "intake",
    "daemon",
    "commands",
    "wiring",
    "sandbox",
    "tools",
    "gitcmd.py",
    "git_guard.py",
    "nested_repositories.py",
)
MARK = "# ours"

WALKS = {
    ("shutil", "rmtree"),
    ("shutil", "copytree"),
    ("shutil", "move"),
    ("os", "walk"),
    ("os", "fwalk"),
    ("os", "removedirs"),
    ("os", "renames"),
}
WALKING = {"rglob", "walk_up"}
REMOVES = {"unlink", "remove", "rmdir"}
TREES = {"tree", "work_tree", "scratch", "home", "staging"}
"""Names of variables and attributes that hold the path of a tree in which commands write."""


def broken(source: str, *, room: bool) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of each place; `room`: it is a module that sees such trees."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            for why in _wrong(node, room=room):
                if not any(MARK in lines[number - 1] for number in range(node.lineno, (node.end_lineno or 0) + 1)):
                    yield node.lineno, why


def _wrong(call: ast.Call, *, room: bool) -> Iterator[str]:
    called = call.func
    if not isinstance(called, ast.Attribute):
        if room and isinstance(called, ast.Name) and called.id == "open" and any(map(_in_tree, call.args)):
            yield "opens a joined path of a tree; use `durable_files.open_beneath`"
        return
    module = called.value.id if isinstance(called.value, ast.Name) else ""
    if (module, called.attr) in WALKS or called.attr in WALKING:
        yield f"`{module or '...'}.{called.attr}` goes through a tree by its paths; use `filetree`"
    if not room:
        return
    if called.attr in REMOVES and module not in _MODULES and not any(word.arg == "dir_fd" for word in call.keywords):
        by_path = module == "os" or (called.attr == "unlink") or (called.attr == "rmdir" and not call.args)
        if by_path:
            yield f"`{called.attr}` removes by a path; use `filetree.remove`"
    if _in_tree(called.value):
        yield f"`(tree / path).{called.attr}` follows links; use `durable_files.open_beneath` or `stat_beneath`"
    if module in ("os", "shutil") and called.attr != "fspath" and any(map(_in_tree, call.args)):
        yield f"`{module}.{called.attr}` is given a joined path of a tree; use a descriptor"


_MODULES = ("filetree", "tree", "groups", "cgroups")


def _in_tree(node: ast.expr) -> bool:
    """Whether the expression joins something to the path of a tree: `self.tree / path`."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return False
    left = node.left
    if isinstance(left, ast.BinOp):
        return _in_tree(left)
    name = left.id if isinstance(left, ast.Name) else left.attr if isinstance(left, ast.Attribute) else ""
    return name in TREES


def main() -> int:
    """Look at every module; 1 when a rule is broken."""
    code = 0
    for path in sorted(TOP.rglob("*.py")):
        parts = path.relative_to(TOP).parts
        if parts[0] in ALLOWED or "demo_data" in parts:
            continue
        for line, why in broken(path.read_text(encoding="utf-8"), room=parts[0] in ROOMS):
            sys.stdout.write(f"{path.relative_to(TOP.parent)}:{line}: {why}\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
