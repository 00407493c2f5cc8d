"""The local tracker: files that people wrote by hand, damaged ones, large ones, and people who save meanwhile."""

from __future__ import annotations

import json
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from agent import config, durable_files
from agent.errors import ConfigError, ForgeError, IssueUnreadable
from agent.forge import FORGES
from agent.forge.local.files import TrackerFiles
from agent.forge.local.forge import LocalForge
from agent.observe import log
from agent.plugin_guard import PluginGuard
from agent.values import TaskKey

ISSUE = "---\ntitle: Fix it\nlabels: [coding agent]\nauthor: alice\nstate: open\n---\nbody\n"


def settings(root, **changes):
    names = ("processing", "done", "paused", "stopped", "failed")
    section = {f"{name}_label": f"coding agent {name}" for name in names} | {
        "tracker": root / "tracker",
        "repos": {"default": root / "code", "web": root / "web"},
        "bot_name": "makimono",
        "bot_label": "coding agent",
        "max_file_size": None,
    }
    return SimpleNamespace(root=root, local=SimpleNamespace(**section | changes))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "tracker/issues").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def forge(root):
    return LocalForge(settings(root))


def write(forge, number, text=ISSUE):
    path = forge.files.root / f"issues/{number}.md"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def key_of(forge, number, repo="default"):
    return TaskKey("local", "local", repo, "issue", str(number), forge.instance)


def comments_file(forge, number):
    return forge.files.root / f"issues/{number}.comments.jsonl"


# --- settings --------------------------------------------------------------------------------------------------


def test_the_registry_knows_it_and_a_dotted_path_works(root):
    assert FORGES.load("local") is LocalForge
    assert FORGES.load("agent.forge.local.forge:LocalForge", PluginGuard(root)) is LocalForge
    (forge,) = LocalForge.from_settings(settings(root))
    assert forge.instance == str((root / "tracker").resolve())
    with pytest.raises(ConfigError, match="did you mean 'local'"):
        FORGES.load("locall")


def test_the_file_of_an_issue_is_no_address_at_which_a_task_is_looked_for(forge):
    write(forge, 1)
    address = forge.read_issue(key_of(forge, 1)).url
    assert address.endswith("1.md")
    assert forge.task_at(address) is None


def test_it_is_built_from_config_yaml(root):
    (root / "config.yaml").write_text("local:\n  tracker: tracker\n  repos: {default: code}\n  done_label: ready\n")
    forge = LocalForge(config.load(root / "config.yaml", environ={}))
    assert forge.instance == str((root / "tracker").resolve())
    assert forge.repos == {"default": str((root / "code").resolve())}
    assert (forge.bot, forge.labels.queued, forge.labels.done) == ("makimono", "coding agent", "ready")


def test_without_a_tracker_it_says_which_key_to_set(root):
    with pytest.raises(ConfigError, match=r"local\.tracker"):
        LocalForge(settings(root, tracker=None))


def test_a_tracker_that_is_not_there_is_an_error_and_one_without_issues_is_empty(root):
    (root / "tracker/issues").rmdir()
    assert LocalForge(settings(root)).task_getter().get_task_list() == []
    (root / "tracker").rmdir()
    with pytest.raises(ForgeError, match="is not there"):
        LocalForge(settings(root)).task_getter().get_task_list()


def test_addresses_in_repos_stay_and_paths_become_absolute(root):
    forge = LocalForge(
        settings(root, repos={"a": "https://host/x.git", "b": "git@host:x.git", "c": "code", "d": "/srv/x"})
    )
    assert forge.repos == {
        "a": "https://host/x.git",
        "b": "git@host:x.git",
        "c": str(root.resolve() / "code"),
        "d": "/srv/x",
    }


# --- reading ---------------------------------------------------------------------------------------------------


def test_issues_are_listed_by_number_and_other_files_are_not_looked_at(forge):
    for number in (10, 9, 2, 100):
        write(forge, number)
    for name in ("README.md", "1.md.bak", ".3.md.123.tmp", "1.comments.jsonl", "x1.md"):
        (forge.files.root / "issues" / name).write_text("nothing")
    tasks = forge.task_getter().get_task_list()
    assert [task.get_task_key().task_id for task in tasks] == ["2", "9", "10", "100"]


