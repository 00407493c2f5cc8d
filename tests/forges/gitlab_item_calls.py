"""Issues and merge requests of our loopback GitLab: lists, one of them, changes."""

from __future__ import annotations

import re
from datetime import datetime

from forges.gitlab_call import Call
from forges.gitlab_errors import Refused, forbidden, missing
from forges.gitlab_state import DEVELOPER, MAX_DESCRIPTION, NOTHING, REPORTER, in_git


class ItemCalls(Call):
    """A part of `gitlab_routes.Routed`."""

    def listed(self, projects, kind):
        self.take(
            "state",
            "labels",
            "scope",
            "assignee_username",
            "search",
            "source_branch",
            "author_id",
            "iids",
            "updated_after",
        )
        state = self.choice("state", "opened", "closed", "merged", "locked", "all")
        scope = self.choice("scope", "created_by_me", "assigned_to_me", "all")
        order = self.choice("order_by", "created_at", "updated_at") or "created_at"
        wanted = [name for name in (self.query.get("labels") or "").split(",") if name]
        after = datetime.fromisoformat(self.query.get("updated_after") or "0001-01-01T00:00:00Z")
        found = []
        for project in projects:
            for item in project[kind].values():
                if datetime.fromisoformat(item["updated_at"]) < after:
                    continue
                if state not in (None, "all", item["state"]) or not all(name in item["labels"] for name in wanted):
                    continue
                if scope == "assigned_to_me" and self.who["id"] not in item["assignees"]:
                    continue
                if self.query.get("source_branch") not in (None, item.get("source_branch")):
                    continue
                words = self.query.get("search")
                if words and words.lower() not in f"{item['title']} {item['description']}".lower():
                    continue
                found.append(item)
        found.sort(
            key=lambda item: (datetime.fromisoformat(item[order]), item["id"]),
            reverse=self.query.get("sort", "desc") == "desc",
        )
        return self.paged(found, self.shape)

    def of_project(self, name, kind):
        project = self.find_project(name)
        if kind == "merge_requests" and not project["merges_on"]:
            raise forbidden()
        return self.listed([project] if kind == "merge_requests" or project["issues_on"] else [], kind)

    def of_group(self, name, kind):
        inside = [one for one in self._visible() if one["path"].startswith(f"{name}/")]
        if name not in self.server.groups or not inside:
            raise missing("Group")
        return self.listed([one for one in inside if not one["archived"]], kind)

    def of_all(self, kind):
        if self.query.get("scope") is None:
            self.query["scope"] = "created_by_me"
        return self.listed(self._visible(), kind)

    def _visible(self):
        return [one for one in self.server.projects.values() if one["members"].get(self.who["id"])]

    def related(self, name, number):
        item = self.find_item(name, "issues", number)
        word = re.compile(rf"#{item['iid']}(?!\d)")
        merges = item["project"]["merge_requests"].values()
        return self.paged([one for one in merges if word.search(one["description"] or "")], self.shape)

    def one(self, name, kind, number):
        item = self.find_item(name, kind, number)
        shown = self.shape(item)
        if kind == "merge_requests":
            status, detailed, conflicts = self.server.merge_status(item)
            shown |= {"merge_status": status, "detailed_merge_status": detailed, "has_conflicts": conflicts}
            head = self.server.head_pipeline(item)
            shown["head_pipeline"] = None if head is None else self.pipeline_shape(head, whole=True)
        return 200, {}, shown

    def change(self, name, kind, number):
        item = self.find_item(name, kind, number, REPORTER if kind == "issues" else DEVELOPER)
        known = ("title", "description", "state_event", "add_labels", "remove_labels", "assignee_ids")
        body = self.take(*known, *(("reviewer_ids",) if kind == "merge_requests" else ()), of="body")
        if not body:
            raise Refused(400, {"error": "title, description, … are missing, at least one parameter must be provided"})
        self._check_title(body)
        if body.get("state_event") not in (None, "close", "reopen"):
            raise Refused(400, {"error": "state_event does not have a valid value"})
        if "description" in body:
            item["description"] = self.server._quick_actions(item, self.who, body["description"])
        if "title" in body:
            item["title"] = body["title"]
        if body.get("state_event") == "close":
            self.server.close_item(item, self.who["username"])
        elif body.get("state_event") and item["state"] == "closed":
            self.server.reopen_item(item, self.who["username"])
        self.server._relabel(item, self.who, self._names("add_labels"), self._names("remove_labels"))
        if "reviewer_ids" in body:
            item["reviewers"] = [one for one in body["reviewer_ids"] if one in item["project"]["members"]]
        if "assignee_ids" in body:
            self.server._assign(item, self.who, body["assignee_ids"])
        item["updated_at"] = self.server.now()
        return 200, {}, self.shape(item)

    def _names(self, key):
        value = self.body.get(key) or []
        return [part.strip() for one in ([value] if isinstance(value, str) else value) for part in one.split(",")]

    def _check_title(self, body):
        if len(body.get("title", "x")) > 255:
            raise Refused(400, {"message": {"title": ["is too long (maximum is 255 characters)"]}})
        if not body.get("title", "x").strip():
            raise Refused(400, {"message": {"title": ["can't be blank"]}})
        if len(body.get("description") or "") > MAX_DESCRIPTION:
            raise Refused(400, {"message": {"description": [f"is too long (maximum is {MAX_DESCRIPTION} characters)"]}})

    def open_issue(self, name):
        project = self.find_project(name)
        if not project["issues_on"]:
            raise forbidden()
        body = self.take("title", "description", "labels", of="body")
        if not body.get("title"):
            raise Refused(400, {"error": "title is missing"})
        may_label = project["members"].get(self.who["id"], 0) >= REPORTER  # labels of others are dropped
        labels = [one.strip() for one in body.get("labels", "").split(",") if may_label and one.strip()]
        made = self.server._make(project, "issues", self.who, body["title"], body.get("description"), labels, ())
        return 201, {}, self.shape(made)

    def open_merge(self, name):
        project = self.find_project(name, DEVELOPER)
        if not project["merges_on"]:
            raise forbidden()
        body = self.take("title", "description", "source_branch", "target_branch", "reviewer_ids", of="body")
        if absent := [key for key in ("title", "source_branch", "target_branch") if key not in body]:
            raise Refused(400, {"error": ", ".join(f"{key} is missing" for key in absent)})
        self._check_title(body)
        source, target = body["source_branch"], body["target_branch"]
        if not self._has_branch(project, source):
            raise Refused(422, {"message": [f'Source branch "{source}" does not exist']})
        if target not in project["branches"] and not in_git(project, target):
            raise Refused(422, {"message": [f'Target branch "{target}" does not exist']})
        if source == target:
            raise Refused(422, {"message": ["You can't use same project/branch for source and target"]})
        for one in project["merge_requests"].values():
            same = (one["source_branch"], one["target_branch"], one["source_project_id"])
            if one["state"] == "opened" and same == (source, target, project["id"]):
                message = f"Another open merge request already exists for this source branch: !{one['iid']}"
                raise Refused(409, {"message": [message]})
        item = self.server._make(project, "merge_requests", self.who, body["title"], "", (), ())
        item |= {"source_branch": source, "target_branch": target, "source_project_id": project["id"]}
        self.server._version(item, in_git(project, source) or NOTHING)
        item["reviewers"] = [number for number in body.get("reviewer_ids", ()) if number in project["members"]]
        item["description"] = self.server._quick_actions(item, self.who, body.get("description") or "")
        return 201, {}, self.shape(item)

    def versions(self, name, number):
        """docs.gitlab.com, Merge requests API, "Get merge request diff versions": newest first."""
        item = self.find_item(name, "merge_requests", number)
        self.take()
        of = {"base_commit_sha": NOTHING, "start_commit_sha": NOTHING, "merge_request_id": item["id"]}
        of |= {"state": "collected", "real_size": "1", "patch_id_sha": NOTHING}
        return self.paged(item["versions"][::-1], lambda one: one | of)

    def _has_branch(self, project, branch):
        if branch not in project["branches"] and not in_git(project, branch):
            return False
        if branch != project["default_branch"] and self.server.branch_lag > 0:
            self.server.branch_lag -= 1
            return False
        return True
