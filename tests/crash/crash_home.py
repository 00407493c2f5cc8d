"""One short task with every kind of step, from its claim to its end, and the checks after any kill.

Three files are written, a command appends a line, a step of the plan publishes a draft, a compaction by summary
happens, the rest is published and the task closes.  The model's answer depends only on the request, so a run that was
interrupted anywhere gets the right answer.  After a result that reads "interrupted" the model writes the file again,
and never runs the command again.
"""

import json
import re
import shutil
import traceback

from flow_home import FlowHome, finish, write
from forks import Forks
from llm_servers import Script, call, says
from summaries import honest

from agent.config import load
from agent.context import projection
from agent.context.outside_effects import ROW
from agent.issue import claims

TITLE = "Keep notes"
WORDS = "The scroll is unrolled again whenever somebody needs it, from the right to the left.\n"
COMMAND = 3
RAN = "ran.txt"


def text_of(number):
    return f"step-{number}\n" + WORDS * 40


STEPS = {
    1: write("notes/step-1.md", text_of(1)),
    2: ("", [call("update_plan", {"items": [{"text": "notes/step-2", "status": "done"}]}, "call_2")]),
    COMMAND: ("", [call("run_command", {"command": f"echo step-{COMMAND} >> {RAN}"}, "call_3")]),
    4: write("notes/step-4.md", text_of(4)),
    5: write("notes/step-5.md", text_of(5)),
}
FILES = {f"notes/step-{number}.md": text_of(number) for number in (1, 4, 5)}


def author(request):
    """The model."""
    messages = request.json["messages"]
    said = json.dumps(messages)
    newest = max((int(found) for found in re.findall(r"step-(\d)", said)), default=0)
    if "tools" not in request.json:
        text = honest(messages[0]["content"])
        return says("openai", f"{text}\n- the notes up to notes/step-{newest} are written")
    last = messages[-1]
    again = last["role"] == "tool" and "interrupted" in (last["content"] or "") and newest != COMMAND
    text, calls = STEPS.get(newest if again and newest else newest + 1) or finish(TITLE, "The notes are kept.")
    return says("openai", text, calls)


class CrashHome:
    """`folder/home` in its state before the first poll (`fresh` restores it), its model, and its runs."""

    def __init__(self, folder, author=author):
        self.server = Script(author)
        self.path = folder / "home"
        self.path.mkdir()
        self.flow = FlowHome(self.path, server=self.server)
        config = self.flow.config.read_text()
        config = config.replace("context_length: 32000", "context_length: 8192")
        kept = "{durability: turn, strategy: summary, compression_threshold: 0.48, min_messages_to_summarize: 2, keep_recent_messages: 1}"
        self.flow.config.write_text(config.replace("{durability: none}", kept))
        self.flow.issue(1, TITLE, "Please keep notes of the work.")
        for work in self.path.glob("work-*"):
            shutil.rmtree(work)
        self.saved = folder / "saved"
        shutil.copytree(self.path, self.saved)
        self.forks = Forks()

    def fresh(self):
        shutil.rmtree(self.path)
        shutil.copytree(self.saved, self.path)

    def recover(self):
        """Run fresh daemons, each with a later clock, until nothing is open; returns their number."""
        for count in range(1, 5):
            code = self.forks.run("recover", self.flow.config, ahead=120.0 * count)
            rows = self.flow.rows()
            if rows and all(row["status"] == "completed" for row in rows.values()):
                return count
        raise AssertionError(f"the task is not done: exit {code}, {self.flow.rows()}")

    def close(self):
        self.forks.close()
        self.flow.close()

    def survived(self, what):
        """Recover and check; returns "", or `what` and the line that failed."""
        try:
            self.recover()
            self.check()
        except (AssertionError, OSError, ValueError) as error:
            return f"{what}: {traceback.extract_tb(error.__traceback__)[-1].line}: {error!r}"
        return ""

    def check(self):
        """The checks at the end."""
        from pysqlite3 import dbapi2 as sqlite3

        home = self.flow
        database = sqlite3.connect(home.contexts / "tasks.db")
        rows = database.execute("SELECT uuid, status, outcome FROM tasks").fetchall()
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.close()
        [(uuid, status, outcome)] = rows
        assert (status, outcome) == ("completed", "finished"), rows
        assert not list((home.contexts / "running").iterdir()), "its folder moved"
        folder = home.contexts / "completed" / uuid
        assert [path.name for path in (home.contexts / "completed").iterdir()] == [uuid]
        self.check_files(folder)
        self.check_outside(uuid)
        return folder

    def check_files(self, folder):
        """Check that every file can be read, numbers have no gap, and the view matches the facts."""
        for path in set(folder.glob("*.jsonl")) - {folder / "current.jsonl"}:
            key = "id" if path.name in ("summaries.jsonl", "compactions.jsonl") else "seq"
            data = path.read_bytes()
            numbers = [json.loads(line)[key] for line in data.splitlines()]
            assert not data or data.endswith(b"\n"), path.name
            assert numbers == list(range(1, len(numbers) + 1)), (path.name, numbers)
        json.loads((folder / "metadata.json").read_bytes())
        summaries = {one["id"] for one in lines(folder / "summaries.jsonl")}
        named = {one["summary_id"] for one in lines(folder / "compactions.jsonl")} - {None}
        assert named <= summaries, "a compaction has its summary"
        assert (folder / "current.jsonl").read_bytes() == b"".join(data for data, _ in projection.lines(folder))
        left = [path.name for path in folder.iterdir() if path.name.endswith(".tmp") or path.name == "request.json"]
        assert not left, left
        messages = lines(folder / "messages.jsonl")
        assert [one["role"] for one in messages[:2]] == ["system", "user"]
        assert sum(one.get("kind") == "task" for one in messages) == 1
        assert messages[-1].get("tool_name") == "finish", "nothing of the end is missing"
        effects = lines(folder / "effects.jsonl")
        receipts = [one["name"] for one in effects if one["state"] == "receipt" and one["name"] != ROW]
        assert len(receipts) == len(set(receipts)), receipts

    def check_outside(self, uuid):
        """Check that each outside effect has happened exactly once."""
        home = self.flow
        assert home.label(1) == "coding agent done"
        markers = [found for one in home.comments(1) for found in re.findall(r"<!-- makimono:(\S+) -->", one["body"])]
        of = f"{claims.HOME}{claims.home_of(load(self.flow.config))}"  # the ledger from which the claim was made
        assert sorted(markers) == sorted([f"{uuid}:{of}", f"{uuid}:progress", f"{uuid}:final"]), markers
        [pull] = home.pulls()
        assert "draft: false" in pull
        branch = f"makimono/1-{uuid[:8]}"
        assert sorted(home.branches()) == ["main", branch]
        assert home.show(f"{branch}:README.md") == "# It\n"
        for name, text in FILES.items():
            assert home.show(f"{branch}:{name}") == text, name
        if RAN in home.show(f"{branch}:").split():  # interrupted before it began or while it wrote, it is not run again
            assert len(home.show(f"{branch}:{RAN}")) <= len(f"step-{COMMAND}\n"), "no command ran twice"
        subjects = home.show(f"main..{branch}").count("\ncommit ")
        assert subjects <= 3


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
