"""The tutorials are run as they stand: every `sh` block behind the first, in order, in one shell.

The first block is what a reader fills in: variables, which get values of this test here.  The forge, git, the model's
server, the daemon and its workers are real programs; only the model's words are written in advance.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from flow_home import Held, Parts, finish, write
from forge_home import HOMES
from llm_servers import Script
from ollama_server import OllamaServer

from agent.forge.markers import SIGNATURE

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
ROUNDED = "def total(prices):\n    return round(sum(prices))\n"
MOST_LINES = 80


def blocks(page):
    """(the block of settings, the blocks of steps) of a tutorial."""
    first, *steps = re.findall(r"(?ms)^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"))
    return first, steps


@pytest.fixture
def follow(tmp_path):
    """`follow(name, **variables)` does what a tutorial says in a home of its own; the folder of the trial and what was
    printed."""
    home = tmp_path / "reader"
    home.mkdir()

    def go(name, **variables):
        settings, steps = blocks(ROOT / "docs" / "tutorials" / f"{name}.md")
        assert set(re.findall(r"(?m)^export (\w+)=", settings)) == {"MAKIMONO", *variables}
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TZ", "TMPDIR")}
        done = subprocess.run(
            ["sh", "-eu", "-c", "\n".join(steps)],
            cwd=home,
            env={**kept, "HOME": str(home), "MAKIMONO": str(ROOT), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return home / "makimono-trial", done.stdout

    yield go
    for process in of(home):
        os.kill(process, signal.SIGKILL)


def of(home):
    """Processes that were started with this home."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"HOME={home}".encode() in variables:
            yield int(entry.name)


@pytest.mark.parametrize("kind", ["github", "gitlab", "forgejo"])
def test_from_the_label_to_the_pull_request_and_a_stop(follow, tmp_path, kind):
    plays = {
        "Say hello": [write("hello.py", "print('hello')\n"), finish("Say hello", "It prints hello.")],
        "Write a long history": [Held(finish())],
    }
    home = HOMES[kind](tmp_path / "forge", plays)
    try:
        mine = f"token-of-alice-{'a' * 20}"
        if kind == "github":  # one account for the person and the program (tutorials/own_token.md)
            mine = home.token
            variables = {"GITHUB_API": home.base_url, "GITHUB_PROJECT": home.project, "GITHUB_TOKEN": home.token}
        elif kind == "forgejo":
            home.server.tokens[mine] = ("alice", {"write:repository", "write:issue", "read:user"})
            variables = {"FORGEJO_URL": home.base_url, "FORGEJO_PROJECT": home.project, "FORGEJO_TOKEN": home.token}
        else:
            home.server.user("alice", token=mine)
            variables = {"GITLAB_URL": home.base_url, "GITLAB_PROJECT": home.project, "GITLAB_TOKEN": home.token}
        model = {
            "OPENAI_BASE_URL": f"{home.flow.server.url}/v1",
            "OPENAI_API_KEY": "key-of-the-test",
            "OPENAI_MODEL": "gpt-4o",
        }
        _, printed = follow(kind, MY_TOKEN=mine, **variables, **model)
        (pull,) = home.pulls()
        assert (pull.title, pull.draft, pull.state) == ("Say hello", False, "open")
        assert home.show(f"{pull.head}:hello.py") == "print('hello')\n"
        assert "Say hello, draft: false" in printed
        assert "200 tokens in, 40 out · cost 0.0009 USD · gpt-4o" in printed  # at the prices of the tutorial
        stopped = [body for body in all_comments(home, 2 if kind == "gitlab" else 3) if ":final -->" in body]
        assert len(stopped) == 1
        assert stopped[0].startswith("**Stopped, as asked.**")
        if kind == "github":
            assert "makimono wrote /stop" in stopped[0]
            assert SIGNATURE in stopped[0]
    finally:
        home.close()


def all_comments(home, number):
    """Bodies of the comments of an issue."""
    if home.source == "forgejo":
        timeline = home.state.issues[number]["timeline"]
        return [one["body"] for one in timeline if one["type"] == "comment"]
    if home.source == "github":
        return [one["body"] for one in home.state.comments.values() if one["issue"] == number]
    return [note["body"] for note in home.place.project["issues"][number]["notes"]]


def test_a_local_model_from_the_issue_to_the_pull_request_and_a_stop(follow):
    long_history = Held(("", "", [("finish", {"title": "Never", "summary": "Never."})]))
    steps = [
        ("", "I am here.", []),  # to doctor
        ("", "I round the sum.", [("write_file", {"path": "calc.py", "content": ROUNDED})]),
        ("", "", [("finish", {"title": "Round the sum", "summary": "The sum is rounded."})]),
    ]
    ollama = OllamaServer(32_768, lambda number: steps[number - 1] if number <= len(steps) else long_history(None))
    other = Script(Parts({"Totals are off": [write("calc.py", ROUNDED), finish("Round the sum", "Done.")]}))
    try:
        folder, printed = follow(
            "local_model",
            OLLAMA_ENDPOINT=ollama.url,
            OLLAMA_MODEL="m",
            OPENAI_BASE_URL=f"{other.url}/v1",
            OPENAI_MODEL="local",
        )
    finally:
        long_history.go()
        ollama.close()
        other.close()
    for number in (1, 2):
        pull = (folder / "tracker" / "pulls" / f"{number}.md").read_text(encoding="utf-8")
        assert "title: Round the sum" in pull
        assert "draft: false" in pull
        assert pull in printed
        head = re.search(r"head: (\S+)", pull)[1]
        shown = subprocess.check_output(["git", "-C", str(folder / "shop"), "show", f"{head}:calc.py"], text=True)
        assert shown == ROUNDED
    last = (folder / "tracker" / "issues" / "2.comments.jsonl").read_text(encoding="utf-8")
    assert "me wrote /stop" in last


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_is_short(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
