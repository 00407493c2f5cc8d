"""Private trackers: any Markdown file becomes an issue that the local forge reads, and goes with its task."""

import json
import os

import pytest

from agent.commands.deliberate import about_an_issue
from agent.commands.solve_issue import on_the_tracker, path_of, repository_of
from agent.config import load
from agent.errors import UsageError
from agent.forge.local import front_matter
from agent.forge.local.forge import LocalForge
from agent.values import TaskKey
from agent.wiring import private_tracker


@pytest.fixture
def settings(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("context_storage: {durability: none}\nlocal: {repos: {default: repo, other: elsewhere}}\n")
    return load(config, environ={})


def issue_of(settings, tmp_path, text, name="fix-the-sum.md"):
    """The file as the local forge reads it from a private tracker, and the repository it names."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    made, repo = private_tracker.as_issue(private_tracker.read_issue(path), path, settings.local.bot_label)
    tracker = private_tracker.make_tracker(settings, made, str(tmp_path / "repo"))
    forge = LocalForge(private_tracker.settings_of_tracker(settings, str(tracker)))
    task = forge.task(1)
    assert task is not None
    return forge.read_issue(task.get_task_key()), repo


def test_a_file_without_front_matter_has_its_first_heading_as_title(settings, tmp_path):
    issue, repo = issue_of(
        settings, tmp_path, 'Some words.\n\n```sh\n# no heading\n```\n\n## Fix: the "sum" #\n\nPlease.\n'
    )
    assert issue.title == 'Fix: the "sum"'
    assert issue.body.startswith("Some words.\n\n```sh\n# no heading")
    assert issue.author == private_tracker.user_name()
    assert issue.labels == ("coding agent",)
    assert (issue.state, issue.base, repo) == ("open", None, None)


def test_without_a_heading_the_name_of_the_file_is_the_title(settings, tmp_path):
    assert issue_of(settings, tmp_path, "Only words.")[0].title == "fix-the-sum"
    assert issue_of(settings, tmp_path, "#!shebang is no text\n", "合計.md")[0].title == "!shebang is no text"


def test_what_front_matter_says_stays_and_what_is_missing_is_filled_in(settings, tmp_path):
    text = (
        "\ufeff---\r\ntitle: 'yes'\r\nbase: release\r\nrepo: other\r\nstate: closed\r\nlabels: [x]\r\n---\r\nBody.\r\n"
    )
    issue, repo = issue_of(settings, tmp_path, text)
    assert (issue.title, issue.base, repo) == ("yes", "release", "other")
    assert (issue.state, issue.labels) == ("open", ("coding agent",))
    assert issue.body == "Body."


def test_a_line_of_dashes_alone_is_no_front_matter(settings, tmp_path):
    issue, _ = issue_of(settings, tmp_path, "---\n# Real title\ntext\n")
    assert issue.title == "Real title"
    assert issue.body.startswith("---")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"---\ntitle: [\n---\nBody", "not YAML"),
        (b"---\ntitle: {a: b}\n---\nBody", "one line of text"),
        (b"Caf\xe9", "not UTF-8"),
        (b" \n", "empty"),
    ],
)
def test_a_file_that_is_no_issue_is_refused_with_its_name(settings, tmp_path, text, words):
    with pytest.raises(UsageError, match=words) as refused:
        issue_of(settings, tmp_path, text)
    assert "fix-the-sum.md" in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        private_tracker.read_issue(tmp_path / "none.md")
    with pytest.raises(UsageError, match="is a folder"):
        private_tracker.read_issue(tmp_path)
    with pytest.raises(UsageError, match="null byte"):
        private_tracker.read_issue(tmp_path / "a\0b")


def test_a_private_tracker_is_known_by_its_place_and_its_manifest(settings, tmp_path):
    tracker = private_tracker.make_tracker(settings, b"---\n---\n", "/r", issue="x.md")
    assert private_tracker.settings_of_tracker(settings, str(tracker)).local.repos == {"default": "/r"}
    assert json.loads((tracker / "solve.json").read_bytes()) == {"repository": "/r", "issue": "x.md"}
    assert (tracker.stat().st_mode & 0o777, (tracker / "solve.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert private_tracker.settings_of_tracker(settings, str(tmp_path / "tracker")) is None
    assert private_tracker.settings_of_tracker(settings, "") is None
    (tracker / "solve.json").write_bytes(b"[]")
    assert private_tracker.settings_of_tracker(settings, str(tracker)) is None


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("/home/ann/Fix the Sum.md", "fix-the-sum"),
        ("https://github.com/a/b/issues/7", "7"),
        ("/tracker/issues/3.md", "3"),
        ("/x/" + "long " * 20 + ".md", "long-long-long-long-long-long-long-long"),
        ("/x/..md", ""),
        ("/x/合計.md", ""),
    ],
)
def test_a_branch_is_named_after_the_file_or_the_address(settings, origin, name):
    tracker = private_tracker.make_tracker(settings, b"---\n---\n", "/r", issue=origin)
    assert private_tracker.branch_name(settings, str(tracker)) == name
    assert private_tracker.branch_name(settings, "/another/tracker") == ""


def test_it_goes_with_its_task_and_nothing_else_does(settings, tmp_path):
    tracker = private_tracker.make_tracker(settings, b"---\n---\n", "/r")
    (tmp_path / "tracker").mkdir()
    private_tracker.forget(settings, str(tmp_path / "tracker"))
    private_tracker.forget(settings, f"{tracker}/..")
    assert tracker.is_dir()
    assert (tmp_path / "tracker").is_dir()
    private_tracker.forget(settings, str(tracker))
    assert not tracker.exists()


def test_the_place_is_known_through_a_link_too(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    config = tmp_path / "link" / "config.yaml"
    config.write_text("{}\n")
    settings = load(config, environ={})
    tracker = private_tracker.make_tracker(settings, b"---\n---\n", "/r")
    assert private_tracker.settings_of_tracker(settings, str(tracker)) is not None
    assert os.path.realpath(tracker) == str(tracker)


# --- which issue, which repository ----------------------------------------------------------------------------


@pytest.fixture
def tracked(settings, tmp_path):
    issues = tmp_path / "tracker" / "issues"
    issues.mkdir(parents=True)
    head = {"title": "It", "author": "alice", "state": "open"}
    (issues / "3.md").write_text(front_matter.render(head).removesuffix("---\n") + "labels: []\n---\nBody\n")
    (issues / "4.md").write_text(
        front_matter.render(head | {"state": "closed"}).removesuffix("---\n") + "labels: []\n---\n"
    )
    return settings


def test_an_issue_of_the_tracker_is_found_by_number_and_by_file_with_or_without_the_label(
    tracked, tmp_path, monkeypatch
):
    for name in ("#3", str(tmp_path / "tracker" / "issues" / "3.md")):
        task = on_the_tracker(tracked, name)
        assert task.get_task_key() == TaskKey("local", "local", "default", "issue", "3", str(tmp_path / "tracker"))
    monkeypatch.chdir(tmp_path / "tracker")
    assert on_the_tracker(tracked, "issues/3.md").title == "It"
    assert on_the_tracker(tracked, str(tmp_path / "elsewhere.md")) is None
    with pytest.raises(UsageError, match="or give the text by --file, or an issue of the local tracker"):
        about_an_issue(tracked, str(tmp_path / "elsewhere.md"))
    assert about_an_issue(tracked, "#3").prompt.endswith("\n\n# It\n\nBody")
    assert path_of(tracked, "#3") == tmp_path / "tracker" / "issues" / "3.md"


@pytest.mark.parametrize("name", ["#4", "#5"])
def test_what_is_no_open_issue_here_is_refused(tracked, name):
    with pytest.raises(UsageError):
        on_the_tracker(tracked, name)


def test_a_name_that_is_not_configured_is_answered_with_those_that_are(settings, tmp_path):
    with pytest.raises(UsageError, match="known: default, other"):
        repository_of(settings, None, "third", tmp_path / "x.md")
    with pytest.raises(UsageError, match=r"local\.repos\.default: .* is not a folder"):
        repository_of(settings, None, None, tmp_path / "x.md")
