"""What people and machines get wrong: each with a message that says what to do, the right exit code, and nothing half-made."""

import json
import os
import signal
import subprocess

import pytest
from flow_home import FlowHome, do, finish, finished, git, until, write
from llm_servers import Reply, Script, call, openai_events, says, sse

KEPT = '{"error": {"message": "%s"}}'


# --- the configuration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["config.yaml"]),
        ("llm: [\n", ["config.yaml", "line"]),
        ("scheduling: {max_workrs: 2}\n", ["max_workrs", "max_workers"]),
        ("scheduling: {max_workers: many}\n", ["scheduling.max_workers", "many"]),
    ],
    ids=["missing", "broken", "unknown key", "wrong type"],
)
def test_a_configuration_that_is_wrong_is_named_and_nothing_is_made(home, text, words):
    here = home()
    here.config.unlink() if text is None else here.config.write_text(text)
    before = sorted(path.name for path in here.folder.iterdir())
    code, said = here.run("run", "--once")
    assert code == 2, said
    for word in words:
        assert word in said
    assert "Traceback" not in said
    made = {path.name for path in here.folder.iterdir()} - set(before)
    assert made <= {"contexts"}, made
    assert here.rows() == {}


def test_a_tracker_that_is_not_there_is_3_and_named(home):
    here = home()
    here.config.write_text(here.config.read_text().replace("tracker: tracker", "tracker: nowhere"))
    code, said = here.run("run", "--once")
    assert code == 3, said
    assert str(here.folder / "nowhere") in said
    assert not (here.folder / "nowhere").exists()


# --- trackers and repositories ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """One run over a tracker and repositories with all sorts of trouble in them."""
    plays = {
        "Healthy": [write("a.txt"), finish()],
        "No body": [finish("Nothing to do", "There is nothing to do.")],
        "Ten megabytes": [finish()],
        "A dirty clone": [write("new.txt", "new\n"), finish()],
        "No such base": [finish()],
        "Nothing there": [finish()],
    }
    folder = tmp_path_factory.mktemp("odd")
    home = FlowHome(folder, plays)
    try:
        home.config.write_text(
            home.config.read_text().replace(
                "default: repos/default.git",
                "default: repos/default.git, gone: repos/gone.git, clone: clone, file: note.txt",
            )
        )
        (folder / "note.txt").write_text("not a repository\n")
        git("clone", "-q", str(home.repos["default"]), str(folder / "clone"), cwd=folder)
        (folder / "clone" / "calc.py").write_text("unsaved work\n")
        (folder / "clone" / "staged.txt").write_text("staged\n")
        git("add", "staged.txt", cwd=folder / "clone")
        home.issue(1, "Healthy")
        home.issue(2, "No body", body="")
        home.issue(3, "Ten megabytes", body="x" * 79 + "\n" + ("word 言葉 " * 8 + "\n") * 115_000)
        home.issue(4, "A dirty clone", repo="clone")
        home.issue(5, "No such base", base="nowhere")
        home.issue(6, "Nothing there", repo="gone")
        home.issue(7, "Nothing there, a file", repo="file")
        home.issue(8, "Unknown name", repo="other")
        home.issue_path(9).write_text("---\ntitle: [broken\nlabels: [coding agent]\n---\nx\n")
        home.issue_path(10).write_text("no front matter, labels: coding agent\n")
        home.issue_path(11).write_bytes(
            b"---\ntitle: \xff\xfe\nlabels: [coding agent]\nauthor: a\nstate: open\n---\n\0\0\n"
        )
        home.before = {
            "status": git("status", "--porcelain", cwd=folder / "clone"),
            "head": git("rev-parse", "HEAD", cwd=folder / "clone"),
        }
        home.code, home.text = home.run("run", "--once")
        yield home
    finally:
        home.close()


def test_the_healthy_go_on_whatever_the_others_are(odd):
    assert odd.code == 1, odd.text
    assert "Traceback" not in odd.text
    assert odd.row(1)["status"] == "completed"
    assert odd.label(1) == "coding agent done"
    assert not list((odd.contexts / "running").iterdir())