def test_an_issue_whose_name_is_not_a_number_is_reported(forge):
    write(forge, "fix-login")
    write(forge, "README", "Write issues here.")
    getter = forge.task_getter()
    assert getter.get_task_list() == []
    (problem,) = getter.problems
    assert str(problem).endswith("fix-login.md: the name of an issue is a number; call it 1.md, 2.md …")


@pytest.mark.parametrize(
    "broken", ["labels: [coding agent", 'labels: "coding agent', "labels [coding agent]", "labels: coding: agent"]
)
def test_what_is_not_yaml_is_named_with_the_line_where_it_begins(forge, broken):
    write(forge, 1, ISSUE.replace("labels: [coding agent]", broken))
    getter = forge.task_getter()
    assert getter.get_task_list() == []
    assert "1.md:3: the front matter is not YAML" in str(getter.problems[0])


def test_broken_issues_are_reported_and_the_others_go_on(forge):
    write(forge, 1, "no front matter")
    write(forge, 2, ISSUE.replace("author: alice\n", ""))
    write(forge, 3, ISSUE.replace("open", "opened"))
    write(forge, 4, ISSUE.replace("labels: [coding agent]\n", ""))
    write(forge, 5, ISSUE.replace("alice", "Ren\xe9").encode("latin-1"))
    write(forge, 6, ISSUE.replace("state:", "repo: shop\nstate:"))
    write(forge, 7, ISSUE.replace("Fix it", ""))
    write(forge, "008")
    (forge.files.root / "issues/9.md").mkdir()
    (forge.files.root / "issues/11.md").symlink_to("/etc/passwd")
    os.mkfifo(forge.files.root / "issues/12.md")
    write(forge, 13)
    getter = forge.task_getter()
    assert [task.get_task_key().task_id for task in getter.get_task_list()] == ["13"]
    problems = {str(problem).split("issues/")[1]: type(problem) for problem in getter.problems}
    assert set(problems.values()) == {IssueUnreadable}
    texts = sorted(problems)
    for beginning in (
        "008.md: write the number",
        "11.md cannot be read: it is a symbolic link",
        "12.md is not a file",
        "1.md:1: the first line must be `---`",
        "2.md:1: `author` is missing; write `author: alice`",
        "3.md:5: `state` must be open or closed, not 'opened'",
        "4.md:1: `labels` is missing",
        "5.md:4: byte 0xe9 is not UTF-8",
        "6.md:5: repository 'shop' is not in local.repos; known: default, web",
        "7.md:2: `title` is missing",
        "9.md ",
    ):
        assert any(text.startswith(beginning) for text in texts), (beginning, texts)
    assert len(texts) == 11


def test_an_issue_that_is_not_for_us_may_name_any_repository(forge):
    write(forge, 1, ISSUE.replace("coding agent", "bug").replace("state:", "repo: shop\nstate:"))
    getter = forge.task_getter()
    assert getter.get_task_list() == []
    assert getter.problems == ()


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ("[Coding Agent]", "Coding Agent"),
        ("['coding agent ']", "coding agent "),
        ("[bug, coding-agent]", "coding-agent"),
        ("[coding agnet]", "coding agnet"),
        ("[agent]", ""),
        ("[coding]", ""),
        ("[coding-agent, coding agent done]", ""),
        ("[coding-agent, coding agent]", ""),
    ],
)
def test_a_label_that_is_nearly_ours_is_told_and_another_is_a_persons_own(forge, labels, told):
    path = forge.files.root / "issues/1.md"
    path.write_text(ISSUE.replace("[coding agent]", labels))
    getter = forge.task_getter()
    waits = [task.get_task_key().task_id for task in getter.get_task_list()]
    said = [str(problem) for problem in getter.problems]
    assert waits == (["1"] if "coding agent]" in labels else [])
    assert len(said) == bool(told)
    assert all(f"1.md: the label {told!r} asks for nothing; `local.bot_label` is `coding agent`" in one for one in said)
    getter.get_left_list()
    assert getter.problems == ()
    path.write_text(path.read_text().replace("state: open", "state: closed"))
    assert forge.task_getter().get_task_list() == []


def test_repo_and_base_come_from_the_front_matter(forge, root):
    write(forge, 1, ISSUE.replace("state:", "repo: web\nbase: release/2\nstate:"))
    (task,) = forge.task_getter().get_task_list()
    key = task.get_task_key()
    assert key == key_of(forge, 1, "web")
    issue = forge.read_issue(key)
    assert issue.base == "release/2"
    repository = forge.repository(key, issue)
    assert (repository.host, repository.owner, repository.repo) == ("local", "local", "web")
    assert repository.url == str(root.resolve() / "web")
    with pytest.raises(IssueUnreadable, match="known: default, web"):
        forge.repository(key_of(forge, 1, "gone"), issue)


