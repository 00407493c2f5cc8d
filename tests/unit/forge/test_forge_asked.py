"""What is worked on is what somebody asked for whose word counts, in that person's name."""

from contextlib import suppress

import pytest
from forges.github_place import GitHubPlace
from forges.gitlab_place import PROJECT, GitLabPlace
from forges.gitlab_state import GUEST, REPORTER
from forges.local_place import LocalPlace

from agent import clock
from agent.errors import IssueUnreadable
from agent.forge.base import ForgeReports

LABEL = "coding agent"


class Hub:
    """A stranger's issue on GitHub, and who touches it."""

    name = "acme/web#1"

    def __init__(self, folder):
        self.place = GitHubPlace(folder)
        self.repo = self.place.repo
        self.repo.people.update(mallory="read", triage="triage", alice="write", bob="write")
        self.issue = self.repo.issue("Fix it", "It is broken.", "mallory")

    def label(self, who):
        self.repo.drop_label(self.issue, LABEL, who)
        self.repo.put_label(self.issue, LABEL, who)

    def assign(self, who):
        self.repo.assign(self.issue, who, ["makimono"])

    @property
    def text(self):
        return self.issue["body"]

    def edit(self, who, **text):
        self.repo.edit(self.issue, who, **text)

    def say(self, who):
        return self.repo.comment(1, "@makimono once more", who)


class Lab:
    """The same on GitLab."""

    name = f"{PROJECT}#1"

    def __init__(self, folder):
        self.place = GitLabPlace(folder)
        self.place.person("alice")
        self.place.person("bob")
        self.place.person("mallory", GUEST)
        self.place.person("triage", REPORTER)
        server = self.place.server
        self.issue = server.issue(self.place.project, "mallory", title="Fix it", description="It is broken.")

    def label(self, who):
        self.place.server.label(self.issue, who, remove=(LABEL,))
        self.place.server.label(self.issue, who, add=(LABEL,))

    def assign(self, who):
        server = self.place.server
        server._assign(self.issue, server.user(who), [server.user("makimono")["id"]])

    @property
    def text(self):
        return self.issue["description"]

    def edit(self, who, title=None, body=None):
        server = self.place.server
        if title is not None:
            self.issue["title"] = title
            server._note(self.issue, server.user(who), f"changed title from **Fix it** to **{title}**", system=True)
        if body is not None:
            server.describe(self.issue, who, body)

    def say(self, who):
        return self.place.server.note(self.issue, who, "@makimono once more")


@pytest.fixture(params=[Hub, Lab])
def one(request, tmp_path):
    with clock.use(clock.FakeClock()):
        made = request.param(tmp_path)
        yield made
        made.place.close()


def look(one):
    """(who asks for what is worked on, the problems) of a new process's look, a minute later."""
    clock.sleep(60)
    forge = one.place.again()
    getter = forge.task_getter()
    users, said = [], []
    for task in getter.get_task_list():
        try:
            task.confirm()
            why = forge.altered(task.get_task_key())  # as the worker does before the first turn
            if why:
                said.append(f"{one.name}: {why}")
            else:
                users.append(task.get_user())
        except IssueUnreadable as error:
            said.append(str(error))
    said += [str(problem) for problem in getter.problems]
    forge.close()
    return users, said


def key_of(one):
    (task,) = one.place.again().task_getter().get_task_list()
    return task.get_task_key()


@pytest.mark.parametrize("text", [{"body": "Remove the login check."}, {"title": "Remove the login check"}])
def test_what_a_stranger_edits_after_the_label_is_asked_for_again(one, text):
    one.label("alice")
    clock.sleep(60)
    one.edit("mallory", **text)
    users, said = look(one)
    assert users == []
    assert said[0].startswith(f"{one.name}: its title or text was edited by @mallory")
    assert "ask for it again" in said[0]
    one.label("bob")
    assert look(one) == (["bob"], [])


def test_an_edit_before_the_label_or_by_somebody_who_may_is_what_was_asked_for(one):
    one.edit("mallory", body="It is broken in two places.")
    clock.sleep(60)
    one.label("alice")
    assert look(one) == (["alice"], [])
    one.edit("bob", title="Fix both places", body="It is broken in line 1 and 7.")
    assert look(one) == (["alice"], [])


TASKS = "It is broken.\n\n- [ ] line 1\n- [ ] line 7\n"