def test_an_issue_without_text_is_a_task(odd):
    assert odd.row(2)["status"] == "completed"
    briefing = odd.lines(2, "messages.jsonl")[1]["content"]
    assert "The issue has no text beside its title." in briefing


def test_ten_megabytes_are_not_sent_and_the_person_is_told_why(odd):
    assert odd.issue_path(3).stat().st_size > 10_000_000
    assert (odd.row(3)["status"], odd.row(3)["error_code"]) == ("failed", "turn_too_large")
    (said,) = odd.said(3)
    assert "Nothing was sent" in said
    assert len(said) < 2000
    assert [one["role"] for one in odd.lines(3, "messages.jsonl")] == ["system", "user"]


def test_a_dirty_clone_gets_a_branch_and_keeps_its_mess(odd):
    clone = odd.folder / "clone"
    assert odd.row(4)["status"] == "completed", odd.said(4)
    assert git("show", f"{odd.row(4)['branch']}:new.txt", cwd=clone) == "new\n"
    assert git("status", "--porcelain", cwd=clone) == odd.before["status"]
    assert git("rev-parse", "HEAD", cwd=clone) == odd.before["head"]
    assert (clone / "calc.py").read_text() == "unsaved work\n"


@pytest.mark.parametrize(
    ("number", "code", "words", "place"),
    [
        (5, "base_missing", ["nowhere", "main"], None),
        (6, "repository_missing", ["[local.repos.gone]", "the folder does not exist"], "repos/gone.git"),
        (7, "repository_missing", ["[local.repos.file]", "that is a file"], "note.txt"),
    ],
)
def test_a_repository_that_is_not_right_fails_with_a_word_to_the_person(odd, number, code, words, place):
    """The issue names the key of the configuration, and no path of the host; the operator's row has the path."""
    row = odd.row(number)
    assert (row["status"], row["error_code"]) == ("failed", code)
    (said,) = odd.said(number)
    for word in words:
        assert word in said
    assert str(odd.folder) not in said
    for word in words if place is None else [str(odd.folder / place), words[-1]]:
        assert word in row["error_message"]
    assert odd.label(number) == "coding agent failed"
    assert "**Failed.**" in odd.progress(number)[0]


@pytest.mark.parametrize(("number", "word"), [(8, "local.repos"), (9, "9.md"), (10, "10.md"), (11, "11.md")])
def test_an_issue_that_cannot_be_a_task_is_named_and_left_alone(odd, number, word):
    assert odd.row(number) == {}
    assert any("issue_skipped" in line and word in line for line in odd.text.splitlines()), odd.text
    assert not (odd.folder / "tracker" / "issues" / f"{number}.comments.jsonl").exists()


# --- servers ----------------------------------------------------------------------------------------------------


class Faults:
    """Replies per issue: the first ones are faults, then the model is well."""

    def __init__(self, plays):
        self.plays = {words: list(replies) for words, replies in plays.items()}
        self.asked = dict.fromkeys(plays, 0)

    def __call__(self, request):
        body = request.body.decode()
        words = next(words for words in self.plays if words in body)
        self.asked[words] += 1
        replies = self.plays[words]
        return replies.pop(0) if len(replies) > 1 else replies[0]


def error(status, message="no", headers=None, **more):
    return Reply({"error": {"message": message, **more}}, status, headers or {})


