"""Building a request copies bytes: request.json from a current.jsonl of 100 MB.

Against `cp` of the same file, and against the usual way: `json.loads` of the lines and `json.dumps` of the list.  CPU
time, best of rounds in which all take turns; the checks of lines that were seen before are done before, as in a task.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine
from benchmarks.figures import at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 100_000_000
RESULT = 4_000  # characters of a tool result
ROUNDS = 5
WIRES = ("openai", "ollama", "anthropic")


def measure() -> dict[str, Any]:
    with children.workplace(needed=1 << 30) as place:
        best = children.run("request", place)
    unit = "s of CPU for 100 MB"
    of_list = "json.loads of the lines and json.dumps of the list"
    return {
        "request.openai_cp": at_most(best["openai"], best["cp"], 2.5, unit, "request.json for OpenAI against cp"),
        "request.openai_list": at_least(best["openai"], best["list"], 10.0, unit, f"… for OpenAI against {of_list}"),
        "request.ollama_list": at_least(best["ollama"], best["list"], 2.0, unit, f"… for Ollama against {of_list}"),
        "request.anthropic_list": at_least(
            best["anthropic"], best["list"], 2.0, unit, f"… for Anthropic against {of_list}"
        ),
    }


def part(place: Path) -> None:
    """All ways, in turn."""
    from agent.context import MessageStore
    from agent.llm import make_client
    from agent.llm.client import RequestBody
    from agent.values import Span
    from benchmarks import texts
    from benchmarks.settings import settings

    path = place / "current.jsonl"
    fill(path, texts)
    spans = (Span(path),)
    ways: dict[str, Callable[[], None]] = {"cp": lambda: None, "list": lambda: by_list(path, place / "list.json")}
    for provider in WIRES:
        folder = place / provider
        folder.mkdir()
        chosen = settings(place, provider)
        client = make_client(chosen, MessageStore(folder, chosen), folder)
        client.lines.check(spans)

        def build(client: Any = client) -> None:
            shape = client.lines.check(spans)
            with client.request(RequestBody(spans, shape), keep=False):
                pass

        ways[provider] = build
    best: dict[str, float] = {}
    for number in range(ROUNDS):
        machine.say(f"round {number + 1} of {ROUNDS}")
        for name, way in ways.items():
            seconds = cpu_of_cp(path, place / "copy") if name == "cp" else cpu_of(way)
            best[name] = min(seconds, best.get(name, seconds))
    print(json.dumps(best))


def fill(path: Path, texts: Any) -> None:
    """System prompt, briefing, then calls and results."""
    contents = texts.of_size(RESULT)
    with path.open("wb") as file:
        for line in ({"role": "system", "content": "You are careful."}, {"role": "user", "content": "Mend the sum."}):
            file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        number = 0
        while file.tell() < SIZE:
            number += 1
            for line in texts.group(number, next(contents)):
                file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")


def by_list(path: Path, target: Path) -> None:
    """The usual way."""
    with path.open(encoding="utf-8") as file:
        messages = [json.loads(line) for line in file]
    target.write_text(json.dumps({"model": "bench-model", "stream": True, "messages": messages}), encoding="utf-8")
    target.unlink()


def cpu_of(way: Callable[[], None]) -> float:
    started = time.process_time()
    way()
    return time.process_time() - started


def cpu_of_cp(source: Path, target: Path) -> float:
    """CPU seconds of a `cp` process, to a file that is not there yet."""
    process = subprocess.Popen(["cp", "--reflink=never", source, target])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    target.unlink()
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    part(Path(sys.argv[1]))