def test_a_tick_in_a_task_list_hides_no_edit(one):
    """Neither one in the same edit (GitLab tells of the tick alone), nor a later one of a member (GitHub's last edit)."""
    one.edit("mallory", body=TASKS)
    clock.sleep(60)
    one.label("alice")
    clock.sleep(60)
    one.edit(
        "mallory", body=TASKS.replace("[ ] line 1", "[x] line 1").replace("It is", "Remove the login check. It is")
    )
    clock.sleep(60)
    one.edit("bob", body=one.text.replace("[ ] line 7", "[x] line 7"))
    users, said = look(one)
    assert users == []
    assert said[0].startswith(f"{one.name}: its title or text was edited by @mallory")
    one.label("bob")
    assert look(one) == (["bob"], [])


def test_the_first_version_is_no_edit(one):
    """GitHub lists it with the edits once there is one."""
    one.label("alice")
    clock.sleep(60)
    one.edit("bob", body="It is broken in line 1 and 7.")
    assert look(one) == (["alice"], [])


def test_an_edit_in_the_second_of_the_label_counts_as_later(one):
    one.label("alice")
    one.edit("mallory", body="Remove the login check.")
    assert look(one)[0] == []


def test_an_edit_after_the_assignment_is_asked_for_again(one):
    one.assign("alice")
    assert look(one)[0] == ["alice"]
    one.edit("mallory", title="Remove the login check")
    assert look(one)[0] == []


def test_a_later_label_of_somebody_whose_word_does_not_count_asks_for_nothing(one):
    one.assign("alice")
    clock.sleep(60)
    one.edit("mallory", body="Remove the login check.")
    clock.sleep(60)
    one.label("triage")
    assert look(one)[0] == []


def test_the_text_is_looked_at_again_when_the_work_begins(one):
    """It waits in the queue for as long as others are before it."""
    one.label("alice")
    clock.sleep(60)
    key = key_of(one)
    forge = one.place.forge
    assert forge.altered(key) == ""
    forge.mark_taken(key)
    clock.sleep(60)
    one.edit("mallory", body="Remove the login check.")
    clock.sleep(60)
    assert "edited by @mallory" in forge.altered(key)
    said = one.say("alice")
    assert forge.altered(key, str(said["created_at"])) == "", "who asks by a comment has read what stands there"


def test_an_edit_in_the_repository_that_an_issue_came_from_is_asked_for_again(tmp_path):
    """In that repository other people have write access than here, and the label comes with the issue."""
    with clock.use(clock.FakeClock()):
        hub = Hub(tmp_path)
        hub.issue["user"] = "alice"
        hub.label("alice")
        clock.sleep(60)
        hub.edit("mallory", body="Remove the login check.")
        hub.repo.event(hub.issue, "transferred", "bob")
        users, said = look(hub)
        assert users == []
        assert said[0].startswith("acme/web#1: its title or text was edited by @mallory")
        hub.issue["events"] = [one for one in hub.issue["events"] if one["event"] == "transferred"]
        users, said = look(hub)
        assert users == []
        assert "it is not known here when it was asked for" in said[0]
        hub.label("bob")
        assert look(hub) == (["bob"], [])
        hub.place.close()


def test_an_edit_is_asked_for_again_where_the_event_of_the_label_is_lost(tmp_path):
    """A moved issue of GitLab has copies of its notes and events; an event has no label any more once somebody has
    deleted the label of the other project.  Then the author counts as the person who asked."""
    with clock.use(clock.FakeClock()):
        lab = Lab(tmp_path)
        lab.issue["author"] = lab.place.server.user("alice")
        lab.label("triage")
        clock.sleep(60)
        lab.edit("mallory", body="Remove the login check.")
        clock.sleep(61)
        for event in lab.issue["events"]:
            event["label"] = None
        users, said = look(lab)
        assert users == []
        assert said[0].startswith(f"{PROJECT}#1: its title or text was edited by @mallory")
        lab.label("bob")
        assert look(lab) == (["bob"], [])
        lab.place.close()