def test_an_issue_is_confidential_where_its_front_matter_says_so(forge):
    write(forge, 1)
    write(forge, 2, ISSUE.replace("state: open", "state: open\nconfidential: true"))
    write(forge, 3, ISSUE.replace("state: open", "state: open\nconfidential: perhaps"))
    assert [forge.read_issue(key_of(forge, number)).confidential for number in (1, 2)] == [False, True]
    with pytest.raises(IssueUnreadable, match="confidential"):
        forge.read_issue(key_of(forge, 3))


def test_a_key_that_looks_like_one_of_ours_is_told_and_others_are_a_persons_own(forge):
    write(forge, 1, ISSUE.replace("state:", "bsae: release/2\nreviewed_by: carol\nstate:"))
    issue = forge.read_issue(key_of(forge, 1))
    assert issue.base is None
    assert issue.problems == ("issues/1.md: `bsae` is no key of an issue and was passed over; `base` is one",)


def test_the_body_may_be_empty_or_ten_megabytes(forge):
    write(forge, 1, ISSUE.replace("body\n", ""))
    write(forge, 2, ISSUE + "x" * (10 << 20))
    write(forge, 3, ISSUE.replace("---\nbody\n", "---"))
    assert forge.read_issue(key_of(forge, 1)).body == ""
    assert len(forge.read_issue(key_of(forge, 2)).body) == (10 << 20) + 5
    assert forge.read_issue(key_of(forge, 3)).body == ""
    assert len(forge.task_getter().get_task_list()) == 3
    forge.move_label(key_of(forge, 2), "processing")
    assert (forge.files.root / "issues/2.md").stat().st_size == len(ISSUE) + (10 << 20) + len(" processing")


def test_a_body_that_is_not_utf8_is_named_with_its_line(forge):
    write(forge, 1, ISSUE.encode() + b"more\nRen\xe9\n")
    with pytest.raises(IssueUnreadable, match=r"1\.md:9: byte 0xe9"):
        forge.read_issue(key_of(forge, 1))


# --- changing --------------------------------------------------------------------------------------------------


def test_a_label_move_leaves_every_other_byte_mode_and_no_other_file(forge):
    text = "\ufeff---\r\ntitle: 'x'  # c\r\nlabels: [bug,  'coding agent']\r\nauthor: a\r\nstate: open\r\nextra: {k: v}\r\n---\r\nB\x00\r\n\tz "
    path = write(forge, 1, text)
    path.chmod(0o640)
    forge.move_label(key_of(forge, 1), "processing")
    assert path.read_bytes().decode() == text.replace("'coding agent'", "'coding agent processing'")
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(path.parent)) == ["1.md"]


def test_a_move_that_changes_nothing_does_not_write(forge):
    path = write(forge, 1)
    before = path.stat()
    forge.move_label(key_of(forge, 1), "queued")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_body_that_is_not_utf8_does_not_keep_the_label_from_moving(forge):
    path = write(forge, 1, ISSUE.encode() + b"\xff\xfe")
    forge.move_label(key_of(forge, 1), "failed")
    assert path.read_bytes() == ISSUE.replace("coding agent", "coding agent failed").encode() + b"\xff\xfe"


def test_a_person_who_saves_meanwhile_loses_nothing(root):
    files = TrackerFiles(root / "tracker")
    path = root / "tracker/issues/1.md"
    path.write_text("old")
    calls = []

    def change(data):
        calls.append(data)
        if len(calls) == 1:
            path.write_text("saved by a person")
        return data + b" + ours"

    with files.locked():
        files.rewrite("issues/1.md", change)
    assert calls == [b"old", b"saved by a person"]
    assert path.read_text() == "saved by a person + ours"
    assert sorted(os.listdir(path.parent)) == ["1.md"]


def test_a_file_that_is_saved_again_and_again_is_given_up_with_a_reason(root):
    files = TrackerFiles(root / "tracker")
    path = root / "tracker/issues/1.md"
    path.write_text("0")

    def change(data):
        path.write_text(str(int(data) + 1))
        return b"ours"

    with files.locked(), pytest.raises(ForgeError, match="saved by somebody else"):
        files.rewrite("issues/1.md", change)
    assert int(path.read_text()) > 1


