"""`demo`: a clean folder, a real bug, the daemon, and a model that is live or a recording that says so."""

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import outsiders
import pytest
import quick_start
from flow_home import Parts, finish
from llm_servers import Reply, Script, call

from agent.cli.solve import _further
from agent.commands.demo import Demo, preferred_model
from agent.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9"
"""The discard port: nothing listens there, whatever runs on this machine."""


def demo(folder, *args, code=0, within=None, **environment):
    """`within` are the words before the program, which then has an interpreter of its own."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TZ", "TMPDIR")}
    env = kept | {"HOME": str(folder), "OLLAMA_ENDPOINT": NOWHERE, "LMSTUDIO_BASE_URL": NOWHERE} | environment
    if within is None:
        done = quick_start.run(["demo", *args], cwd=folder, env=env, timeout=120)
    else:
        argv = [*within, sys.executable, str(ROOT / "main.py"), "demo", *map(str, args)]
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def recorded_steps():
    """The recording as the parts of a scripted model: (text, calls)."""
    lines = (files("agent.commands") / "demo_data" / "messages.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    steps = []
    for record in records:
        if record["role"] == "assistant":
            made = [(one["id"], one["function"]) for one in record["tool_calls"]]
            calls = [call(function["name"], function["arguments"], identifier) for identifier, function in made]
            steps.append((record["content"] or "", calls))
    return steps


def test_without_any_model_a_recording_is_replayed_and_it_says_so(tmp_path):
    done = demo(tmp_path, within=())
    text = done.stdout
    order = [
        "a REPLAY of a recorded conversation",
        "OPENAI_API_KEY is not set",
        f"nothing answers at {NOWHERE} (ollama)",
        "== The issue",
        "on main ends with exit code 1",
        "AssertionError: {19: 711} != {19: 710}",
        "run_command  python3 -m unittest",
        ": completed",
        "draft: false",
        "+++ b/billing/invoice.py",
        "ends with exit code 0",
        "The model was a recording",
        "was removed",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)
    assert done.stderr == ""
    assert "\x1b" not in text
    folder = Path(text.split()[1])
    assert folder.name.startswith("makimono-demo-")
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_kept_in_a_folder_that_is_named_it_can_be_looked_at(tmp_path):
    done = demo(tmp_path, "--json", "here")
    result = json.loads(done.stdout)
    here = tmp_path / "here"
    assert (result["worked"], result["replay"], result["status"]) == (True, True, "completed")
    assert (result["before"]["exit_code"], result["after"]["exit_code"]) == (1, 0)
    assert "Ran 6 tests" in result["after"]["output"]
    assert result["folder"] == str(here)
    shown = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "tasks", "--json", "--config", str(here / "config.yaml")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert [row["uuid"] for row in json.loads(shown.stdout)] == [result["uuid"]]
    assert (here / "tracker" / "pulls" / "1.md").is_file()
    assert list((here / "contexts").glob("checkout-*")) == []
    for folder in (here, *here.parents[:-1]):  # nothing above keeps others out
        if folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    if os.geteuid() == 0:
        assert outsiders.readable(here / "contexts") == []


NO_TMP = """
mount -t tmpfs -o mode=755 none /mnt
for top in /*; do
    case $top in /tmp|/var|/mnt) continue;; esac
    if [ -L $top ]; then cp -P $top /mnt$top; elif [ -d $top ]; then mkdir /mnt$top && mount --rbind $top /mnt$top; fi
done
mkdir /mnt/data /mnt/old && mount --bind "$PWD" /mnt/data && cd /mnt && pivot_root . old
mount -o remount,ro / && umount -l /old && cd / && exec "$@"
"""


def test_on_a_machine_without_a_folder_for_temporary_files_workers_start(tmp_path):
    """A container may have no /tmp, and its root may be read-only."""
    within = ["unshare", "--mount", "sh", "-ec", NO_TMP, "sh"]
    if os.geteuid() != 0 or any(ROOT.is_relative_to(place) for place in ("/tmp", "/var", "/mnt")):
        pytest.skip("such a machine cannot be made here")
    trial = subprocess.run([*within, "sh", "-c", "! mkdir /tmp"], cwd=tmp_path, capture_output=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"such a machine cannot be made here: {trial.stderr.decode().strip()}")
    result = json.loads(demo(tmp_path, "--json", "/data/here", within=within, TMPDIR="").stdout)
    assert (result["worked"], result["status"]) == (True, "completed")
    assert list((tmp_path / "here" / "tmp").iterdir()) == []


def test_what_it_says_to_type_can_be_typed_wherever_it_lies(tmp_path):
    shown = Demo(tmp_path / "it's my demo", made=False)
    for line in _further(shown, tmp_path / "a program" / "main.py"):
        words = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True)
        said = words.stdout.splitlines()
        assert said[:2] == ["python3", str(tmp_path / "a program" / "main.py")]
        assert said[-2:] == ["--config", str(shown.config)]


def test_a_folder_that_holds_anything_is_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert "not empty" in demo(tmp_path, "full", code=2).stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_a_live_model_is_used_where_one_answers_and_the_environments_other_words_do_not_count(tmp_path):
    models = Reply({"object": "list", "data": [{"id": "text-embed-1"}, {"id": "some-talker"}]})
    script = Script(Parts({"one cent": recorded_steps()}), routes={("GET", "/v1/models"): models})
    try:
        done = demo(
            tmp_path,
            "--json",
            "--keep",
            "here",
            OPENAI_API_KEY="key-of-the-test",
            OPENAI_BASE_URL=f"{script.url}/v1",
            TASK_SOURCE="github",
            CONTEXT_STORAGE_ENABLED="false",
        )
    finally:
        script.close()
    result = json.loads(done.stdout)
    assert (result["provider"], result["model"], result["replay"]) == ("openai", "some-talker", False)
    assert result["worked"] is True
    asked = [request.json["model"] for request in script.journal if request.path.endswith("/chat/completions")]
    assert len(asked) == len(recorded_steps())
    assert set(asked) == {"some-talker"}
    assert b"key-of-the-test" not in b"".join(
        one.read_bytes() for one in (tmp_path / "here").rglob("*") if one.is_file()
    )


def test_a_model_that_does_not_solve_it_is_a_failure(tmp_path):
    models = Reply({"object": "list", "data": [{"id": "some-talker"}]})
    script = Script(Parts({"one cent": [finish("Nothing", "I do not know.")]}), routes={("GET", "/v1/models"): models})
    try:
        done = demo(tmp_path, code=1, OPENAI_API_KEY="key-of-the-test", OPENAI_BASE_URL=f"{script.url}/v1")
    finally:
        script.close()
    assert "some-talker by openai" in done.stdout
    assert "was removed" in done.stdout


def test_ollama_is_asked_where_there_is_no_key(tmp_path, monkeypatch):
    tags = Reply({"models": [{"name": "bge-m3:latest"}, {"name": "qwen3:4b"}, {"name": "llama3.2:3b"}]})
    script = Script(Reply({}, 404), routes={("GET", "/api/tags"): tags})
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OLLAMA_ENDPOINT", script.url)
    try:
        shown = Demo.prepare(tmp_path / "demo")
        mind = shown.find_model
    finally:
        script.close()
    if mind.is_replay:
        assert "there is no sandbox here" in mind.passed_over[-1]
        pytest.skip(mind.passed_over[-1])
    assert (mind.provider, mind.model) == ("ollama", "qwen3:4b")
    assert shown.settings.provider().context_length == 16_384
    assert shown.settings.llm.provider == "ollama"


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        ([], "wanted"),
        (["other", "wanted:latest"], "wanted"),
        (["nomic-embed-text", "mistral:7b", "qwen2.5-coder:7b"], "qwen2.5-coder:7b"),
        (["whatever:1b"], "whatever:1b"),
        (["nomic-embed-text"], ""),
    ],
)
def test_the_model_is_one_that_the_server_lists_and_that_talks(listed, chosen):
    assert preferred_model(listed, "wanted") == chosen


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        Demo.prepare(tmp_path / "file")


def test_the_recording_names_no_place_of_the_machine_it_was_made_on():
    text = (files("agent.commands") / "demo_data" / "messages.jsonl").read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert "/tmp/" not in text


NO_NAMESPACES = (
    "unshare",
    "-Ur",
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --no-new-privs "$@"',
    "sh",
)
"""Starts a command where user namespaces are switched off and root has no power: nothing can be isolated there."""


def test_where_commands_cannot_be_isolated_the_recording_is_played_and_it_says_so(tmp_path):
    """A live model would have to work without any command; those of the recording are known."""
    tried = subprocess.run([*NO_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no user namespace to switch them off in: {tried.stderr}")
    models = Reply({"object": "list", "data": [{"id": "some-talker"}]})
    script = Script(Parts({}), routes={("GET", "/v1/models"): models})
    try:
        done = demo(
            tmp_path,
            OPENAI_API_KEY="key-of-the-test",
            OPENAI_BASE_URL=f"{script.url}/v1",
            within=NO_NAMESPACES,
        )
    finally:
        script.close()
    assert "openai answers, but no sandbox: commands cannot be isolated here" in done.stdout
    assert "the recording runs without one" in done.stdout
    assert "commands without a sandbox" in done.stdout
    assert "ends with exit code 0" in done.stdout
