"""The files of a local tracker that are written without its forge say to the forge what was meant."""

import pytest

from agent.config import load
from agent.errors import IssueUnreadable
from agent.forge.base import Comment, PullRef
from agent.forge.local import issue_files
from agent.forge.local.forge import LocalForge
from agent.forge.local.issue_files import IssueFile


@pytest.fixture
def forge(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("task_sources: [local]\nlocal: {tracker: tracker, repos: {default: repo, other: elsewhere}}\n")
    (tmp_path / "tracker").mkdir()
    return LocalForge(load(config, environ={}))


def read_back(forge, issue, label="coding agent", **more):
    """The issue as the forge reads it after it was written as number 7."""
    issue_files.write_issue(forge.files.root, "7", issue.rendered(label), **more)
    task = forge.task(7)
    return forge.read_issue(task.get_task_key()), task


@pytest.mark.parametrize("title", ["Fix it", "true", "404", "- [x]: 'a' # \"b\"", "null", "合計 ☂", "a: b", "x" * 200])
@pytest.mark.parametrize("label", ["coding agent", "a: b", "[x]", "true", 'say "go"'])
def test_an_issue_is_read_by_the_forge_as_it_was_written(forge, title, label):
    issue, task = read_back(forge, IssueFile(title, "alice", "# Text\n---\nmore\n", "release/1", "other"), label)
    assert (issue.title, issue.author, issue.state, issue.base) == (title, "alice", "open", "release/1")
    assert issue.labels == (label,)
    assert issue.body == "# Text\n---\nmore"
    assert task.get_task_key().repo == "other"


def test_what_is_parsed_is_what_was_rendered():
    issue = IssueFile("It: is", "alice", "Body\r\n\nmore", "main", "other")
    assert issue_files.parse(issue.rendered("go"), "x.md") == issue
    assert issue_files.parse(b"\xef\xbb\xbf# Words\n", "x.md") == IssueFile("", "", "# Words\n")


def test_an_error_names_the_file_and_the_line_of_the_whole_file():
    with pytest.raises(IssueUnreadable, match=r"x\.md:5: byte 0xe9 is not UTF-8"):
        issue_files.parse(b"---\ntitle: a\n---\nfine\nCaf\xe9\n", "x.md")


def test_comments_are_read_by_the_forge_in_the_order_in_which_they_were_added(forge):
    first = Comment("3", "bob", "One\nline", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", is_bot=True)
    _, task = read_back(forge, IssueFile("It", "alice", "Text"), said=issue_files.comment_lines([first]))
    key = task.get_task_key()
    issue_files.add_comments(forge.files.root, "7", [Comment("4", "eve", "Two"), Comment("5", "bob", "Three")])
    comments, _ = forge.comments_since(key, None)
    assert [(one.id, one.author, one.body) for one in comments] == [
        ("3", "bob", "One\nline"),
        ("4", "eve", "Two"),
        ("5", "bob", "Three"),
    ]
    path = issue_files.issue_path(forge.files.root, "7")
    assert issue_files.read_comments(path).count(b"\n") == 3
    assert issue_files.read_comments(path.with_name("8.md")) == b""


def test_comments_are_added_to_an_issue_that_had_none(forge):
    _, task = read_back(forge, IssueFile("It", "alice", "Text"))
    issue_files.add_comments(forge.files.root, "7", [Comment("1", "eve", "Go on.")])
    assert [one.body for one in forge.comments_since(task.get_task_key(), None)[0]] == ["Go on."]


def test_the_number_of_an_issue_is_that_of_a_file_in_the_folder_of_issues(tmp_path):
    assert issue_files.number_at(tmp_path, issue_files.issue_path(tmp_path, "12")) == "12"
    assert issue_files.number_at(tmp_path, tmp_path / "12.md") is None


def test_the_file_of_a_pull_request_is_found_and_names_another_issue(forge):
    path = issue_files.pull_path(forge.files.root, "1")
    pull = PullRef("1", path.as_uri(), "It", "open", draft=False, head="work", base="main")
    assert issue_files.pull_file(pull) == path
    written = forge.pulls.open(title="It", body="Text.", head="work", base="main", draft=True, issue="1")
    assert issue_files.pull_file(written) == path
    changed = issue_files.pull_of_issue(path.read_bytes(), "/home/ann/Fix it.md", "pull.md")
    assert changed == path.read_bytes().replace(b"issue: 1\n", b"issue: /home/ann/Fix it.md\n")
    assert b"issue: /home/ann" in changed


def test_a_comments_file_that_cannot_be_read_is_not_replaced(forge):
    root = forge.files.root
    read_back(forge, IssueFile("Fix it", "alice", "Text", "", ""))
    file = root / "issues" / "7.comments.jsonl"
    file.symlink_to(file.name)  # reading it fails for root too
    with pytest.raises(IssueUnreadable, match=r"7\.comments\.jsonl cannot be read"):
        issue_files.add_comments(root, "7", [Comment("1", "bob", "Hello", "", "")])
    assert file.is_symlink()
    file.unlink()
    issue_files.add_comments(root, "7", [Comment("1", "bob", "Hello", "", "")])
    assert b"Hello" in file.read_bytes()
