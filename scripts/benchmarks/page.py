"""The page of the command `dashboard`: a list of 10,000 tasks, one task of 200,000 messages and 1 GiB, ten open pages.

The server is a process of its own.  Times are those of a client on loopback, from the request to the last byte; memory
is the peak of the server after all of it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import children, machine
from benchmarks.figures import at_most, median, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS, MESSAGES, SIZE = 10_000, 200_000, 5_300
ROUNDS = 20
OPEN_PAGES, SETTLED, SECONDS = 10, 5.0, 60.0
OPENING, MEMORY, IDLE = 200.0, 80.0, 2.0  # ms, MiB, % of a core
UUID = "0a000000-0000-4000-8000-000000000001"
TICKS = os.sysconf("SC_CLK_TCK")


def measure() -> dict[str, Any]:
    with children.workplace(needed=3 << 30) as place:
        machine.say(f"{TASKS:,} tasks, one of {MESSAGES:,} messages")
        children.run("page", "make", place)
        with served(place) as (process, port):
            pages = {
                "tasks": "/tasks",
                "sorted": "/tasks?sort=cost&page=100",
                "searched": "/tasks?text=number+77&status=completed",
                "task": f"/tasks/{UUID}",
                "middle": f"/tasks/{UUID}?at={MESSAGES // 2}",
                "requests": f"/tasks/{UUID}/requests",
                "health": "/health",
            }
            times = {name: [opened(process, port, path) for _ in range(ROUNDS)] for name, path in pages.items()}
            machine.say(f"{OPEN_PAGES} open pages for {SECONDS:.0f} s")
            idle = idling(process, port)
            peak = machine.peak(process.pid) / machine.MIB
    what = {
        "tasks": f"the list of {TASKS:,} tasks",
        "sorted": "… its 100th page, sorted by cost",
        "searched": "… searched",
        "task": f"the newest part of a task of {MESSAGES:,} messages",
        "middle": "… its middle",
        "requests": "… its requests",
        "health": "the health page",
    }
    return {
        **{
            f"page.{name}": at_most(
                percentile([cpu for cpu, _ in found], 0.95),
                OPENING,
                1.0,
                "ms of CPU",
                f"{what[name]}: p95",
                wall_median_ms=round(median([wall for _, wall in found]), 1),
                wall_p95_ms=round(percentile([wall for _, wall in found], 0.95), 1),
            )
            for name, found in times.items()
        },
        "page.memory": at_most(peak, MEMORY, 1.0, "MiB", "peak of the server's RSS after all of it"),
        "page.idle": at_most(idle, IDLE, 1.0, "% of a core", f"{OPEN_PAGES} open pages while nothing happens"),
    }


@contextmanager
def served(place: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server as a process: (process, port)."""
    config = place / "config.yaml"
    command = [sys.executable, str(children.ROOT / "main.py"), "--json", "--config", str(config)]
    with subprocess.Popen(
        [*command, "dashboard", "--port", "0"], env=children.environment(), stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            text = b""
            while not text.strip().endswith(b"}"):
                text += process.stdout.readline()
            yield process, int(json.loads(text)["address"].rstrip("/").rpartition(":")[2])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def opened(process: subprocess.Popen[bytes], port: int, path: str) -> tuple[float, float]:
    """Milliseconds for one page: (CPU of the server, wall time of the client)."""
    before, started = on_cpu(process), time.perf_counter()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        data = answer.read()
    took = time.perf_counter() - started
    assert answer.status == 200, (path, answer.status)
    assert b"problems" in data, path
    return (on_cpu(process) - before) / 1e6, took * 1000


def on_cpu(process: subprocess.Popen[bytes]) -> int:
    """Nanoseconds that the threads of the server have had a core."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads)


def idling(process: subprocess.Popen[bytes], port: int) -> float:
    """Per cent of a core that the server takes while pages are open and nothing happens."""
    paths = ["/events" if number % 2 else f"/events?task={UUID}" for number in range(OPEN_PAGES)]
    with ExitStack() as stack:
        for path in paths:
            connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)))
            connection.request("GET", path)
            assert connection.getresponse().status == 200, path  # what comes after it waits in the socket
        time.sleep(SETTLED)
        before, started = cpu_of(process), time.monotonic()
        time.sleep(SECONDS)
        used, took = cpu_of(process) - before, time.monotonic() - started
    return 100 * used / took


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of the server."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS


# --- what is shown ---------------------------------------------------------------------------------------------


def make(place: Path) -> dict[str, Any]:
    """A base_dir with the tasks."""
    from agent.config import load
    from agent.store.configured_ledger import LedgerKind

    (place / "tracker" / "issues").mkdir(parents=True)
    (place / "config.yaml").write_text(
        "llm: {provider: openai, openai: {model: m, context_length: 128000, base_url: 'http://127.0.0.1:9/v1', "
        "api_key: key-of-the-bench}}\n"
        "local: {tracker: tracker, repos: {default: repo}}\nsandbox: {kind: none}\n"
    )
    settings = load(place / "config.yaml", environ={})
    with closing(LedgerKind.from_settings(settings).open()) as ledger, ledger.db.transaction():
        for number in range(TASKS):
            day = f"2026-11-{number % 28 + 1:02}T{number % 24:02}:00:00.000000Z"
            uuid = UUID if number == 0 else f"{number:08x}-0000-4000-8000-000000000000"
            status = ("completed", "completed", "failed", "stopped")[number % 4] if number else "paused"
            ledger.db.execute(
                "INSERT INTO tasks (uuid, task_source, instance, owner, repo, task_type, task_id, status, created_at, "
                'started_at, completed_at, hostname, title, "user", cost, total_tokens, llm_call_count, '
                "context_length, last_seq) VALUES (:uuid, 'local', 'x', 'o', :repo, 'issue', :id, :status, :at, :at, "
                ":end, 'a-host', :title, 'alice', :cost, :tokens, 10, 128000, :last)",
                uuid=uuid,
                repo=f"r{number % 50}",
                id=str(number),
                status=status,
                at=day,
                end=day if number else None,
                title=f"Task number {number} about something that does not work",
                cost=number / 1000,
                tokens=number * 100,
                last=MESSAGES,
            )
    folder = settings.base_dir / "running" / UUID
    folder.mkdir(parents=True)
    write(folder)
    size = (folder / "messages.jsonl").stat().st_size
    return {"bytes": size}


def write(folder: Path) -> None:
    """The files of a task of MESSAGES messages: answers with one call, and results of SIZE bytes, in turn."""
    text = ("The total is rounded once for each rate. " * 400)[: 2 * SIZE - 700]
    at = "2026-11-30T10:00:00.000000Z"
    names = ("messages", "tools", "requests", "compactions")
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.jsonl").open("w")) for name in names}

        def put(name: str, **record: Any) -> None:
            files[name].write(json.dumps({**record, "timestamp": at}) + "\n")

        for seq in range(1, MESSAGES, 2):
            turn = (seq + 1) // 2
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
            usage = {"prompt_tokens": 20_000 + turn * 37 % 70_000, "completion_tokens": 60, "cached_tokens": 0}
            answer = {"role": "assistant", "content": "I look.", "tokens": 12, "tool_calls": [call], "usage": usage}
            put("messages", seq=seq, **answer, request=turn)
            result = {"role": "tool", "tool_call_id": f"c{turn}", "tool_name": "read_file", "tokens": 900}
            put("messages", seq=seq + 1, **result, content=text, tool_seq=turn)
            put("tools", seq=turn, tool="read_file", args={}, result=text[:200], status="success", duration_ms=3)
            times = {"started_at": at, "first_token_ms": 300, "duration_ms": 2000}
            put("requests", seq=turn, purpose="turn", provider="openai", model="m", status="ok", usage=usage, **times)
            if turn % 500 == 0:
                span = {"start_seq": max(1, seq - 900), "end_seq": seq - 10, "at_seq": seq + 1, "requests": turn}
                put("compactions", id=turn // 500, strategy="mask", **span, tokens_before=90_000, tokens_after=20_000)


if __name__ == "__main__":
    print(json.dumps({"make": make}[sys.argv[1]](Path(sys.argv[2]))))