WELL = says("openai", "", [call("finish", {"title": "Done", "summary": "All is well."})])
THOUGHTS = [
    sse({"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "Let me think."}}]}),
    sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    b"data: [DONE]\n\n",
]


def worked_off(folder, plays):
    """One run over an issue of each title, as many workers as issues; `numbers` and `faults` tell of them."""
    faults = Faults(plays)
    home = FlowHome(folder, server=Script(faults), config=f"scheduling: {{max_workers: {len(plays)}}}\n")
    try:
        home.faults = faults
        home.numbers = {title: number for number, title in enumerate(plays, 1)}
        for title, number in home.numbers.items():
            home.issue(number, title)
        home.code, home.text = home.run("run", "--once")
        yield home
    finally:
        home.close()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    half = openai_events("Half of an answer that never ends", done=False)[:4]
    yield from worked_off(
        tmp_path_factory.mktemp("faulty"),
        {
            "Wrong key": [error(401, "Incorrect API key provided")],
            "No model": [error(404, "The model `m` does not exist", code="model_not_found")],
            "Slow down": [error(429, "Rate limit reached", {"Retry-After": "1"}), WELL],
            "Slower": [error(429, "Rate limit reached"), WELL],
            "No money": [error(429, "You exceeded your current quota", code="insufficient_quota")],
            "Stumbles": [error(500), error(500), error(500), WELL],
            "Cut": [Reply(half, headers={"Content-Type": "text/event-stream"}, cut=True), WELL],
            "A web page": [
                Reply(b"<!doctype html><html><body>Login</body></html>", headers={"Content-Type": "text/html"})
            ],
            "Nonsense": [Reply(b"{{{", headers={"Content-Type": "application/json"})],
        },
    )


@pytest.fixture(scope="module")
def odd_minds(tmp_path_factory):
    yield from worked_off(
        tmp_path_factory.mktemp("minds"),
        {
            "Taken twice": [error(409, "Conflict"), error(408, "Request Timeout"), WELL],
            "A tool of its own": [says("openai", "", [call("fly_away", {"to": "the moon"})]), WELL],
            "Half of the arguments": [says("openai", "", [call("write_file", '{"path": "half.txt", "conte')]), WELL],
            "Without a word": [says("openai", "")],
            "Lost in thought": [Reply(THOUGHTS, headers={"Content-Type": "text/event-stream"})],
        },
    )


@pytest.mark.parametrize(("title", "tries"), [("Slow down", 2), ("Slower", 2), ("Stumbles", 4), ("Cut", 2)])
def test_a_server_that_gets_well_is_waited_for(faulty, title, tries):
    number = faulty.numbers[title]
    assert faulty.row(number)["status"] == "completed", faulty.row(number)
    assert faulty.faults.asked[title] == tries
    assert "All is well." in faulty.said(number)[0]
    answers = [one for one in faulty.lines(number, "messages.jsonl") if one["role"] == "assistant"]
    assert [one["tool_calls"][0]["function"]["name"] for one in answers] == ["finish"]


@pytest.mark.parametrize(
    ("title", "code", "words"),
    [
        ("Wrong key", "access_refused", ["401", "api_key"]),
        ("No model", "model_not_found", ["404", "does not exist"]),
        ("No money", "quota_exhausted", ["quota"]),
        ("A web page", "answer_unreadable", ["web page", "base_url"]),
        ("Nonsense", "answer_unreadable", ["base_url"]),
    ],
)
def test_a_server_that_cannot_get_well_is_told_of_at_once(faulty, title, code, words):
    number = faulty.numbers[title]
    row = faulty.row(number)
    assert (row["status"], row["error_code"]) == ("failed", code)
    assert faulty.faults.asked[title] == 1
    (said,) = faulty.said(number)
    for word in words:
        assert word in said
    assert "key-of-the-test" not in said + json.dumps(row)
    assert faulty.label(number) == "coding agent failed"
    assert [one["role"] for one in faulty.lines(number, "messages.jsonl")] == ["system", "user"]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("A tool of its own", ["fly_away", "read_file", "finish"]),
        ("Half of the arguments", ["write_file", '{"path": "half.txt", "conte']),
    ],
)
def test_a_call_that_cannot_be_run_is_answered_with_what_is_wrong_and_the_task_goes_on(odd_minds, title, words):
    number = odd_minds.numbers[title]
    assert odd_minds.row(number)["status"] == "completed"
    assert "All is well." in odd_minds.said(number)[0]
    answer, _ = [one for one in odd_minds.lines(number, "messages.jsonl") if one["role"] == "tool"]
    for word in words:
        assert word in answer["content"]
    assert [one["status"] for one in odd_minds.lines(number, "tools.jsonl")] == ["error", "success"]
    assert not list(odd_minds.contexts.glob("completed/*/workspace/half.txt"))


@pytest.mark.parametrize("title", ["Without a word", "Lost in thought"])
def test_a_model_that_says_nothing_is_asked_three_times_and_the_person_is_told(odd_minds, title):
    number = odd_minds.numbers[title]
    row = odd_minds.row(number)
    assert (row["status"], row["error_code"]) == ("failed", "no_answer")
    assert odd_minds.faults.asked[title] == 3
    (said,) = odd_minds.said(number)
    assert "Let me think." not in said
    assert "empty answers several times in a row. Check that the model can call tools" in said
    assert odd_minds.label(number) == "coding agent failed"