@pytest.mark.parametrize("change", ["label", "post", "edit", "open", "update"])
def test_every_change_waits_for_the_trackers_lock(forge, change):
    write(forge, 1)
    key = key_of(forge, 1)
    own = forge.post_comment(key, "ours")
    pull = forge.open_pull(key, title="t", body="b", head="h", base="main", draft=True)
    call = {
        "label": lambda: forge.move_label(key, "done"),
        "post": lambda: forge.post_comment(key, "more"),
        "edit": lambda: forge.edit_comment(key, own, "edited"),
        "open": lambda: forge.open_pull(key, title="t", body="b", head="h2", base="main", draft=True),
        "update": lambda: forge.update_pull(key, pull, draft=False),
    }[change]

    def state():
        files = (path for path in forge.files.root.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files}

    before = state()
    held = durable_files.lock(forge.files.root / ".lock")
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(0.1)
    assert state() == before
    os.close(held)
    thread.join()
    assert state() != before


def test_what_a_killed_rewrite_left_goes_with_the_next_change(forge):
    path = write(forge, 1)
    for name in (".1.md.4711.tmp", ".11.md.4711.tmp", ".1.md.swp"):
        (path.parent / name).write_text("half")
    forge.move_label(key_of(forge, 1), "done")
    assert sorted(os.listdir(path.parent)) == [".1.md.swp", ".11.md.4711.tmp", "1.md"]


def write_until_killed(forge, ready):
    key = key_of(forge, 1)
    while True:
        for state in ("processing", "done", "queued"):
            forge.move_label(key, state)
            forge.post_comment(key, "x" * 20000)
            os.write(ready, b".")


def test_a_process_that_is_killed_while_it_writes_leaves_whole_files(forge):
    path = write(forge, 1, ISSUE + "x" * 200_000)
    for _ in range(8):
        begun, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                write_until_killed(forge, ready)
            finally:
                os._exit(1)
        os.read(begun, 1)
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        os.close(begun)
        os.close(ready)
        issue = forge.read_issue(key_of(forge, 1))
        assert len(issue.body) == 200_005
        assert len(issue.labels) == 1
        forge.move_label(key_of(forge, 1), "queued" if issue.labels != ("coding agent",) else "done")
        forge.post_comment(key_of(forge, 1), "after")
    assert forge.read_issue(key_of(forge, 1)).problems == ()
    assert sorted(os.listdir(path.parent)) == ["1.comments.jsonl", "1.md"]


def test_a_full_disk_leaves_the_file_as_it_was(forge):
    path = write(forge, 1)
    (path.parent / f".1.md.{os.getpid()}.tmp").mkdir()  # the temporary file cannot be made
    with pytest.raises(durable_files.DiskError):
        forge.move_label(key_of(forge, 1), "done")
    assert path.read_text() == ISSUE


# --- comments --------------------------------------------------------------------------------------------------


def test_broken_comment_lines_are_left_out_and_named(forge):
    write(forge, 1)
    lines = [
        '{"id": 1, "author": "a", "body": "one"}',
        "{broken",
        "",
        "[]",
        '{"id": "2", "author": "a", "body": "x"}',
        '{"id": 3, "body": "x"}',
        '{"id": 4, "author": "a"}',
        '{"id": 1, "author": "a", "body": "again"}',
        '{"id": true, "author": "a", "body": "x"}',
        "\x00\x00\x00",
        '{"id": 9, "author": "a", "body": "nine", "reaction": "+1"}',
    ]
    comments_file(forge, 1).write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    issue = forge.read_issue(key_of(forge, 1))
    assert [comment.body for comment in issue.comments] == ["one", "nine"]
    assert [int(problem.split(".jsonl:")[1].split(":")[0]) for problem in issue.problems] == [
        2,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        12,
    ]
    assert forge.comments_since(key_of(forge, 1), None)[0] == issue.comments
    assert forge.post_comment(key_of(forge, 1), "ours") == "10"


def test_a_person_need_not_number_a_comment(forge):
    write(forge, 1)
    key = key_of(forge, 1)
    lines = ['{"author": "a", "body": "yes"}', '{"id": 7, "author": "b", "body": "seven"}']
    comments_file(forge, 1).write_text("\n".join(lines) + "\n")
    first, cursor = forge.comments_since(key, None)
    assert [comment.body for comment in first] == ["yes", "seven"]
    comments_file(forge, 1).write_text("\n".join(['{"author": "c", "body": "before"}', *lines, lines[0]]) + "\n")
    news, following = forge.comments_since(key, cursor)
    assert [(comment.author, comment.body) for comment in news] == [("c", "before"), ("a", "yes")]
    assert len({comment.id for comment in forge.read_issue(key).comments}) == 4
    assert forge.post_comment(key, "ours") == "8"
    assert forge.comments_since(key, following)[0] == ()


