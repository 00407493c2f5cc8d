"""The lines on which a comment stands, in words, and what a suggestion replaces: as each host reports them."""

import pytest
from forges.forgejo_place import ForgejoPlace
from forges.github_place import GitHubPlace
from forges.gitlab_place import GitLabPlace

from agent.forge.base import Comment, ForgeReports
from agent.forge.lines_of_comment import HUNK_LINES, HUNK_SIZE, Side, lines_in_words, shown_hunk, suggestions_in_words
from agent.worker.briefing import task_text

FENCE = "Rather:\n```suggestion{more}\nx = 2\n```\n"
HUNK = "@@ -10,5 +10,2 @@\n-a\n-b\n-c\n-d\n-e"


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (None, None, "a.py"),
        (None, Side(7), "a.py:7"),
        (Side(7), Side(7), "a.py:7"),
        (Side(5), Side(7), "a.py lines 5–7"),
        (None, Side(7, removed=True), "a.py:7 (a removed line)"),
        (Side(10, removed=True), Side(14, removed=True), "a.py lines 10–14 (removed lines)"),
        (Side(10, removed=True), Side(12), "a.py, removed line 10 to line 12"),
    ],
)
def test_lines_in_words(first, last, words):
    assert lines_in_words("a.py", first, last) == words


@pytest.mark.parametrize(
    ("more", "first", "last", "words"),
    [
        ("", None, Side(7), "its suggestion replaces line 7"),
        ("", Side(5), Side(7), "its suggestion replaces lines 5–7"),
        (":-2+1", None, Side(7), "its suggestion replaces lines 5–8"),
        (":-0+0", Side(5), Side(7), "its suggestion replaces line 7"),
        ("", None, Side(7, removed=True), ""),
        ("", None, None, ""),
        ("s", None, Side(7), ""),
    ],
)
def test_what_a_suggestion_replaces(more, first, last, words):
    assert suggestions_in_words(FENCE.format(more=more), first, last) == words


def test_the_end_of_a_long_part_of_a_change_is_shown():
    assert shown_hunk("") == ""
    assert shown_hunk("@@\n+a") == "@@\n+a"
    many = shown_hunk("\n".join(f"+{number}" for number in range(1000)))
    assert many.startswith("…\n+")
    assert many.endswith("+999")
    assert len(many.splitlines()) == HUNK_LINES + 1
    assert len(shown_hunk("+" + "x" * 10 * HUNK_SIZE)) <= HUNK_SIZE


def read(place, say):
    key = place.issue()
    head = f"makimono/{key.task_id}-0badcafe"
    place.branch(head)
    pull = place.forge.open_pull(key, title="Fix", body="Done.", head=head, base="main", draft=False)
    say(place, pull)
    found = place.forge.comments_since(key, ForgeReports(place.forge).with_pull(None, pull.url))[0]
    place.forge.close()
    place.close()
    return found


def test_a_comment_on_removed_lines_of_github_has_range_side_and_hunk(tmp_path):
    def say(place, pull):
        place.line_comment(pull, "Why gone?", line=14, start=10, side="LEFT", hunk=HUNK)
        place.line_comment(pull, FENCE.format(more=""), line=7, start=5)
        place.line_comment(pull, "Old.", line=None, start=3)

    removed, suggested, old = read(GitHubPlace(tmp_path), say)
    assert removed.place == f"On a.py lines 10–14 (removed lines), review thread {removed.id[1:]}"
    assert removed.hunk == HUNK
    assert suggested.place.startswith("On a.py lines 5–7, its suggestion replaces lines 5–7, review thread ")
    assert old.place.startswith("On a.py lines 3–12 (outdated), review thread ")


def test_a_note_on_several_lines_of_gitlab_has_range_and_side(tmp_path):
    def ends(start, end):
        line = {"line_code": "x_1_1", "type": "new", "old_line": None, "new_line": None}
        return {"line_range": {"start": line | start, "end": line | end}}

    def say(place, pull):
        at = {"old_path": "a.py", "new_path": "b.py", "position_type": "text"}
        lines = ends({"new_line": 5}, {"new_line": 7})
        place.said_on(pull, FENCE.format(more=":-2+0"), position=at | {"new_line": 7} | lines)
        lines = ends({"type": "old", "old_line": 10}, {"type": "old", "old_line": 14})
        place.said_on(pull, "Why gone?", position=at | {"old_line": 14, "new_line": None} | lines)

    suggested, removed = read(GitLabPlace(tmp_path), say)
    assert "On b.py lines 5–7, its suggestion replaces lines 5–7, review thread " in suggested.place
    assert "On a.py lines 10–14 (removed lines), review thread " in removed.place


def test_a_comment_on_a_removed_line_of_forgejo_has_its_hunk(tmp_path):
    (removed,) = read(ForgejoPlace(tmp_path), lambda place, pull: place.line_comment(pull, "Why gone?", line=-3))
    assert removed.place.startswith("On a.py:3 (a removed line), review ")
    assert removed.hunk == "@@ -1 +1 @@\n-a\n+b"


def test_the_model_sees_the_lines_and_the_part_of_the_change():
    text = task_text(Comment("r7", "alice", "Why gone?", place="On a.py lines 10–14 (removed lines)", hunk="@@\n-a"))
    assert text == "[comment r7, On a.py lines 10–14 (removed lines)]\n\n    @@\n    -a\n\nWhy gone?"
