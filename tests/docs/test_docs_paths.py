"""Every path of a module or a folder of this repository that a page, a docstring or a comment names is there."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

from scripts.measures import source_text

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "agent"
ROOMS = sorted({init.parent.name for init in AGENT.glob("*/__init__.py")})
IN_PATHS = re.compile(rf"(?<![\w./<*{{:-])((?:agent|tests|scripts|docs|{'|'.join(ROOMS)})/[\w*./-]*[\w*/])")
"""`agent/loop.py`, `worker/handler.py`, `llm/dialects/`, `intake/restore_rows.record_of`: what begins with a room."""
NAMES = re.compile(r"`([\w*]+\.py)`")
"""`handler.py`, which is looked for beside the file that names it."""
DOTTED = re.compile(rf"`agent((?:\.(?:{'|'.join(ROOMS)}))(?:\.\w+)*)`")

ELSEWHERE = {
    "docs/api/",  # of git-lfs
    "docs/openapi.yaml",  # of Ollama
    "docs/spec.md",  # of git-lfs
    "scripts/release*",  # of somebody's repository, as all below
    "scripts/release.sh",
    "tests/a",
    "tests/b",
    "tests/fixtures/",
    "tests/test_invoice.py",
    "tools/server/README.md",  # of llama.cpp
    "work/src/x",
}


def pages():
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")):
        if path.name != "CHANGELOG.md" and not {"cases", "peers", "node_modules"} & set(path.parts):
            yield path


def said_in(path):
    """(line, text) of a page, or of the comments and docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for line, comment, _ in source_text.comments(text):
        yield line, comment
    for value in source_text.standing_texts(ast.parse(text)):
        yield from enumerate(value.value.splitlines(), value.lineno)


@cache
def everything():
    """(path, line, text) of all that is read."""
    modules = [path for path in sorted(AGENT.rglob("*")) if path.suffix in (".py", ".sql", ".j2")]
    files = [*pages(), *(path for path in modules if "demo_data" not in path.parts)]
    return [(path, line, text) for path in files for line, text in said_in(path)]


def is_there(name, *folders):
    """Whether a path, with `*` for a part of a name or with `.Name` of a thing in a module behind it, is below one."""
    for folder in folders:
        if any(folder.glob(name.rstrip("/"))):
            return True
        module, _, thing = name.rpartition(".")
        if thing and "/" in module and (folder / f"{module}.py").exists():
            return re.search(rf"\b{re.escape(thing)}\b", (folder / f"{module}.py").read_text("utf-8")) is not None
    return False


def test_each_path_that_is_named_is_there():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, line, text in everything()
        for name in IN_PATHS.findall(text)
        if name not in ELSEWHERE and not is_there(name, ROOT, AGENT, path.parent)
    ]
    assert wrong == []


def test_each_module_that_is_named_without_its_room_is_beside_the_file_or_on_the_ground_floor():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, line, text in everything()
        for name in NAMES.findall(text)
        if name != "base.py" and not is_there(name, path.parent, AGENT, ROOT)
    ]
    assert wrong == []


def test_each_dotted_name_of_a_module_is_there():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: agent{name}"
        for path, line, text in everything()
        for name in DOTTED.findall(text)
        if not is_importable(name.split(".")[1:])
    ]
    assert wrong == []


def is_importable(parts):
    """Whether `agent.` and the parts are a module, or a thing in one."""
    whole, module = AGENT.joinpath(*parts), AGENT.joinpath(*parts[:-1])
    if whole.is_dir() or whole.with_suffix(".py").exists():
        return True
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    return source.exists() and re.search(rf"\b{parts[-1]}\b", source.read_text("utf-8")) is not None


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout


def test_git_blame_passes_over_the_commits_that_only_move_or_rename_and_over_no_others():
    listed = re.findall(r"(?m)^[0-9a-f]{40}$", (ROOT / ".git-blame-ignore-revs").read_text(encoding="utf-8"))
    commits = git("log", "--format=%H %s").splitlines()  # none in an archive without history
    moves = {line[:40]: number for number, line in enumerate(commits) if re.match(r"\w+ (?:Move|Rename) only: ", line)}
    # A commit is listed by a later one, so the newest need not be listed yet.
    assert {commit for commit, age in moves.items() if age >= 30} <= set(listed)
    has_history = git("rev-parse", "--is-shallow-repository").strip() == "false"
    assert not has_history or set(listed) <= set(moves), "a rebase gave the commit another hash"
