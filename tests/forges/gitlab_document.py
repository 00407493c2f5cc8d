"""GitLab's own document of its API, corrected, and Prism in front of our loopback GitLab with it.

The document (`tests/specs/gitlab-subset.json`) is generated from GitLab's code and is wrong in known ways.  Each is
corrected here and nowhere else, so that the rest is as GitLab wrote it:

- a list is described as one entry; a field that may be null is not described as nullable;
- a field of a type that the generator did not know is called a string (`draft`, `access_level`, …);
- `{branch}` is called an integer;
- refusals are not described at all;
- notes, discussions, label events, groups, users, lists of projects, pipelines and jobs are missing: they are not checked here, and two
  independent clients read them (`test_forge_gitlab_peers.py`).
"""

from __future__ import annotations

import atexit
import copy
import json
import re
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from ports import free_port

from forges.gitlab_place import GitLabPlace
from forges.gitlab_server import GitLab
from forges.programs import PRISM, node, running

DOCUMENT = Path(__file__).parents[1] / "specs" / "gitlab-subset.json"
LISTS = ("statuses", "issues", "merge_requests", "related_merge_requests", "protected_branches", "branches")
USED = (
    *("/api/v4/issues", "/api/v4/merge_requests", "/api/v4/projects/{id}", "/api/v4/projects/{id}/issues"),
    "/api/v4/projects/{id}/issues/{issue_iid}",
    "/api/v4/projects/{id}/issues/{issue_iid}/related_merge_requests",
    "/api/v4/projects/{id}/merge_requests",
    "/api/v4/projects/{id}/merge_requests/{merge_request_iid}",
    "/api/v4/projects/{id}/members/all/{user_id}",
    "/api/v4/projects/{id}/repository/branches/{branch}",
    "/api/v4/projects/{id}/repository/commits/{sha}/statuses",
)
"""The paths that the adapter calls.  Without the others Prism starts much faster, and a request for another path is a
fault."""

MANY = ("assignees", "reviewers")
UNTYPED = {
    "Issue": (
        *("user_notes_count", "merge_requests_count", "upvotes", "downvotes", "weight", "blocking_issues_count"),
        *("task_completion_status", "has_tasks", "subscribed", "moved_to_id", "imported", "epic_iid"),
    ),
    "MergeRequest": (
        *("user_notes_count", "upvotes", "downvotes", "source_project_id", "target_project_id", "labels", "draft"),
        *("work_in_progress", "has_conflicts", "imported", "squash", "discussion_locked", "task_completion_status"),
        "merge_when_pipeline_succeeds",
    ),
    "Member": ("access_level", "override", "is_using_seat"),
    "Entities_ProjectAccess": ("access_level", "notification_level"),
    "Entities_GroupAccess": ("access_level", "notification_level"),
}
MISSING = {
    "/api/v4/projects/{id}/pipelines": ("get",),
    "/api/v4/projects/{id}/pipelines/{pipeline}/jobs": ("get",),
    "/api/v4/projects/{id}/jobs/{job}/trace": ("get",),
    "/api/v4/user": ("get",),
    "/api/v4/users/{user_id}": ("get",),
    "/api/v4/projects": ("get",),
    "/api/v4/groups/{group}/issues": ("get",),
    "/api/v4/groups/{group}/merge_requests": ("get",),
    "/api/v4/projects/{id}/{kind}/{iid}/notes": ("get", "post"),
    "/api/v4/projects/{id}/{kind}/{iid}/notes/{note_id}": ("get", "put", "delete"),
    "/api/v4/projects/{id}/{kind}/{iid}/discussions": ("get",),
    "/api/v4/projects/{id}/{kind}/{iid}/resource_label_events": ("get",),
}


def usable():
    """The document with its known faults corrected."""
    document = json.loads(DOCUMENT.read_text())
    document["paths"] = {path: document["paths"][path] for path in USED}
    document["definitions"] = _reached(document)
    answers = [name for name in document["definitions"] if name.startswith(("API_", "EE_", "Epic"))]
    for name in answers:  # the bodies of requests are not changed
        untyped = {field for kind, fields in UNTYPED.items() if kind in name for field in fields}
        _loosen(document["definitions"][name], untyped)
    whole = copy.deepcopy(document["definitions"])
    for name in answers:
        _inline(document["definitions"][name], whole)
    for path, item in document["paths"].items():
        for verb, operation in item.items():
            operation["responses"]["default"] = {"description": "a refusal"}
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "branch" and parameter["in"] == "path":
                    parameter["type"] = "string"
                    parameter.pop("format", None)
            if verb == "get" and path.rpartition("/")[2] in LISTS and "200" in operation["responses"]:
                answer = operation["responses"]["200"]
                answer["schema"] = {"type": "array", "items": answer["schema"]}
    for path, verbs in MISSING.items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters = [{"name": name, "in": "path", "required": True, "type": "string"} for name in names]
        answers = {"default": {"description": "unchecked"}, "200": {"description": ""}, "201": {"description": ""}}
        answers["204"] = {"description": ""}
        body = [{"name": "body", "in": "body", "required": True, "schema": {"type": "object", "required": ["body"]}}]
        document["paths"][path] = {
            verb: {
                "parameters": parameters + (body if verb in ("post", "put") else []),
                "consumes": ["application/json"],
                "responses": copy.deepcopy(answers),
            }
            for verb in verbs
        }
    return document


def _reached(document):
    """The definitions that the paths refer to, directly or indirectly."""
    found, open_ones = {}, [document["paths"]]
    while open_ones:
        for name in re.findall(r'"#/definitions/([^"]+)"', json.dumps(open_ones.pop())):
            if name not in found:
                found[name] = document["definitions"][name]
                open_ones.append(found[name])
    return found


def _loosen(definition, untyped):
    """Make the fields nullable; those in `untyped` may have any type."""
    for field, schema in definition.get("properties", {}).items():
        if field in untyped:
            definition["properties"][field] = {}
        elif "type" in schema:
            schema["x-nullable"] = True
            _loosen(schema, untyped)


def _inline(definition, whole):
    """A field that refers to another definition may be null too; a reference cannot express this, a copy can."""
    properties = definition.get("properties", {})
    for field, schema in properties.items():
        if field in MANY and "$ref" in schema:
            properties[field] = {"type": "array", "items": schema}
        elif "$ref" in schema:
            properties[field] = {**whole[schema["$ref"].rpartition("/")[2]], "x-nullable": True}
        else:
            _inline(schema, whole)


@cache
def pair():
    """(our server, the address of Prism before it, its log), until the process ends."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="makimono-prism-")))
    server = GitLab()
    stack.callback(server.close)
    file = folder / "gitlab.json"
    file.write_text(json.dumps(usable()))
    port = free_port()
    argv = [*node(PRISM), "proxy", "--port", str(port), str(file), server.url]
    stack.enter_context(running(argv, port, folder / "prism.log"))
    return server, f"http://127.0.0.1:{port}", folder / "prism.log"


class GitLabPrismPlace(GitLabPlace):
    """The same people; the adapter's requests and our answers go through Prism, which reports violations of the
    document."""

    def start(self):
        self.server, self.address, self.log = pair()
        self.server.forget()
        self.said = self.log.stat().st_size

    def violations(self):
        """The violations that Prism has reported since its start."""
        lines = self.log.read_bytes()[self.said :].decode().splitlines()
        return [line.partition("Violation: ")[2] for line in lines if "Violation: " in line]

    def close(self):
        self.forge.close()
        found = self.violations()
        assert not found, found
