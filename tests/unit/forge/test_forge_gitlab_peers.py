"""Our loopback GitLab is held honest by others: Prism with GitLab's document, @gitbeaker/rest and python-gitlab.

The document has no notes, discussions and labels; gitbeaker says in its types what those are.
"""

from __future__ import annotations

import json
import re
import subprocess

import gitlab
import pytest
from forges.gitlab_document import GitLabPrismPlace
from forges.gitlab_place import PROJECT, TOKEN, GitLabPlace
from forges.programs import MODULES, ROOT, missing, node

from agent.errors import ForgeError

SCRIPT = ROOT / "tests" / "peers" / "read_gitlab.mjs"
TYPES = MODULES / "@gitbeaker" / "core" / "dist" / "index.d.ts"
TEXT_OF = {"number": (int, float), "string": (str,), "boolean": (bool,), "null": (type(None),)}


@pytest.fixture
def place(tmp_path):
    place = GitLabPlace(tmp_path)
    yield place
    place.close()


@pytest.fixture
def talk(place):
    """An issue and a merge request with every kind of note, read in pages of two."""
    place.server.project("acme/second", members={"makimono": 40})
    place.person("bob")
    key = place.issue(labels=("bug", "coding agent"))
    item = place.item(key)
    first = place.server.note(item, "bob", "Which?", kind="DiscussionNote")
    place.server.note(item, "alice", "That.", thread=first["thread"])
    place.server.note(item, "alice", "One more")
    place.server.assign(item, "alice", ["makimono"])
    place.branch("feature/x")
    merge = place.server.merge_request(place.project, "alice", source="feature/x")
    position = {
        "base_sha": "0" * 40,
        "start_sha": "0" * 40,
        "head_sha": "1" * 40,
        "position_type": "text",
        "old_path": "a.py",
        "new_path": "a.py",
        "old_line": None,
        "new_line": 3,
        "line_range": None,
    }
    for number in range(3):
        place.server.note(merge, "bob", f"remark {number}", position=position)
    return place, item, merge


# --- Prism -----------------------------------------------------------------------------------------------------


def test_prism_tells_what_the_document_forbids_in_both_directions(tmp_path):
    """Else the contract test behind Prism would prove nothing."""
    place = GitLabPrismPlace(tmp_path)
    wire = place.forge.wire
    place.issue()
    wire.get("/projects/1/issues/1")
    assert place.violations() == []
    wire.call("PUT", "/projects/1/issues/1", body={"add_labels": "not a list"})
    with pytest.raises(ForgeError):
        wire.get("/projects/1/issues", query={"state": "open"})
    with pytest.raises(ForgeError):
        wire.get("/projects/1/nowhere")
    place.project["issues"][1]["title"] = ["not a text"]
    with pytest.raises(ForgeError):
        wire.get("/projects/1/issues")
    said = " ".join(place.violations())
    for part in ("request.body.add_labels", "request.query.state", "route not found", "response.body.0.title"):
        assert part in said, said
    place.forge.close()


# --- gitbeaker -------------------------------------------------------------------------------------------------