def test_408_and_409_are_waited_out(odd_minds):
    number = odd_minds.numbers["Taken twice"]
    assert odd_minds.row(number)["status"] == "completed", odd_minds.row(number)
    assert odd_minds.faults.asked["Taken twice"] == 3
    assert odd_minds.code == 1


def test_a_run_with_failures_of_several_kinds_ends_with_1(faulty):
    assert faulty.code == 1
    assert not list((faulty.contexts / "running").iterdir())


def test_when_only_the_surroundings_failed_the_exit_code_is_3(home):
    here = home(server=Script(error(401, "Incorrect API key provided")))
    here.issue(1, "Wrong key")
    code, text = here.run("run", "--once")
    assert code == 3, text


def test_a_server_that_is_down_is_shown_on_the_issue_and_nothing_is_lost(home):
    script = Script(WELL)
    here = home(server=script)
    script.close()  # nobody listens there now
    here.issue(1, "Server is down")
    daemon = here.start("run")
    until(lambda: here.progress(1) and "waiting" in here.progress(1)[0], "the word about the wait")
    assert "model's server" in here.progress(1)[0]
    daemon.send_signal(signal.SIGTERM)
    text = finished(daemon)
    assert daemon.returncode == 0, text
    assert here.row(1)["status"] == "queued"
    assert [one["role"] for one in here.lines(1, "messages.jsonl")] == ["system", "user"]
    here.server = again = Script(WELL)
    here.config.write_text(here.config.read_text().replace(script.url, again.url))
    here.once(code=0)
    assert here.row(1)["status"] == "completed"
    assert len(here.said(1)) == len(here.progress(1)) == 1


# --- the disk ---------------------------------------------------------------------------------------------------


def mounted(path, options):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


def test_a_full_disk_pauses_the_task_and_it_goes_on_when_there_is_room(home):
    here = home({"Fill it": [write("a.txt"), do("run_command", command="cat /dev/zero > ../fill; true"), *[do("read_file", path="README.md")] * 2, finish()]}, config="scheduling: {min_free: 64K}\n")  # fmt: skip
    mounted(here.contexts, "size=8m")
    try:
        here.issue(1, "Fill it")
        code, text = here.run("run", "--once")
        assert code == 3, text
        assert "No space left" in text or "full" in text, text
        assert here.row(1)["status"] in ("paused", "queued", "running")
        records = here.lines(1, "messages.jsonl")
        assert [one["seq"] for one in records] == list(range(1, len(records) + 1))
        next((here.contexts / "running").glob("*/fill")).unlink()
        if here.row(1)["status"] == "paused":
            here.run("resume", here.row(1)["uuid"], code=0)
        forget_the_wait(here)
        here.once(code=0)
        assert here.row(1)["status"] == "completed"
        assert here.show(f"{here.row(1)['branch']}:a.txt") == "x\n"
        assert len(here.said(1)) == len(here.progress(1)) == 1
    finally:
        here.close()
        subprocess.run(["umount", "-l", str(here.contexts)], check=False)


def forget_the_wait(here):
    from pysqlite3 import dbapi2 as sqlite3

    with sqlite3.connect(here.contexts / "tasks.db") as db:
        db.execute("UPDATE tasks SET not_before = NULL")
    db.close()


def test_a_base_dir_that_cannot_be_written_is_named_and_the_issue_is_left_alone(home):
    here = home({"Write": [finish()]})
    here.issue(1, "Write")
    before = here.issue_path(1).read_bytes()
    if os.geteuid() == 0:
        mounted(here.contexts, "ro,size=1m")
    else:
        here.contexts.mkdir(0o500)
    try:
        code, text = here.run("run", "--once")
        assert code == 3, text
        assert str(here.contexts) in text
        assert "Traceback" not in text
        assert here.issue_path(1).read_bytes() == before
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(here.contexts)], check=False)
        else:
            here.contexts.chmod(0o700)
