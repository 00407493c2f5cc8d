"""A place with a repository, a local tracker with issues, and a recording: what a real task needs."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from agent.forge.local import issue_files
from benchmarks import texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


CODE = {"calc.py": "def total(prices):\n    return sum(round(p) for p in prices)\n"}
BODY = "`total()` in part {number} rounds each price; it must round the sum.\n"


def make(place: Path, issues: int = 1, *, files: Mapping[str, str] = CODE, body: str = BODY) -> dict[str, Any]:
    """The `local` section of the settings.  `place` gets `repo/` (one commit: data.txt and `files`, path → content) and
    `tracker/`."""
    repo, tracker = place / "repo", place / "tracker"
    for number in range(1, issues + 1):
        issue = issue_files.IssueFile("Totals are off", "alice", body.format(number=number))
        issue_files.write_issue(tracker, str(number), issue.rendered("coding agent"), mode=0o644)
    repo.mkdir()
    for path, content in {"data.txt": texts.source(), **files}.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(content, encoding="utf-8")
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for command in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-q", "-m", "Start")):
        subprocess.run(["git", *command], cwd=repo, check=True, capture_output=True)
    return {"tracker": str(tracker), "repos": {"default": str(repo)}}


def record(path: Path, calls: list[tuple[str, dict[str, Any]]], turn_tokens: int = 2_700) -> Path:
    """A recording whose answers are these calls, one each, with the usage that a provider would report."""
    with path.open("w", encoding="utf-8") as file:
        for number, (name, arguments) in enumerate(calls):
            call = {
                "id": f"call_{number:06d}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            prompt = 2_000 + number * turn_tokens
            line = {
                "seq": number + 1,
                "role": "assistant",
                "content": "I look at the next part of the data.",
                "tool_calls": [call],
                "finish_reason": "tool_calls",
                "usage": {"prompt_tokens": prompt, "completion_tokens": 60, "cached_tokens": prompt // 2},
            }
            file.write(json.dumps(line) + "\n")
    return path