def test_a_comment_line_that_breaks_while_a_task_runs_is_logged_once(forge, root):
    write(forge, 1)
    comments_file(forge, 1).write_text("{broken\n")
    log.setup(root / "worker.log", stderr=False)
    try:
        for _ in range(3):
            forge.comments_since(key_of(forge, 1), None)
    finally:
        log.close()
    (line,) = (root / "worker.log").read_text().splitlines()
    assert json.loads(line)["event"] == "comment_skipped"
    assert "1.comments.jsonl:1: this line is not JSON" in json.loads(line)["why"]


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+14:00", "yesterday", 10**30])
def test_a_comment_with_a_time_that_cannot_be_is_read_without_it(forge, when):
    write(forge, 1)
    line = {"id": 1, "author": "a", "body": "one", "created_at": when}
    comments_file(forge, 1).write_text(json.dumps(line) + "\n")
    (found,) = forge.read_issue(key_of(forge, 1)).comments
    assert (found.body, found.created_at) == ("one", "")


def test_a_mistake_of_ours_in_reading_a_line_is_not_taken_for_a_broken_line(forge, monkeypatch):
    write(forge, 1)
    comments_file(forge, 1).write_text('{"id": 1, "author": "a", "body": "one"}\n')

    def mistaken(_):
        raise ValueError("our own mistake")

    monkeypatch.setattr("agent.forge.local.comments.time_of", mistaken)
    with pytest.raises(ValueError, match="our own mistake"):
        forge.comments_since(key_of(forge, 1), None)


def test_a_last_line_without_its_newline_is_not_glued_to_ours(forge):
    write(forge, 1)
    for rest, found in (('{"id": 1, "author": "a", "body": "one"}', 1), ('{"id": 7, "auth', 0)):
        comments_file(forge, 1).write_text(rest)
        number = forge.post_comment(key_of(forge, 1), "ours")
        lines = comments_file(forge, 1).read_text().split("\n")
        assert lines[0] == rest
        assert json.loads(lines[1])["body"] == "ours"
        assert int(number) == (2 if found else 8)
        assert len(forge.read_issue(key_of(forge, 1)).comments) == found


def test_what_a_killed_post_of_ours_left_is_cut_off(forge):
    write(forge, 1)
    theirs = b'{"id":1,"author":"a","body":"one"}\n'
    for rest in (b'{"id":2,"author":"makimono","body":"half of', b'{"id":2,"author":"makimono",'):
        comments_file(forge, 1).write_bytes(theirs + rest)
        own = forge.post_comment(key_of(forge, 1), "ours")
        lines = comments_file(forge, 1).read_bytes().splitlines(keepends=True)
        assert lines[0] == theirs
        assert [json.loads(line)["id"] for line in lines] == [1, int(own)]


def test_a_comment_that_cannot_be_read_for_a_moment_is_not_news_later(forge):
    write(forge, 1)
    good = '{"id": 1, "author": "a", "body": "one"}\n'
    comments_file(forge, 1).write_text(good)
    _, cursor = forge.comments_since(key_of(forge, 1), None)
    comments_file(forge, 1).write_text(good[:-3])
    news, cursor = forge.comments_since(key_of(forge, 1), cursor)
    assert news == ()
    comments_file(forge, 1).write_text(good)
    assert forge.comments_since(key_of(forge, 1), cursor)[0] == ()


def test_a_changed_time_alone_is_news_too(forge):
    write(forge, 1)
    line = '{"id": 1, "author": "a", "body": "one", "updated_at": "%s"}\n'
    comments_file(forge, 1).write_text(line % "2026-01-31T09:00:00Z")
    _, cursor = forge.comments_since(key_of(forge, 1), None)
    comments_file(forge, 1).write_text(line % "2026-01-31T10:00:00Z")
    assert len(forge.comments_since(key_of(forge, 1), cursor)[0]) == 1


