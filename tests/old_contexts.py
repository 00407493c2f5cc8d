"""Creates `cases/old_contexts/COMMIT.tar.gz`: a home as the program of that commit left it.

`python tests/old_contexts.py COMMIT ...` checks out the program with git, gives it a local tracker and a recorded
model, and lets it work on issue 1 to its end and on issue 2 up to a question, which pauses the task.  The archives are
in the repository, and no test recreates them: their uuids and times are those of their creation.  Files contain `HOME`
in place of the original folder; `unpacked` replaces it.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVES = ROOT / "tests" / "cases" / "old_contexts"
HOME = "/home/old/makimono"
"""The folder named in the files of an archive."""

CONFIG = """\
task_sources: [local]
local: {tracker: tracker, repos: {default: repos/default.git}}
llm: {provider: replay, replay: {messages: recorded.jsonl}}
sandbox: {kind: none}
"""
COMMITS = {
    "59fa959b": "the first that has `demo`",
    "588f6b6d": "nearly two hundred commits before the archives were made",
}


def call(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


DONE = [call("write_file", path="a.txt", content="one\n"), call("finish", title="Write a", summary="There is an a.")]
ASKS = [
    call("write_file", path="b.txt", content="two\n"),
    call("ask_user", question="Red or blue?"),
    call("write_file", path="colour.txt", content="blue\n"),
    call("finish", title="Write b", summary="There is a b in blue."),
]


def recording(steps):
    """The messages.jsonl of a model that makes these calls, one per answer."""
    records = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "Please.", "kind": "task"}]
    for number, step in enumerate(steps, 1):
        made = {"id": f"call_{number}", **step}
        records.append({"role": "assistant", "content": "", "tool_calls": [made]})
        records.append(
            {"role": "tool", "content": "done", "tool_call_id": made["id"], "tool_name": step["function"]["name"]}
        )
    return "".join(json.dumps({"seq": seq, **one}) + "\n" for seq, one in enumerate(records, 1))


def issue(home, number, title):
    (home / "tracker" / "issues").mkdir(parents=True, exist_ok=True)
    head = f"title: {title}\nlabels: [coding agent]\nauthor: alice\nstate: open\n"
    (home / "tracker" / "issues" / f"{number}.md").write_text(f"---\n{head}---\nPlease.\n")


def work(program, home, number, title, steps):
    """One run of `program` with one additional issue and that recording."""
    (home / "recorded.jsonl").write_text(recording(steps))
    issue(home, number, title)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    argv = [sys.executable, str(program / "main.py"), "run", "--once", "--config", str(home / "config.yaml")]
    subprocess.run(argv, cwd=home, env=environment, check=True)


def make(commit):
    with tempfile.TemporaryDirectory() as place:
        program, home = Path(place, "program"), Path(place, "home")
        source = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            archive.extractall(program, filter="data")
        (home / "repos").mkdir(parents=True)
        (home / "config.yaml").write_text(CONFIG)
        repository(home / "repos" / "default.git")
        work(program, home, 1, "Write an a", DONE)
        work(program, home, 2, "Write a b", ASKS)
        shutil.rmtree(home / "contexts" / "mirrors", ignore_errors=True)  # recreated on demand
        renamed(home, str(home), HOME)
        ARCHIVES.mkdir(exist_ok=True)
        with tarfile.open(ARCHIVES / f"{commit}.tar.gz", "w:gz", compresslevel=9) as archive:
            archive.add(home, ".", filter=nobodys)


def repository(path):
    sys.path.insert(0, str(ROOT / "tests"))
    from first_commit import bare

    bare(path)
    shutil.rmtree(path / "hooks", ignore_errors=True)


def nobodys(info):
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def renamed(home, old, new):
    """Replace `old` by `new` in every file; in SQLite files with SQL."""
    from pysqlite3 import dbapi2 as sqlite3

    for path in sorted(home.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix == ".db":
            with sqlite3.connect(path) as database:
                for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    for column in database.execute(f"PRAGMA table_info({table})").fetchall():
                        name = f'"{column[1]}"'
                        database.execute(
                            f"UPDATE {table} SET {name} = replace({name}, ?, ?) WHERE typeof({name}) = 'text' "
                            f"AND instr({name}, ?)",
                            (old, new, old),
                        )
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.close()
            for beside in (f"{path}-wal", f"{path}-shm"):
                Path(beside).unlink(missing_ok=True)
            continue
        data = path.read_bytes()
        if old.encode() in data:
            path.write_bytes(data.replace(old.encode(), new.encode()))


def unpacked(commit, folder):
    """The home of that commit, unpacked to `folder` and with all paths adjusted."""
    with tarfile.open(ARCHIVES / f"{commit}.tar.gz") as archive:
        # Python 3.11 has no filters before 3.11.4, and 3.14 uses another one if none is named.
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        archive.extractall(folder)
    renamed(folder, HOME, str(folder))
    return folder


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMITS:
        make(name)