def declared(name):
    """field → (may be absent, the names of its types) of an interface that gitbeaker declares."""
    text = TYPES.read_text()
    match = re.search(rf"^interface {name} extends (\w+)[^{{]*{{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    fields = declared(match[1]) if match[1].endswith("Schema") else {}
    for field, absent, kinds in re.findall(r"^    (\w+)(\??): ([^;{]+);$", match[2], re.MULTILINE):
        fields[field] = bool(absent), [kind.strip() for kind in kinds.split("|")]
    return fields


def faults(answer, name, *, but=()):
    """What an answer lacks or has otherwise than gitbeaker declares it."""
    found = []
    for field, (may_be_absent, kinds) in declared(name).items():
        if field in but:
            continue
        if field not in answer:
            found += [] if may_be_absent else [f"{field} is missing"]
            continue
        words = [kind.strip("'") for kind in kinds if kind.startswith("'")]
        types = tuple(one for kind in kinds for one in TEXT_OF.get(kind, ()))
        known = all(kind in TEXT_OF or kind.startswith("'") for kind in kinds)
        if known and answer[field] not in words and not (types and isinstance(answer[field], types)):
            found.append(f"{field} is {answer[field]!r}, not {kinds}")
    return found


@pytest.fixture
def read_by_gitbeaker(talk):
    place, item, merge = talk
    if not TYPES.is_file():
        missing("@gitbeaker/rest is not installed")
    place.server.per_page = 2
    argv = [*node(SCRIPT), place.address, TOKEN, PROJECT, str(item["iid"]), str(merge["iid"])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), item


def test_gitbeaker_reads_notes_discussions_and_labels_as_it_declares_them(read_by_gitbeaker):
    out, item = read_by_gitbeaker
    assert [note["body"] for note in out["notes"]] == [note["body"] for note in item["notes"]]
    assert [note["id"] for one in out["discussions"] for note in one["notes"]] == [note["id"] for note in item["notes"]]
    assert len(out["merge_notes"]) == 3
    assert len(out["merge_discussions"]) == 3
    assert (out["written"]["body"], out["edited"]["body"]) == ("written by gitbeaker", "edited by gitbeaker")
    assert out["shown"]["author"]["username"] == "makimono"
    assert [label["name"] for label in out["labels"]] == ["bug", "coding agent"]
    assert [event["label"]["name"] for event in out["events"]] == ["bug", "coding agent"]
    assert [project["path_with_namespace"] for project in out["projects"]] == [PROJECT, "acme/second"]
    wrong = [fault for note in out["notes"] for fault in faults(note, "IssueNoteSchema")]
    wrong += [fault for note in out["merge_notes"] for fault in faults(note, "MergeRequestNoteSchema")]
    for one in out["discussions"] + out["merge_discussions"]:
        wrong += faults(one, "DiscussionSchema")
    for one in out["discussions"]:
        wrong += [fault for note in one["notes"] for fault in faults(note, "DiscussionNoteSchema")]
    for one in out["merge_discussions"]:
        # it declares texts where GitLab gives null until a thread is resolved
        but = ("resolved_by", "resolved_at")
        wrong += [fault for note in one["notes"] for fault in faults(note, "MergeRequestDiscussionNoteSchema", but=but)]
        wrong += [
            fault for note in one["notes"] for fault in faults(note["position"], "DiscussionNotePositionBaseSchema")
        ]
    wrong += [fault for label in out["labels"] for fault in faults(label, "LabelSchema", but=("priority",))]
    wrong += [fault for event in out["events"] for fault in faults(event, "LabelEventSchema")]
    people = [note["author"] for note in out["notes"]] + [event["user"] for event in out["events"]] + [out["user"]]
    wrong += [fault for user in people for fault in faults(user, "SimpleUserSchema", but=("created_at", "avatar_url"))]
    assert wrong == []


# --- python-gitlab ---------------------------------------------------------------------------------------------


def test_python_gitlab_works_with_its_own_objects(talk):
    place, item, merge = talk
    place.server.per_page = 2
    client = gitlab.Gitlab(place.address, private_token=TOKEN)
    try:
        client.auth()
        assert client.user.username == "makimono"
        project = client.projects.get(PROJECT)
        assert project.default_branch == "main"
        issue = project.issues.get(item["iid"])
        assert [note.body for note in issue.notes.list(sort="asc", order_by="created_at", iterator=True)] == [
            note["body"] for note in item["notes"]
        ]
        note = issue.notes.create({"body": "written by python-gitlab"})
        note.body = "edited by python-gitlab"
        note.save()
        assert issue.notes.get(note.id).body == "edited by python-gitlab"
        assert len(issue.discussions.list(iterator=True)) == 4
        shown = project.mergerequests.get(merge["iid"])
        threads = shown.discussions.list(get_all=True)
        assert [thread.attributes["notes"][0]["position"]["new_line"] for thread in threads] == [3, 3, 3]
        assert [label.name for label in project.labels.list(get_all=True)] == ["bug", "coding agent"]
        events = issue.resourcelabelevents.list(get_all=True)
        assert [(event.action, event.label["name"]) for event in events] == [("add", "bug"), ("add", "coding agent")]
        assert [one.iid for one in project.issues.list(state="opened", labels=["bug"], get_all=True)] == [1]
        assert project.members_all.get(place.server.user("bob")["id"]).access_level == 30
        assert project.branches.get("feature/x").name == "feature/x"
        names = [
            one.path_with_namespace for one in client.projects.list(pagination="keyset", order_by="id", iterator=True)
        ]
        assert names == [PROJECT, "acme/second"]
        with pytest.raises(gitlab.exceptions.GitlabCreateError, match="already exists"):
            project.mergerequests.create({"source_branch": "feature/x", "target_branch": "main", "title": "Again"})
    finally:
        client.session.close()