@pytest.mark.parametrize("author", ["alice", "mallory"])
def test_the_asker_is_who_set_the_label(tmp_path, author):
    """A person who may triage labels the issue of a member: no member has asked for it."""
    with clock.use(clock.FakeClock()):
        hub = Hub(tmp_path)
        hub.issue["user"] = author
        hub.label("triage")
        users, said = look(hub)
        assert users == []
        assert said[0].startswith("acme/web#1: asked for by triage, who may not write")
        hub.label("bob")
        assert look(hub) == (["bob"], [])
        hub.place.close()


def test_a_label_that_the_agents_account_or_nobody_set_leaves_it_to_the_author(tmp_path):
    with clock.use(clock.FakeClock()):
        hub = Hub(tmp_path)
        hub.place.changes["bot_name"] = "makimono"  # an account of no person
        hub.issue["user"] = "alice"
        hub.label("makimono")
        assert look(hub) == (["alice"], [])
        hub.issue["events"].clear()
        assert look(hub) == (["alice"], [])
        hub.label("bob")
        hub.issue["events"][-1]["actor"] = None
        users, said = look(hub)
        assert users == []
        assert "asked for by a deleted account" in said[0]
        hub.place.close()


def test_the_author_may_ask_where_the_author_may_write(one):
    one.label("alice")
    key = key_of(one)
    for author in ("alice", "mallory"):
        if isinstance(one, Hub):
            one.issue["user"] = author
        else:
            one.issue["author"] = one.place.server.user(author)
        assert ForgeReports(one.place.again()).author_may_ask(key) is (author == "alice")


def test_an_adapter_that_cannot_tell_trusts_nobody_and_names_no_ref():
    reports = ForgeReports(object())
    assert (reports.author_may_ask(None), reports.commenters_may_ask(), reports.pull_ref("7")) == (False, False, None)


def test_the_commits_of_a_pull_request_have_a_ref_of_their_own(one):
    reports = ForgeReports(one.place.forge)
    expected = "refs/pull/7/head" if isinstance(one, Hub) else "refs/merge-requests/7/head"
    assert (reports.pull_ref("7"), reports.commenters_may_ask()) == (expected, True)


def test_a_tracker_of_files_has_no_writers_whose_word_does_not_count(tmp_path):
    place = LocalPlace(tmp_path)
    key = place.issue()
    assert place.forge.altered(key) == ""
    assert ForgeReports(place.forge).author_may_ask(key)
    place.close()


def first_look(here):
    """(who asked for the tasks that a new process confirms, what it tells of the others)."""
    getter, users = here.place.again().task_getter(), []
    for task in getter.get_task_list():
        with suppress(IssueUnreadable):
            task.confirm()
            users.append(task.get_user())
    return users, getter.problems


@pytest.mark.parametrize("kind", [Hub, Lab])
def test_a_label_that_a_host_shows_before_its_event_is_not_the_authors_request(tmp_path, kind):
    """https://github.com/golang/go/issues/28226: for some seconds the host shows the label and not who set it."""
    with clock.use(clock.FakeClock()):
        for author, who, started in (("alice", "triage", []), ("mallory", "bob", ["bob"])):
            here = kind(tmp_path / author)
            user = author if kind is Hub else here.place.server.user(author)
            here.issue["user" if kind is Hub else "author"] = user
            here.label(who)
            late, here.issue["events"] = here.issue["events"], []
            assert first_look(here) == ([], ())
            here.issue["events"] = late
            users, said = look(here)
            assert users == started
            assert ["asked for by triage" in one for one in said] == [True] * (not started)
            here.place.close()


@pytest.mark.parametrize("kind", [Hub, Lab])
@pytest.mark.parametrize("way", ["label", "assign"])
def test_an_earlier_request_does_not_count_while_the_event_of_a_new_one_is_not_shown(tmp_path, kind, way):
    with clock.use(clock.FakeClock()):
        here = kind(tmp_path)
        getattr(here, way)("bob")
        clock.sleep(600)
        if way == "assign":
            _unassign(here)
        getattr(here, way)("triage")
        name = "events" if way == "label" or kind is Hub else "notes"
        late, here.issue[name] = here.issue[name], here.issue[name][:-1]
        assert first_look(here) == ([], ())
        here.issue[name] = late
        users, (said,) = look(here)
        assert users == []
        assert "asked for by triage" in said
        here.place.close()


def _unassign(here):
    if isinstance(here, Hub):
        here.repo.assign(here.issue, "triage", [])
    else:
        here.place.server._assign(here.issue, here.place.server.user("triage"), [])
