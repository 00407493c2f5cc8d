"""GitLab as people use it: who may ask, how a task starts and is stopped, what is said where, what is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from forges.gitlab_place import PROJECT, TOKEN, GitLabPlace, gitlab_settings
from forges.gitlab_server import GitLab
from forges.gitlab_state import DEVELOPER, GUEST, REPORTER

from agent import clock
from agent.config import Settings
from agent.errors import ConfigError, ForgeError, IssueUnreadable
from agent.forge.gitlab.forge import GitLabForge
from agent.forge.markers import marker, with_markers
from agent.intake.poller import enqueue
from agent.observe.events import Events
from agent.store.db import open_tasks
from agent.taskqueue.ledger import Ledger
from agent.values import TaskKey

MARK = marker("0badcafe-0000-4000-8000-000000000001", "final")


@pytest.fixture
def place(tmp_path):
    place = GitLabPlace(tmp_path)
    yield place
    place.close()


def waiting(forge):
    return [str(task.get_task_key()) for task in forge.task_getter().get_task_list()]


def problems(forge):
    getter = forge.task_getter()
    getter.get_task_list()
    return [str(problem) for problem in getter.problems]


# --- the section -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "instance"),
    [
        ("https://gitlab.com", "gitlab.com"),
        ("https://gitlab.com/", "gitlab.com"),
        ("https://git.example.org:8443/gitlab/", "git.example.org:8443/gitlab"),
        ("https://git.example.org/api/v4", "git.example.org"),
        ("https://git.example.org/gitlab/api/v3/", "git.example.org/gitlab"),
    ],
)
def test_a_host_is_named_by_host_port_and_sub_path(tmp_path, base_url, instance):
    (forge,) = GitLabForge.from_settings(gitlab_settings(tmp_path, base_url))
    assert forge.instance == instance
    assert forge.base_url == f"https://{instance}"


@pytest.mark.parametrize("one", ["web", "a b/c", "../x/y", "https://gitlab.com/a/b", "a//b"])
def test_what_is_no_project_is_refused_with_what_to_write(tmp_path, one):
    with pytest.raises(ConfigError, match="group/subgroup/name, or its number"):
        GitLabForge.from_settings(gitlab_settings(tmp_path, "https://gitlab.com", projects=(one,)))


def test_without_a_token_the_section_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="GITLAB_TOKEN"):
        GitLabForge.from_settings(gitlab_settings(tmp_path, "https://gitlab.com", token=None))


def test_several_hosts_and_several_sections_of_one_host_share_the_keys_out(place):
    other = {"projects": ("acme/api",), "bot_label": "api please"}
    settings = gitlab_settings(place.root, place.address, other, {"base_url": "https://gitlab.com", "owner": "acme"})
    ours, theirs, public = GitLabForge.from_settings(settings)
    key = place.key(place.item(place.issue()))
    api = TaskKey("gitlab", "acme", "api", "issue", "1", ours.instance)
    assert [forge.covers(key) for forge in (ours, theirs, public)] == [True, False, False]
    assert [forge.covers(api) for forge in (ours, theirs, public)] == [False, True, False]
    assert public.covers(TaskKey("gitlab", "acme", "api", "issue", "1", "gitlab.com"))


def test_a_project_that_is_listed_by_number_has_keys_with_its_path(place):
    place.issue()
    number = place.project["id"]
    forge = place.again(projects=(number,))
    assert waiting(forge) == [f"gitlab:{PROJECT}#1"]
    shared, _ = GitLabForge.from_settings(
        gitlab_settings(place.root, place.address, {"projects": ("acme/api",)}, projects=(number,))
    )
    assert shared.covers(place.key(place.item(place.issue())))
    shared.close()


# --- where it looks --------------------------------------------------------------------------------------------


def test_without_a_list_all_projects_that_the_account_develops_are_looked_at(place):
    server = place.server
    server.per_page = 2  # keyset pages of the projects, pages of the issues
    for path in ("acme/api", "acme/tools/deep/er/lib", "beta/app", "carol/notes", "delta/x", "acme/read-only"):
        level = REPORTER if path == "acme/read-only" else DEVELOPER
        people = {"makimono": level, "alice": DEVELOPER, "carol": DEVELOPER}
        project = server.project(path, members=people, group=not path.startswith("carol/"))
        server.issue(project, "alice", labels=("coding agent",))
    stranger = server.project("evil/corp", members={"mallory": DEVELOPER})
    server.issue(stranger, "mallory", labels=("coding agent",))
    forge = place.again(projects=())
    assert waiting(forge) == [
        "gitlab:acme/api#1",
        "gitlab:acme/tools/deep/er/lib#1",
        "gitlab:beta/app#1",
        "gitlab:carol/notes#1",
        "gitlab:delta/x#1",
    ]
    # one list a group with all below it, not one a project
    assert len({path for _, path in server.asked("GET", r"/groups/")}) == 6
    assert waiting(place.again(projects=(), owner="acme")) == [
        "gitlab:acme/api#1",
        "gitlab:acme/tools/deep/er/lib#1",
    ]
    assert waiting(place.again(projects=(), owner="acme/tools")) == ["gitlab:acme/tools/deep/er/lib#1"]


def test_an_idle_look_is_answered_with_304(place):
    forge = place.again()
    assert waiting(forge) == []
    before = len(place.server.journal)
    assert waiting(forge) == []
    again = place.server.journal[before:]
    assert len(again) == 4  # issues and merge requests of the project; issues and merge requests assigned to the bot
    assert all(one["headers"].get("if-none-match") for one in again)


def test_what_an_idle_hour_costs_is_what_is_said(place):
    """60 looks, one a minute, where a task has ended; `doctor` prints the figure and docs/forges.md has it."""
    key = place.issue(labels=("coding agent done",))
    for forge in (place.again(), place.again(projects=(), owner="acme")):
        with clock.use(clock.FakeClock()) as time:
            waiting(forge)
            _, cursor = forge.changed_since({key: None}, clock.stamp())
            _, cursor = forge.changed_since({key: None}, cursor)
            said = forge.idle(60)
            before = len(place.server.journal)
            for _ in range(60):
                time.move(60)
                waiting(forge)
                _, cursor = forge.changed_since({key: None}, cursor)
        asked = place.server.journal[before:]
        assert said == f"{len(asked)} requests per idle hour, all conditional"
        assert all(one["headers"].get("if-none-match") for one in asked)


def test_what_is_wrong_with_the_token_is_said_before_it_is_missed(place):
    with clock.use(clock.FakeClock()):  # 31 January 2026
        assert place.forge.rights() == ()
        place.server.scopes, place.server.expires_at = ["read_api", "read_user"], "2026-02-10"
        scope, end = place.forge.rights()
        assert "has the scopes read_api, read_user; it needs api" in scope
        assert "expires on 2026-02-10" in end
        place.server.scopes, place.server.expires_at = ["api"], "2026-03-31"
        assert place.forge.rights() == ()
        place.server.fault("GET", "personal_access_tokens", status=404)
        assert place.forge.rights() == ()


def test_five_thousand_issues_are_read_to_the_end(place):
    server = place.server
    user = server.user("alice")
    for _ in range(5000):
        server._make(place.project, "issues", user, "One", None, ("coding agent",), ())
    tasks = place.forge.task_getter().get_task_list()
    assert len(server.asked("GET", r"/projects/1/issues$")) == 50
    assert [task.get_task_key().task_id for task in tasks] == [str(number) for number in range(1, 51)]


def test_who_asked_is_looked_up_for_some_at_each_look_and_nobody_waits_for_ever(place):
    place.person("guest", GUEST)
    for _ in range(60):
        place.issue(author="guest")
    place.issue(author="alice")
    looks = [waiting(place.forge) for _ in range(2)]
    assert looks == [[], [f"gitlab:{PROJECT}#61"]]
    assert len(place.server.asked("GET", "resource_label_events")) == 61


def test_a_search_narrows_what_is_found(place):
    place.issue(title="For the agent: one")
    place.issue(title="Two")
    assert waiting(place.again(query="for the agent")) == [f"gitlab:{PROJECT}#1"]


def test_projects_that_cannot_be_worked_on_are_told_once_and_hide_no_others(place):
    server = place.server
    people = {"makimono": DEVELOPER, "alice": DEVELOPER}
    server.project("acme/old", members=people, archived=True)
    server.project("acme/bare", members=people, issues_on=False, merges_on=False)
    server.project("acme/seen", members=people | {"makimono": REPORTER})
    place.issue()
    forge = place.again(projects=("acme/old", "acme/bare", "acme/nowhere", "acme/seen", PROJECT))
    getter = forge.task_getter()
    assert [str(task.get_task_key()) for task in getter.get_task_list()] == [f"gitlab:{PROJECT}#1"]
    said = [str(problem) for problem in getter.problems]
    assert len(said) == 4
    assert "acme/seen: the account of the token has less than Developer access" in said[3]
    assert "acme/old: it is archived" in said[0]
    assert "acme/bare: its issues and merge requests are switched off" in said[1]
    assert "no project acme/nowhere" in said[2]
    assert "gitlab.projects" in said[2]
    assert problems(forge) == []


def test_merge_requests_that_are_switched_off_leave_the_issues(place):
    place.project["merges_on"] = False
    key = place.issue()
    getter = place.forge.task_getter()
    assert len(getter.get_task_list()) == 1
    assert "merge_requests cannot be listed" in str(getter.problems[0])
    with pytest.raises(IssueUnreadable, match="merge requests are switched off"):
        place.forge.repository(key, place.forge.read_issue(key))
    place.branch("makimono/1-0badcafe")
    with pytest.raises(ForgeError, match="switched off"):
        place.forge.open_pull(key, title="x", body="", head="makimono/1-0badcafe", base="main", draft=True)


# --- who may ask -----------------------------------------------------------------------------------------------


def test_people_with_developer_access_may_ask_and_others_may_not(place):
    for name, level in (("guest", GUEST), ("reporter", REPORTER), ("dev", DEVELOPER)):
        place.person(name, level)
        place.issue(author=name)
    place.server.issue(place.project, "stranger", labels=("coding agent",))
    getter = place.forge.task_getter()
    assert [task.get_user() for task in getter.get_task_list()] == ["dev"]
    said = [str(problem) for problem in getter.problems]
    assert [line.split(",")[0] for line in said] == [
        f"{PROJECT}#1: asked for by guest",
        f"{PROJECT}#2: asked for by reporter",
        f"{PROJECT}#4: asked for by stranger",
    ]
    assert all("Developer" in line for line in said)
    assert problems(place.forge) == []


def test_what_changed_while_merge_requests_were_refused_is_seen_afterwards(place):
    with clock.use(clock.FakeClock(clock.now())):
        cursor, server = clock.stamp(clock.now()), place.server
        server.fault("GET", "/merge_requests$", status=403, times=1)
        clock.sleep(60)
        server.merge_request(place.project, place.person("bob"), source="fix")
        clock.sleep(60)
        place.issue()
        found, cursor = place.forge.recent_issues(cursor)
        assert [key.task_type for key in found] == ["issue"]
        found, _ = place.forge.recent_issues(cursor)
        assert "merge_request" in [key.task_type for key in found]


def test_who_set_the_label_last_is_who_asked(place):
    key = place.issue(author="alice", labels=())
    place.person("bob")
    place.person("reporter", REPORTER)
    item = place.item(key)
    place.server.label(item, "reporter", add=("coding agent",))
    assert waiting(place.forge) == []
    place.server.label(item, "reporter", remove=("coding agent",))
    place.server.label(item, "bob", add=("coding agent",))
    (task,) = place.forge.task_getter().get_task_list()
    assert task.get_user() == "bob"


def test_allowed_users_narrows_and_lets_a_listed_machine_in(place):
    server = place.server
    for name in ("project_7_bot_0badcafe", "renovate"):
        server.user(name, bot=True)
        place.issue(author=name)
    place.issue(author="alice")
    place.issue(author="Bob")
    assert [task.get_user() for task in place.forge.task_getter().get_task_list()] == ["alice", "Bob"]
    forge = place.again(allowed_users=("renovate", "bob"))
    assert [task.get_user() for task in forge.task_getter().get_task_list()] == ["renovate", "Bob"]


def test_what_the_bot_does_itself_starts_nothing(place):
    key = place.issue(labels=())
    place.forge.move_label(key, "queued")
    assert place.labels(key) == ["coding agent"]
    assert waiting(place.forge) == []


def test_the_account_of_the_agent_asks_only_when_it_is_listed(place):
    me = place.server.user("makimono")
    me["bot"] = False
    place.issue(author="makimono")
    assert "own account; if that is you, list it in allowed_users" in problems(place.again(bot_name="makimono"))[0]
    assert waiting(place.again(bot_name="makimono", allowed_users=("makimono",))) == [f"gitlab:{PROJECT}#1"]
    assert waiting(place.again()) == [f"gitlab:{PROJECT}#1"], "without a name in bot_name it is a person's"


def test_a_person_without_a_name_and_an_issue_without_a_body_read_well(place):
    place.server.user("nameless", display="")
    key = place.issue(author="nameless", body="", labels=())
    place.comment(key, "hello", author="nameless")
    issue = place.forge.read_issue(key)
    assert (issue.author, issue.body) == ("nameless", "")
    assert [comment.author for comment in issue.comments] == ["nameless"]


# --- start and stop --------------------------------------------------------------------------------------------


def test_assigning_the_bot_starts_a_task_and_unassigning_stops_it(place):
    place.person("bob")
    item = place.server.issue(place.project, "alice", labels=("bug",))
    place.server.assign(item, "bob", ["alice", "makimono"])
    (task,) = place.forge.task_getter().get_task_list()
    assert task.get_user() == "bob"
    task.prepare()
    key = task.get_task_key()
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert waiting(place.forge) == []
    assert place.forge.requested(key) is None
    place.server.assign(item, "alice", ["alice"])
    assert place.again().requested(key) == "stop"


def test_a_task_that_was_started_by_label_is_not_stopped_by_other_assignments(place):
    key = place.issue()
    place.server.assign(place.item(key), "alice", ["makimono"])
    place.server.assign(place.item(key), "alice", [])  # before the run
    place.forge.move_label(key, "processing")
    place.server.assign(place.item(key), "alice", ["alice"])
    assert place.forge.requested(key) is None
    before = len(place.server.asked())
    assert place.forge.requested(key) is None
    assert len(place.server.asked()) == before + 1  # the notes are read once per change of the issue


def test_a_closed_label_set_is_single_adds_and_removes(place):
    key = place.issue(labels=("bug", "coding agent"))
    place.forge.move_label(key, "processing")
    (sent,) = [json.loads(one["body"]) for one in place.server.journal if one["verb"] == "PUT"]
    others = place.forge.labels.names() - {"coding agent processing"}
    assert sent == {"add_labels": ["coding agent processing"], "remove_labels": sorted(others)}
    assert "coding agent processing" in place.project["labels"]  # it did not exist before
    assert place.labels(key) == ["bug", "coding agent processing"]
    assert not place.server.asked("GET", r"/issues/\d+$")


def test_an_issue_that_was_moved_stops_its_task_and_says_so(place):
    key = place.issue()
    place.forge.move_label(key, "processing")
    place.item(key)["moved_to_id"] = 4711
    place.close_issue(key)
    assert place.forge.requested(key) == "stop"
    assert any("moved" in problem for problem in place.forge.read_issue(key).problems)


def test_issues_that_were_switched_off_are_named(place):
    key = place.issue()
    place.project["issues_on"] = False
    with pytest.raises(IssueUnreadable, match=f"issues are switched off in {PROJECT}") as caught:
        place.again().read_issue(key)
    assert caught.value.code == "issues_off"


def test_an_archived_project_refuses_with_its_reason(place):
    key = place.issue()
    place.branch("makimono/1-0badcafe")
    pull = place.forge.open_pull(key, title="x", body="", head="makimono/1-0badcafe", base="main", draft=True)
    place.project["archived"] = True
    forge = place.again()
    calls = (
        lambda: forge.post_comment(key, "x"),
        lambda: forge.move_label(key, "done"),
        lambda: forge.update_pull(key, pull, title="Another"),
    )
    for call in calls:
        with pytest.raises(IssueUnreadable, match="archived") as caught:
            call()
        assert caught.value.code == "repository_archived"
    with pytest.raises(IssueUnreadable, match="archived"):
        forge.repository(key, forge.read_issue(key))


# --- what people say -------------------------------------------------------------------------------------------


def test_comments_of_people_who_may_not_write_are_left_out_and_counted(place):
    key = place.issue()
    place.person("guest", GUEST)
    place.comment(key, "do something else", author="guest")
    place.comment(key, "please", author="alice")
    issue = place.forge.read_issue(key)
    assert [comment.body for comment in issue.comments] == ["please"]
    assert issue.problems == ("1 comments of people who may not write here are left out",)
    place.comment(key, "again", author="guest")
    assert place.forge.comments_since(key, issue.cursor)[0] == ()


def test_system_notes_and_internal_notes_are_not_talk_and_carry_no_marker(place):
    key = place.issue()
    item = place.item(key)
    place.server.note(item, "alice", "between us", internal=True)
    place.server.note(item, "makimono", with_markers("changed the title", MARK), system=True)
    place.server.note(item, "alice", "changed title from **a** to **b**", system=True)
    assert place.forge.read_issue(key).comments == ()
    assert place.forge.find_comment(key, MARK) is None


def test_notes_of_a_merge_request_come_with_file_line_and_thread(place):
    server = place.server
    place.person("bob")
    place.branch("feature/x")
    item = server.merge_request(place.project, "alice", source="feature/x", labels=("coding agent",))
    (task,) = place.forge.task_getter().get_task_list()
    key = task.get_task_key()
    assert key == place.key(item)
    assert key.task_type == "merge_request"
    server.note(item, "alice", "General remark")
    place_in_file = {"new_path": "src/ä b.py", "old_path": "src/ä b.py", "new_line": 12, "old_line": None}
    first = server.note(item, "bob", "Why 12?", position=place_in_file)
    server.note(item, "alice", "Because.", position=place_in_file, thread=first["thread"])
    server.note(
        item, "bob", "Gone?", position={"old_path": "a.py", "new_path": "a.py", "old_line": 3, "new_line": None}
    )
    issue = place.forge.read_issue(key)
    thread = first["thread"][:8]
    said = [(comment.place, comment.body) for comment in issue.comments]
    assert said[0] == ("", "General remark")
    assert said[1] == (f"On src/ä b.py:12, review thread {thread}", "Why 12?")
    assert said[2] == (f"On src/ä b.py:12, review thread {thread}, answer to bob", "Because.")
    assert said[3][0].startswith("On a.py:3 (a removed line), review thread ")
    assert (issue.base, issue.pull.head, issue.pull.fork, issue.title) == ("main", "feature/x", "", "A change")
    # resolving a thread changes the note's time, not its text
    first["resolved"], first["updated_at"] = True, server.now()
    assert place.forge.comments_since(key, issue.cursor)[0] == ()


def test_threads_of_an_issue_say_whom_they_answer(place):
    key = place.issue()
    place.person("bob")
    first = place.server.note(place.item(key), "bob", "Which colour?", kind="DiscussionNote")
    place.server.note(place.item(key), "alice", "Blue.", thread=first["thread"])
    comments = place.forge.read_issue(key).comments
    thread = first["thread"][:8]
    assert [(comment.place, comment.body) for comment in comments] == [
        (f"thread {thread}", "Which colour?"),
        (f"thread {thread}, answer to bob", "Blue."),
    ]


def test_what_is_said_on_the_merge_request_of_an_issue_reaches_its_task(place):
    key = place.issue()
    issue = place.forge.read_issue(key)
    place.branch("makimono/1-0badcafe")
    pull = place.forge.open_pull(
        key, title="Fix", body="Closes #1", head="makimono/1-0badcafe", base="main", draft=True
    )
    merge = place.project["merge_requests"][int(pull.id)]
    place.server.note(merge, "alice", "Not like this", position={"new_path": "a.py", "new_line": 3})
    news, cursor = place.forge.comments_since(key, place.forge.with_pull(issue.cursor, pull.url))
    assert [comment.place.split(", review")[0] for comment in news] == [f"Merge request !{pull.id}, On a.py:3"]
    # another process knows it from the cursor, and a new reader by the issue's merge requests
    place.server.note(merge, "alice", "Still not")
    (one,) = place.again().comments_since(key, cursor)[0]
    assert (one.place, one.body) == (f"Merge request !{pull.id}", "Still not")
    assert len(place.again().read_issue(key).comments) == 2


def test_a_look_at_comments_with_nothing_new_is_one_answer_304(place):
    place.server.began = datetime(2026, 1, 31, 9, tzinfo=UTC)  # a second between two comments
    key = place.issue()
    for number in range(300):
        place.comment(key, f"comment {number}")
    issue = place.forge.read_issue(key)
    assert len(issue.comments) == 300
    place.forge.comments_since(key, issue.cursor)
    before = len(place.server.journal)
    assert place.forge.comments_since(key, issue.cursor) == ((), issue.cursor)
    (one,) = place.server.journal[before:]
    assert one["headers"]["if-none-match"]


def test_no_comment_is_lost_when_the_clocks_of_gitlab_are_put_back(place):
    """It writes times in its own zone: 02:59 +02:00 comes before 02:10 +01:00."""
    server = place.server
    server.zone = ZoneInfo("Europe/Berlin")
    server.began = datetime(2026, 10, 25, 0, 59, 30, tzinfo=UTC)
    key = place.issue(labels=("coding agent processing",))
    place.comment(key, "before")
    issue = place.forge.read_issue(key)
    for number in range(5):
        server.began += timedelta(minutes=10)
        place.comment(key, f"after {number}")
        news, cursor = place.forge.comments_since(key, issue.cursor)
        assert [comment.body for comment in news] == [f"after {number}"]
        issue = replace(issue, cursor=cursor)


def test_a_machines_comment_is_marked_and_counts_only_when_listed(place):
    place.server.user("renovate", bot=True)
    key = place.issue()
    place.comment(key, "bump", author="renovate")
    assert place.forge.read_issue(key).comments == ()
    (comment,) = place.again(allowed_users=("renovate",)).read_issue(key).comments
    assert comment.is_bot


# --- what is shown ---------------------------------------------------------------------------------------------


def test_a_merge_request_is_a_draft_by_its_title_and_the_asker_reviews_it_when_it_is_ready(place):
    place.person("bob")
    key = place.issue(labels=())
    place.server.label(place.item(key), "bob", add=("coding agent",))
    place.forge.move_label(key, "processing")
    place.branch("makimono/1-0badcafe")
    pull = place.forge.open_pull(key, title="Fix", body="x", head="makimono/1-0badcafe", base="main", draft=True)
    item = place.project["merge_requests"][int(pull.id)]
    assert (item["title"], item["reviewers"]) == ("Draft: Fix", [])
    place.forge.update_pull(key, pull, draft=False)
    assert (item["title"], item["reviewers"]) == ("Fix", [place.server.user("bob")["id"]])
    place.forge.update_pull(key, pull, draft=True)
    item["reviewers"] = [place.server.user("alice")["id"]]  # whom people chose stays
    place.forge.update_pull(key, pull, draft=False)
    assert item["reviewers"] == [place.server.user("alice")["id"]]
    item["title"] = "draft: [Draft] Named by a person"
    assert place.forge.find_pull(key, pull.head).title == "Named by a person"
    place.forge.update_pull(key, pull, title="Fixed", draft=True)
    assert item["title"] == "Draft: Fixed"
    item["state"] = "merged"
    assert place.forge.update_pull(key, pull, state="closed").state == "merged"


def test_a_branch_of_the_same_name_in_a_fork_is_another(place):
    fork = place.server.project("mallory/web", members={"mallory": DEVELOPER})
    place.server.merge_request(place.project, "mallory", source="makimono/1-0badcafe", source_project=fork)
    key = place.issue()
    assert place.forge.find_pull(key, "makimono/1-0badcafe") is None


def test_a_merge_request_of_a_fork_says_whose_it_is_and_where_its_commits_are(place):
    fork = place.server.project("bob/web", members={"bob": DEVELOPER})
    item = place.server.merge_request(place.project, "alice", source="patch-1", target="main", source_project=fork)
    key = place.key(item)
    issue = place.forge.read_issue(key)
    assert issue.base == "main"
    assert (issue.pull.head, issue.pull.fork) == ("patch-1", "project 2")  # it may not be seen
    assert place.forge.repository(key, issue).head_ref == "refs/merge-requests/1/head"


def test_what_models_and_people_wrote_is_never_carried_out_by_gitlab(place):
    key = place.issue(labels=("bug",))
    text = "Done:\n/close\n  /label ~x\n/title Pwned\n```\n/close\n```\n```\n/merge\nunfinished fence\n/unlabel ~bug"
    place.forge.post_comment(key, text)
    own = place.forge.post_comment(key, "fine")
    place.forge.edit_comment(key, own, "/close\n/title Pwned")
    place.branch("makimono/1-0badcafe")
    pull = place.forge.open_pull(key, title="Fix", body=text, head="makimono/1-0badcafe", base="main", draft=True)
    place.forge.update_pull(key, pull, body="/merge\n/close")
    item = place.item(key)
    assert (item["state"], item["title"], item["labels"]) == ("opened", "Fix it", ["bug"])
    merge = place.project["merge_requests"][int(pull.id)]
    assert (merge["state"], merge["title"]) == ("opened", "Draft: Fix")
    assert "Done:\n\\/close\n  \\/label ~x" in place.comments(key)[0][1]


def test_a_text_that_grows_over_the_limit_is_cut_and_keeps_its_marker(place):
    key = place.issue()
    body = with_markers("/close\n" * 142_000, MARK)
    assert len(body) < place.forge.max_comment
    place.forge.post_comment(key, body)
    written = place.comments(key)[0][1]
    assert place.forge.max_comment - 1 <= len(written) <= place.forge.max_comment
    assert place.forge.find_comment(key, MARK) is not None
    assert place.item(key)["state"] == "opened"


def test_the_repository_is_named_by_base_url_not_by_what_gitlab_calls_itself(place):
    key = place.issue()
    forge = place.again()
    repository = forge.repository(key, place.forge.read_issue(key))
    assert repository.url == f"{place.address}/{PROJECT}.git"
    assert (repository.owner, repository.repo) == ("acme/tools", "web")
    assert repository.default_branch == "main"
    assert repository.ca_file is None
    assert forge.git_login(key) == ("oauth2", TOKEN)


@pytest.mark.parametrize("visibility", ["public", "internal", "private"])
def test_a_confidential_issue_is_not_carried_into_a_merge_request_that_others_see(place, visibility):
    key = place.issue()
    place.item(key)["confidential"] = True
    place.project["visibility"] = visibility
    if visibility == "private":
        assert place.forge.read_issue(key).confidential
    else:
        with pytest.raises(IssueUnreadable, match="confidential"):
            place.forge.read_issue(key)
        place.forge.post_comment(key, "the person who asked is told")


def test_the_base_branch_may_be_a_label_too(place):
    key = place.issue(labels=("coding agent", "base: release/2"))
    assert place.forge.read_issue(key).base == "release/2"


def test_two_pollers_that_saw_the_label_at_the_same_time_make_one_task(place, tmp_path):
    keys = [place.issue(), place.issue()]
    forges = [place.forge, place.again()]
    seen = [forge.task_getter().get_task_list() for forge in forges]
    databases = [open_tasks(tmp_path) for _ in forges]
    new = [
        [enqueue(Settings(), Ledger(database), task, Events()) is not None for task in tasks]
        for database, tasks in zip(databases, seen, strict=True)
    ]
    for database in databases:
        database.close()
    assert new == [[True, True], [False, False]]
    assert [place.labels(key) for key in keys] == [["coding agent processing"]] * 2


def test_a_sub_path_is_needed_and_missed_in_words(tmp_path):
    server = GitLab("/gitlab")
    try:
        forge = GitLabForge.from_settings(gitlab_settings(tmp_path, server.url.removesuffix("/gitlab")))[0]
        with pytest.raises(ForgeError):
            forge.task_getter().get_task_list()
    finally:
        server.close()
