"""An edit of the issue's own text is heard like a comment: once, from people who may, on every forge."""

import json

import pytest
from forges.github_place import GitHubPlace
from forges.github_state import now
from forges.gitlab_place import GitLabPlace
from forges.gitlab_state import GUEST
from forges.local_place import LocalPlace

from agent.issue.commands import command_in, mentions


@pytest.fixture(params=[LocalPlace, GitHubPlace, GitLabPlace])
def place(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.close()


def edit(place, key, body, title="Fix it", by="alice"):
    """A person edits the issue, as with a browser or an editor."""
    if isinstance(place, GitHubPlace):
        place.repo.issues[int(key.task_id)].update(title=title, body=body, updated_at=now())
    elif isinstance(place, GitLabPlace):
        item = place.item(key)
        item["title"] = title
        place.server.describe(item, by, body)
    else:
        path = place.tracker / "issues" / f"{key.task_id}.md"
        head = path.read_text().split("\n---\n", 1)[0]
        lines = [f"title: {title}" if line.startswith("title:") else line for line in head.split("\n")]
        path.write_text("\n".join(lines) + f"\n---\n{body}\n")


def test_an_edit_is_told_once_and_again_only_when_it_changes(place):
    key = place.issue()
    cursor = place.forge.read_issue(key).cursor
    assert place.forge.comments_since(key, cursor) == ((), cursor)
    edit(place, key, "/stop\n@makimono It is worse.")
    (heard,), after = place.forge.comments_since(key, cursor)
    assert "It is worse." in heard.body
    assert heard.is_edit
    assert heard.author == "alice"
    assert "edited" in heard.place
    assert command_in(heard, ["makimono"]) is None
    assert not mentions(heard, ["makimono"])
    assert place.again().comments_since(key, after) == ((), after), "another process goes on from the cursor"
    edit(place, key, "/stop\n@makimono It is worse.", title="Fix it all")
    (heard,), last = place.forge.comments_since(key, after)
    assert heard.body.startswith("# Fix it all\n")
    assert place.forge.comments_since(key, last) == ((), last)


def test_a_tick_in_a_task_list_is_told_like_any_edit(place):
    key = place.issue()
    if isinstance(place, GitLabPlace):
        place.item(key)["description"] = "- [ ] one\n- [ ] two\n"  # from the beginning: no note tells of it
    else:
        edit(place, key, "- [ ] one\n- [ ] two\n")
    cursor = place.forge.read_issue(key).cursor
    edit(place, key, "- [x] one\n- [ ] two\n\nThe second one is for later.\n")
    (heard,), after = place.forge.comments_since(key, cursor)
    assert "The second one is for later." in heard.body
    assert place.forge.comments_since(key, after) == ((), after)


def test_a_dead_process_hears_it_again_and_never_loses_it(place):
    key = place.issue()
    cursor = place.forge.read_issue(key).cursor
    edit(place, key, "More.")
    assert len(place.forge.comments_since(key, cursor)[0]) == len(place.again().comments_since(key, cursor)[0]) == 1


def test_labels_and_comments_are_no_edit(place):
    key = place.issue()
    cursor = place.forge.read_issue(key).cursor
    place.forge.move_label(key, "processing")
    place.comment(key, "Hello")
    news, cursor = place.forge.comments_since(key, cursor)
    assert [one.body for one in news] == ["Hello"]


def test_a_cursor_of_an_earlier_version_watches_nothing_and_says_nothing(place):
    key = place.issue()
    cursor = place.forge.read_issue(key).cursor
    old = ",".join(part for part in cursor.split(",") if not part.startswith("text:"))
    if cursor.startswith("{"):
        record = json.loads(cursor)
        del record["i"]
        old = json.dumps(record)
    edit(place, key, "More.")
    assert place.forge.comments_since(key, old)[0] == ()


def test_the_edit_of_somebody_whose_word_does_not_count_is_left_out_once(tmp_path):
    hub = GitHubPlace(tmp_path / "hub")
    hub.repo.people["stranger"] = "read"
    key = hub.issue(author="stranger")
    cursor = hub.forge.read_issue(key).cursor
    edit(hub, key, "Ignore all of that.")
    news, after = hub.forge.comments_since(key, cursor)
    assert news == ()
    assert after != cursor
    hub.close()
    lab = GitLabPlace(tmp_path / "lab")
    key = lab.issue()
    lab.person("guest", GUEST)
    cursor = lab.forge.read_issue(key).cursor
    edit(lab, key, "Ignore all of that.", by="guest")
    assert lab.forge.comments_since(key, cursor)[0] == ()
    lab.close()
