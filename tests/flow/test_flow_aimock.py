"""Three issues in two repositories against somebody else's model server (aimock from npm), two workers, the sandbox on."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flow_home import SECONDS, FlowHome, finished, until
from ports import free_port

AIMOCK = Path(__file__).parents[1] / "peers" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


def part(words, *steps):
    """Fixtures of one conversation: aimock counts the turns itself."""
    return [
        {"match": {"userMessage": words, "turnIndex": index}, "response": response, "latency": 20}
        for index, response in enumerate(steps)
    ]


def calls(name, **arguments):
    return {"toolCalls": [{"name": name, "arguments": json.dumps(arguments)}]}


FIXTURES = [
    *part("Totals are off", calls("read_file", path="calc.py"), calls("edit_file", path="calc.py", old_text="sum(round(p) for p in prices)", new_text="round(sum(prices))"), calls("run_command", command="python3 -c 'import calc; print(calc.total([1.4, 1.4]))'; sleep 1"), calls("finish", title="Round once", summary="Rounds the sum.")),
    *part("Greet in Japanese", calls("write_file", path="hello.py", content="print('こんにちは')\n"), calls("run_command", command="sleep 1; ls"), calls("finish", title="挨拶", summary="日本語で挨拶します。")),
    *part("Say who wrote it", calls("write_file", path="AUTHORS", content="Alice\n"), calls("run_command", command="sleep 1; cat AUTHORS"), calls("finish", title="Name the author", summary="The file AUTHORS names her.")),
]  # fmt: skip


def missing(what):
    if os.environ.get("CI") == "1":
        pytest.fail(f"{what}; scripts/test-peers installs it")
    pytest.skip(f"{what}; scripts/test-peers installs it")


@pytest.fixture(scope="module")
def aimock(tmp_path_factory):
    node = shutil.which("node") or str(Path(sys.executable).parent / "node")
    if not Path(node).exists():
        missing("node is not installed")
    if not AIMOCK.exists():
        missing("aimock is not installed in tests/peers")
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    port = free_port()
    argv = [node, str(AIMOCK), "-p", str(port), "-f", str(folder / "fixtures.json"), "--log-level", "warn"]
    with (folder / "log").open("wb") as out:
        server = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        until(lambda: server.poll() is not None or answers(port), "the start of aimock")
        assert server.poll() is None, (folder / "log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def answers(port):
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_three_issues_become_three_pull_requests_two_at_a_time(aimock, tmp_path):
    home = FlowHome(
        tmp_path, url=aimock, repos=("shop", "site"), sandbox="auto", config="scheduling: {max_workers: 2}\n"
    )
    try:
        home.issue(1, "Totals are off", repo="shop")
        home.issue(2, "Greet in Japanese", repo="site")
        home.issue(3, "Say who wrote it", repo="shop")
        daemon = home.start("run", "--once")
        most_rows = most_workers = 0
        deadline = time.monotonic() + SECONDS
        while daemon.poll() is None and time.monotonic() < deadline:
            most_rows = max(most_rows, sum(row["status"] == "running" for row in home.rows().values()))
            most_workers = max(most_workers, len(home.workers()))  # a child that is about to exec has the same title
            time.sleep(0.1)
        text = finished(daemon)
        assert daemon.returncode == 0, text
        assert 1 <= most_rows <= 2
        assert most_workers <= 2

        rows = home.rows()
        assert {row["status"] for row in rows.values()} == {"completed"}
        assert sorted(rows) == [1, 2, 3]
        assert len(home.pulls()) == 3
        assert {number: home.label(number) for number in rows} == dict.fromkeys(rows, "coding agent done")
        assert len([name for name in home.branches("shop") if name.startswith("makimono/")]) == 2
        assert len([name for name in home.branches("site") if name.startswith("makimono/")]) == 1
        assert "round(sum(prices))" in home.show(f"{rows[1]['branch']}:calc.py", "shop")
        assert home.show(f"{rows[2]['branch']}:hello.py", "site") == "print('こんにちは')\n"
        assert "日本語で挨拶します。" in home.said(2)[0]
        assert len(list((home.contexts / "completed").iterdir())) == 3
        assert not list((home.contexts / "running").iterdir())
        assert home.workers() == {}
        for row in rows.values():
            assert row["llm_call_count"] == (4 if row["task_id"] == "1" else 3)
            assert not list((home.contexts / "completed" / row["uuid"]).glob("request.json"))
    finally:
        home.close()
