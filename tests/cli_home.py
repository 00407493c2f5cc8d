"""A home for commands that read: a configuration with a recorded model, a tracker, and tasks with real files."""

import json
import subprocess
import sys
from pathlib import Path

import quick_start

from agent.config import load
from agent.context import TaskContextManager
from agent.values import End, Outcome, Usage

ROOT = Path(__file__).resolve().parents[1]
EVIL = "\x1b]0;owned\x07Fix \x1b[31mthe\x1b[0m \u202etotals \x9b2J合計"
SHOWN = "Fix the totals 合計"
"""EVIL without the characters that control a terminal."""

OPEN = "0a000000-0000-4000-8000-000000000001"
DONE = "0b000000-0000-4000-8000-000000000002"

FINISH = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "finish", "arguments": '{"title": "Looked", "summary": "Done."}'},
}


class Home:
    """`folder` with config.yaml, tracker/, repo/ and contexts/."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tracker" / "issues").mkdir(parents=True)
        recorded = [
            {"seq": 1, "role": "system", "content": "s"},
            {"seq": 2, "role": "user", "content": "t"},
            {"seq": 3, "role": "assistant", "content": None, "tool_calls": [FINISH]},
        ]
        (folder / "rec.jsonl").write_text("".join(json.dumps(one) + "\n" for one in recorded))
        self.config = folder / "config.yaml"
        self.config.write_text(
            "llm: {provider: replay, replay: {messages: rec.jsonl}}\n"
            "local: {tracker: tracker, repos: {default: repo}}\n"
            "context_storage: {durability: none}\n"
            "sandbox: {kind: none}\n"
        )

    @property
    def settings(self):
        return load(self.config, environ={})

    def repository(self):
        """Make the repository that config.yaml names."""
        subprocess.run(["git", "init", "-q", "--bare", str(self.folder / "repo")], check=True)

    def task(self, uuid, number, **more):
        """Open a task with a short conversation; the caller ends or closes it."""
        key = {
            "task_source": "local",
            "instance": str(self.folder / "tracker"),
            "owner": "local",
            "repo": "default",
            "task_type": "issue",
            "task_id": str(number),
        }
        context = TaskContextManager(key, uuid, self.settings, user="alice", **more)
        messages, tools = context.get_message_store(), context.get_tool_store()
        messages.add_message("system", "You are an agent.")
        messages.add_message("user", "Fix the totals, please.")
        call = {"id": "c1", "name": "read_file", "arguments": {"path": "calc.py"}}
        messages.add_message(
            "assistant", "I look first.", tool_calls=[call], usage=Usage(120, 8), finish_reason="tool_calls"
        )
        seq = tools.add_tool_call("read_file", {"path": "calc.py"}, "def total(): ...\x1b[2J", "success", 12)
        messages.add_message("tool", "def total(): ...\x1b[2J", tool_call_id="c1", tool_seq=seq)
        context.get_effect_store().once("progress", lambda: None, lambda: {"id": "7"})
        context.heartbeat()
        return context

    def both(self):
        """Add an open task without a worker, and a completed one with a hostile title."""
        self.task(OPEN, 1, title="Open one").close()
        context = self.task(DONE, 2, title=EVIL)
        context.get_message_store().add_message("assistant", "Done.", usage=Usage(150, 3), finish_reason="stop")
        context.heartbeat()
        context.complete(Outcome(End.FINISHED))
        return self


def start(*args, cwd):
    """Run main.py to its end, forked (`quick_start.py`); returns output and exit code."""
    return quick_start.run(args, cwd=cwd)


def start_anew(*args, cwd, **more):
    """Run main.py as a person does, with an interpreter of its own; returns output and exit code."""
    return subprocess.run(
        [sys.executable, str(ROOT / "main.py"), *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )
