"""The command line as a person meets it: real processes, their exit codes, and never a traceback."""

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cli_home import DONE, OPEN, ROOT, SHOWN, Home, start, start_anew

from agent.sandbox import sandbox_user

NOBODY = 65534


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home")).both()


def ended(done, code):
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


# --- configuration ------------------------------------------------------------------------------------------


def test_a_named_configuration_that_is_not_there_is_2(tmp_path):
    done = ended(start_anew("tasks", "--config", "missing.yaml", cwd=tmp_path), 2)
    assert "missing.yaml" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llm: {provider: [", "line 1"),
        ("scheduling: {max_worker: 2}\n", "max_workers"),
        ("- a list\n", "mapping"),
        ("scheduling: {interval: soon}\n", "scheduling.interval"),
    ],
)
def test_a_configuration_that_is_wrong_is_2_and_says_where(tmp_path, text, said):
    (tmp_path / "config.yaml").write_text(text)
    done = ended(start("run", "--once", cwd=tmp_path), 2)
    assert said in done.stderr
    assert not (tmp_path / "contexts").exists()


@pytest.mark.parametrize("command", [("run", "--once"), ("solve", "issue.md")])
def test_no_command_of_a_configuration_that_others_may_write_is_run(tmp_path, command):
    config = tmp_path / "config.yaml"
    config.write_text("verify: {command: 'touch ran'}\nsandbox: {kind: none}\n")
    config.chmod(0o666)
    (tmp_path / "issue.md").write_text("# Do it\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    done = ended(start(*command, cwd=tmp_path), 2)
    assert "verify.command is a command of config.yaml, and " in done.stderr
    assert f"Give {config} and the folders above it to this user alone" in done.stderr
    ended(start("config", "show", cwd=tmp_path), 0)


@pytest.mark.parametrize("command", [("run", "--once"), ("solve", "issue.md")])
def test_a_reviewer_with_an_unknown_template_is_a_fault_before_anything_runs(tmp_path, command):
    text = "consensus: {enabled: true, personas: {safety: {template: nowhere}}}\nsandbox: {kind: none}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "issue.md").write_text("# Do it\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    done = ended(start(*command, cwd=tmp_path), 2)
    assert "consensus.personas.safety.template: there is no prompt 'nowhere'; known are answer, " in done.stderr


def test_without_a_configuration_there_are_defaults_and_it_is_said(tmp_path):
    said = f"no tasks: {tmp_path}/contexts has no tasks.db; there is no config.yaml in {tmp_path}: call from the folder"
    assert ended(start("tasks", cwd=tmp_path), 0).stdout.startswith(said)
    assert "nothing can be removed: " in ended(start("cleanup", cwd=tmp_path), 2).stderr
    assert "there is nothing to copy" in ended(start("backup", "there", cwd=tmp_path), 2).stderr
    assert list(tmp_path.iterdir()) == []


# --- usage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "request", "stop"])
def test_an_unknown_uuid_is_2(home, command):
    done = ended(start(command, "ffff", "--config", home.config, cwd="/"), 2)
    assert "ffff" in done.stderr


def test_an_ambiguous_beginning_is_2_and_names_the_candidates(home):
    done = ended(start("show", "0", "--config", home.config, cwd="/"), 2)
    assert OPEN in done.stderr
    assert DONE in done.stderr


@pytest.mark.parametrize("words", [["nonsense"], ["show"], ["tasks", "--limit", "0"], ["tasks", "--config"]])
def test_wrong_usage_is_2(home, words):
    assert ended(start(*words, cwd=home.folder), 2).stdout == ""


def test_help_is_0_and_names_every_command(home):
    out = ended(start_anew("--help", cwd=home.folder), 0).stdout
    for command in ("run", "tasks", "show", "request", "doctor", "config", "pause", "resume", "stop", "cleanup"):
        assert command in out
    assert "..." not in out.partition("Commands:")[2], "each is described in whole sentences"
    assert out.index("  solve ") < out.index("  run ") < out.index("  tasks ")


def test_ctrl_c_says_so_and_leaves_no_traceback(home):
    child = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "tasks", "--watch", "--config", str(home.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert OPEN in child.stdout.readline() + child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said == "interrupted\n"


def test_json_and_config_may_stand_before_or_behind_the_command(home):
    before = ended(start("--json", "--config", home.config, "tasks", cwd="/"), 0)
    behind = ended(start("tasks", f"--config={home.config}", "--json", cwd="/"), 0)
    assert before.stdout == behind.stdout
    assert len(json.loads(before.stdout)) == 2


def test_an_error_with_json_is_an_object_too(home):
    done = ended(start("show", "ffff", "--json", "--config", home.config, cwd="/"), 2)
    assert json.loads(done.stdout)["error"]["exit_code"] == 2
    done = ended(start("show", "--json", cwd="/"), 2)
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_looking_makes_nothing(tmp_path):
    assert ended(start("tasks", cwd=tmp_path), 0).stdout.startswith("no tasks: ")
    assert "no tasks.db" in ended(start("show", "ab", cwd=tmp_path), 2).stderr
    assert "makimono" in ended(start("--version", cwd=tmp_path), 0).stdout
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_behind_the_output_is_3(home):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, str(ROOT / "main.py"), "tasks", "--config", str(home.config)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (3, "error: the output cannot be written: No space left on device\n")


# --- output -------------------------------------------------------------------------------------------------


def test_a_reader_who_goes_away_leaves_no_traceback(home):
    context = home.task("1a000000-0000-4000-8000-000000000009", 9)
    store = context.get_message_store()
    for number in range(400):  # more than a pipe holds
        store.add_message("user", f"{number} " + "many words " * 40, kind="comment")
    context.close()
    for command in (("show", "1a"), ("show", "1a", "--json"), ("request", "1a")):
        child = subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), *command, "--config", str(home.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout.readline()
        child.stdout.close()
        said = child.stderr.read().decode()
        child.stderr.close()
        assert child.wait(60) == 0, said
        assert said == ""


def test_a_closed_output_leaves_no_traceback(home):
    for closed in (">&-", ">&- 2>&-"):
        command = f'exec "$0" "$1" tasks --config "$2" {closed}'
        argv = ["/bin/sh", "-c", command, sys.executable, str(ROOT / "main.py"), str(home.config)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_terminal_without_japanese_still_gets_an_answer(home):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert "\\u5408\\u8a08" in ended(start_anew("tasks", "--config", home.config, cwd="/", env=env), 0).stdout


def test_nothing_of_a_hostile_title_is_printed_as_it_is(home):
    out = ended(start("tasks", "--json", "--config", home.config, cwd="/"), 0).stdout
    assert not any(sign in out for sign in ("\x1b", "\x9b", "\x07", "\u202e"))
    assert SHOWN in [row["title"] for row in json.loads(out)]


# --- the machine --------------------------------------------------------------------------------------------


def test_doctor_is_0_where_all_is_well_and_3_where_something_is_not(tmp_path):
    home = Home(tmp_path)
    home.repository()
    done = ended(start("doctor", cwd=tmp_path), 0)
    assert not (tmp_path / "contexts").exists(), "doctor made something"
    assert "ok    repository default" in done.stdout
    shutil.rmtree(tmp_path / "repo")
    done = ended(start("doctor", "--json", cwd=tmp_path), 3)
    broken = [one for one in json.loads(done.stdout)["checks"] if one["state"] == "fail"]
    assert [one["name"] for one in broken] == ["repository default"]
    assert broken[0]["advice"]


def test_doctor_of_a_broken_configuration_looks_at_the_rest(tmp_path):
    (tmp_path / "config.yaml").write_text("llm: {provider: [")
    done = ended(start("doctor", cwd=tmp_path), 3)
    assert "fail  configuration" in done.stdout
    assert "ok    git" in done.stdout


def other_users_python():
    """(interpreter, its library) that uid 65534 can run, None when there is none."""
    packages = [path for path in sys.path if path.endswith("site-packages")] or site.getsitepackages()
    if not all(sandbox_user.reachable(Path(path) / "x", NOBODY) for path in [str(ROOT), packages[0]]):
        return None
    for candidate in (sys.executable, "/usr/bin/python3"):
        path = Path(candidate)
        if not path.exists() or not all(sandbox_user.reachable(one, NOBODY) for one in (path, path.resolve())):
            continue
        found = subprocess.run([candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True)
        if found.stdout.decode().strip() == str(sys.version_info[:2]):
            return candidate, packages[0]
    return None


def test_a_base_dir_that_cannot_be_written_is_3_and_named():
    """As root the process runs as another user, since root writes everywhere."""
    user = {}
    command = [sys.executable]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if os.geteuid() == 0:
        found = other_users_python()
        if found is None:
            pytest.skip("no interpreter or library that another user can reach")
        command = [found[0]]
        env["PYTHONPATH"] = found[1]
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="makimono-cli-"))
    try:
        home = Home(folder)
        home.repository()
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        base = folder / "contexts"
        base.mkdir()
        base.chmod(0o555)
        for words in (["run", "--once"], ["doctor"]):
            done = subprocess.run(
                [*command, str(ROOT / "main.py"), *words],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                **user,
            )
            ended(done, 3)
            assert str(base) in done.stdout + done.stderr
    finally:
        (folder / "contexts").chmod(0o755)
        shutil.rmtree(folder)


# --- the main job -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "verb"), [(["run", "--once"], "cannot use "), (["stop", DONE], "")])
@pytest.mark.parametrize("closed", ["base_dir", "above"])
def test_a_base_dir_that_cannot_be_read_is_3_with_what_to_do(tmp_path, command, verb, closed):
    home = Home(tmp_path)
    place = tmp_path / "kept" / "contexts"
    place.mkdir(parents=True)
    home.config.write_text(
        home.config.read_text().replace("context_storage: {", f"context_storage: {{base_dir: {place}, ")
    )
    shut = place if closed == "base_dir" else place.parent
    shut.chmod(0o300 if closed == "base_dir" and verb else 0o000)
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    argv = [*drop, sys.executable, str(ROOT / "main.py"), *command, "--config", str(home.config)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    shut.chmod(0o700)
    ended(done, 3)
    assert f"{verb}{place}" in done.stderr
    assert "permission denied; check owner and mode" in done.stderr


def test_run_once_works_an_issue_off_and_the_commands_show_it(tmp_path):
    home = Home(tmp_path)
    source = tmp_path / "source"
    git = ["git", "-C", str(source), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(source)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Begin"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(tmp_path / "repo")], check=True)
    issue = tmp_path / "tracker" / "issues" / "1.md"
    issue.write_text("---\ntitle: Look\nlabels: [coding agent]\nauthor: alice\nstate: open\n---\nLook at it.\n")
    done = ended(start_anew("run", "--once", "--config", home.config, cwd=tmp_path), 0)
    assert done.stdout == "", "log lines belong to stderr"
    assert "task_queued" in done.stderr
    (row,) = json.loads(ended(start("tasks", "--json", cwd=tmp_path), 0).stdout)
    assert row["status"] == "completed"
    assert "coding agent done" in issue.read_text()
    assert "Done." in ended(start("show", row["uuid"][:8], cwd=tmp_path), 0).stdout
    assert ended(start("cleanup", "--days", "0", cwd=tmp_path), 0).stdout.startswith("removed")
    assert ended(start("tasks", cwd=tmp_path), 0).stdout == "no tasks\n"


@pytest.mark.parametrize(("runs", "said"), [(True, "; run scripts/setup first"), (False, "this user cannot run")])
def test_an_environment_that_lacks_packages_or_cannot_be_run_is_3_and_says_which(tmp_path, runs, said):
    """A .venv without packages, and one whose Python leads nowhere, as another user's does."""
    (tmp_path / "agent").symlink_to(ROOT / "agent")
    main = tmp_path / "main.py"
    main.write_bytes((ROOT / "main.py").read_bytes())
    python = tmp_path / ".venv" / "bin" / "python"
    if runs:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
        command = [str(python)]
    else:
        python.parent.mkdir(parents=True)
        python.symlink_to("nowhere")
        command = [sys.executable, "-I", "-S"]
    done = subprocess.run([*command, str(main), "tasks"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert said in ended(done, 3).stderr
    assert done.stderr.count("\n") == 1