def test_an_edit_leaves_every_other_line_as_it_is(forge):
    write(forge, 1)
    own = forge.post_comment(key_of(forge, 1), "ours")
    line = comments_file(forge, 1).read_bytes().rstrip(b"\n")
    before, after = b'{ "id":5 ,"author":"a","body":"\\u00e9"}\r\nbroken\n', b'\r\n{"id":6,"author":"b","body":"x"}'
    with_more = line[:-1] + b',"pinned":true}'
    comments_file(forge, 1).write_bytes(before + with_more + after)
    forge.edit_comment(key_of(forge, 1), own, "ours, later")
    data = comments_file(forge, 1).read_bytes()
    assert data.startswith(before)
    assert data.endswith(after)
    record = json.loads(data[len(before) : -len(after)])
    assert list(record) == ["id", "author", "body", "created_at", "updated_at", "pinned"]
    assert record["body"] == "ours, later"
    assert record["updated_at"] > record["created_at"]


def test_comments_from_many_threads_get_numbers_of_their_own(root, forge):
    write(forge, 1)

    def post(text):
        LocalForge(settings(root)).post_comment(key_of(forge, 1), text)

    threads = [threading.Thread(target=post, args=(f"text {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = [json.loads(line) for line in comments_file(forge, 1).read_text().splitlines()]
    assert [record["id"] for record in records] == list(range(1, 9))
    assert {record["body"] for record in records} == {f"text {number}" for number in range(8)}


def test_text_that_no_file_can_hold_is_made_fit(forge):
    write(forge, 1)
    own = forge.post_comment(key_of(forge, 1), "a\ud800b")
    forge.edit_comment(key_of(forge, 1), own, "c\udfffd\x00")
    assert json.loads(comments_file(forge, 1).read_text())["body"] == "c?d\x00"
    pull = forge.open_pull(key_of(forge, 1), title="a\ud800 b", body="x\ud800", head="h", base="main", draft=True)
    assert pull.title == "a? b"


# --- pull requests ---------------------------------------------------------------------------------------------


def test_a_pull_request_is_a_file_that_people_can_read(forge):
    write(forge, 1)
    pull = forge.open_pull(
        key_of(forge, 1), title="Fix it", body="Done.\n", head="makimono/1-x", base="main", draft=True
    )
    assert (forge.files.root / "pulls/1.md").read_text() == (
        "---\ntitle: Fix it\nstate: open\ndraft: true\nhead: makimono/1-x\nbase: main\nissue: 1\n---\n\nDone.\n"
    )
    assert pull.id == "1"
    assert pull.url == (forge.files.root / "pulls/1.md").as_uri()


def test_pull_requests_are_numbered_after_the_highest_there(forge):
    write(forge, 1)
    (forge.files.root / "pulls").mkdir()
    (forge.files.root / "pulls/007.md").write_text("odd")
    (forge.files.root / "pulls/5.md").write_text("broken")
    assert forge.open_pull(key_of(forge, 1), title="t", body="", head="h1", base="main", draft=False).id == "8"


def test_a_broken_file_that_names_the_branch_keeps_a_second_one_from_being_opened(forge):
    write(forge, 1)
    pull = forge.open_pull(key_of(forge, 1), title="t", body="", head="makimono/1-x", base="main", draft=True)
    path = forge.files.root / f"pulls/{pull.id}.md"
    path.write_text(path.read_text().replace("title: t", "title: [t"))
    with pytest.raises(ForgeError, match="may exist already"):
        forge.find_pull(key_of(forge, 1), "makimono/1-x")
    assert forge.find_pull(key_of(forge, 1), "makimono/2-y") is None


def test_a_pull_request_changed_by_people_keeps_what_they_changed(forge):
    write(forge, 1)
    pull = forge.open_pull(key_of(forge, 1), title="t", body="ours", head="h", base="main", draft=True)
    path = forge.files.root / "pulls/1.md"
    path.write_text(
        "---\n# mine\ntitle: better title # yes\nstate: merged\nhead: h\nreviewers: [bob]\nbase: main\n---\n\ntheir words\n"
    )
    found = forge.update_pull(key_of(forge, 1), pull, draft=True, state="closed")
    assert (found.title, found.state, found.draft) == ("better title", "merged", True)
    assert path.read_text() == (
        "---\n# mine\ntitle: better title # yes\nstate: merged\nhead: h\nreviewers: [bob]\nbase: main\ndraft: true\n---\n\ntheir words\n"
    )
    path.unlink()
    with pytest.raises(ForgeError, match="is not there"):
        forge.update_pull(key_of(forge, 1), pull, draft=False)
