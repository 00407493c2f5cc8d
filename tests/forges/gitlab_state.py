"""The data of our loopback GitLab (projects, issues, merge requests, notes, people), and what people do there.

Time comes from `agent.clock`; every item has a time of its own.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from datetime import timedelta

from agent import clock
from forges.gitlab_lifecycle import Lifecycle
from forges.gitlab_pipelines import Pipelines
from forges.host_rules import rung

NOTHING = "0" * 40
"""The hash of no commit."""
GUEST, REPORTER, DEVELOPER, MAINTAINER = 10, 20, 30, 40
MAX_NOTE = 1_000_000
MAX_DESCRIPTION = 1_048_576
WORDS = "close|reopen|label|unlabel|assign|unassign|merge|title|assign_reviewer|request_review"
ACTIONS = re.compile(rf"^/({WORDS})(?: ([^\n]*))?[ \t]*$", re.MULTILINE)
"""Quick actions (docs.gitlab.com/user/project/quick_actions)."""
CODE = re.compile(r"^```.+?\n```[ \t]*$", re.MULTILINE | re.DOTALL)


TASK = re.compile(r"^[ \t]*(?:[-*+]|\d+\.) \[([ xX~])\] (.+)$", re.MULTILINE)


def ticked(old, new):
    """(text, whether it is done) of the items of a task list that an edit ticked or unticked: those at the same place
    with the same text (gem task_list, `Taskable.get_updated_tasks`)."""
    before, after = (
        [(source, box.casefold() == "x") for box, source in TASK.findall(text or "")] for text in (old, new)
    )
    return [new for old, new in zip(before, after, strict=False) if new[0] == old[0] and new[1] != old[1]]


def in_git(project, branch):
    """The commit of a branch in the real repository of the project (`git`); "" if one of them does not exist."""
    if "git" not in project:
        return ""
    argv = ["git", "--git-dir", project["git"], "rev-parse", "--verify", "-q", f"refs/heads/{branch}"]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True).stdout.strip()


class State(Lifecycle, Pipelines):
    """A part of `gitlab_server.GitLab`."""

    # --- what people do -------------------------------------------------------------------------------------

    def user(self, name, *, token=None, bot=False, display="A Person"):
        with self.lock:
            known = next((user for user in self.users.values() if user["username"] == name), None)
            if known is None:
                number = len(self.users) + 1
                known = self.users[number] = {"id": number, "username": name, "name": display, "bot": bot}
            if token:
                self.tokens[token] = known["id"]
            return known

    def project(self, path, *, members=None, group=True, **more):
        with self.lock:
            number = len(self.projects) + 1
            owner = path.rpartition("/")[0]
            if group:
                self.groups |= {owner.rsplit("/", depth)[0] for depth in range(owner.count("/") + 1)}
            self.projects[number] = {
                "id": number,
                "path": path,
                "group": group,
                "members": {self.user(name)["id"]: level for name, level in (members or {}).items()},
                "branches": {"main"},
                "protected": {"main"},
                "default_branch": "main",
                "archived": False,
                "issues_on": True,
                "merges_on": True,
                "issues": {},
                "merge_requests": {},
                "labels": {},
                **more,
            }
            return self.projects[number]

    def issue(self, project, author, *, title="Fix it", description="It is broken.", labels=(), assignees=()):
        with self.lock:
            return self._make(project, "issues", self.user(author), title, description, labels, assignees)

    def merge_request(self, project, author, *, source, target="main", labels=(), source_project=None, **more):
        with self.lock:
            item = self._make(project, "merge_requests", self.user(author), more.get("title", "A change"), "", (), ())
            item |= {"source_branch": source, "target_branch": target, "reviewers": []}
            item["source_project_id"] = (source_project or project)["id"]
            self._version(item, more.get("sha", NOTHING))
            self._relabel(item, self.user(author), labels, ())
            return item

    def push_commit(self, item, author, commit):
        """Somebody pushes a commit to the source branch of a merge request.

        GitLab itself then makes a version of the merge request, moves `refs/merge-requests/N/head` and writes a system
        note (docs.gitlab.com, "Merge request diff versions").
        """
        with self.lock:
            words = f"added 1 commit\n\n<ul><li>{commit[:8]} - A change</li></ul>"
            self._note(item, self.user(author), words, system=True)
            self._version(item, commit)
            if "git" in item["project"]:
                ref = f"refs/merge-requests/{item['iid']}/head"
                argv = ["git", "--git-dir", item["project"]["git"], "update-ref", ref, commit]
                subprocess.run(argv, check=True)

    def _version(self, item, commit):
        item["sha"] = commit
        made = {"id": self._id(), "head_commit_sha": commit, "created_at": self.now()}
        item.setdefault("versions", []).append(made)

    def rung(self, own):
        """The people who were notified by the account's texts."""
        texts = [
            text
            for project in self.projects.values()
            for item in (*project["issues"].values(), *project["merge_requests"].values())
            for text in (
                *([item["description"]] if item["author"]["username"] == own else []),
                *(note["body"] for note in item["notes"] if note["author"]["username"] == own and not note["system"]),
            )
        ]
        return set().union(*map(rung, texts)) - {own}

    def note(self, item, author, body, *, thread=None, **more):
        """A person writes a note; `thread` is the id of the discussion that it answers, `position` a place in the
        change."""
        with self.lock:
            return self._note(item, self.user(author), body, thread=thread, **more)

    def edit(self, item, number, body):
        with self.lock:
            note = next(note for note in item["notes"] if note["id"] == int(number))
            note["body"] = body
            note["updated_at"] = item["updated_at"] = self.now()
            return note

    def describe(self, item, author, text):
        """A person edits the description.  An edit that ticks an item of a task list gets the note about that alone,
        whatever else it changes:
        https://gitlab.com/gitlab-org/gitlab/-/blob/master/app/services/issuable/common_system_notes_service.rb
        """
        with self.lock:
            old, item["description"] = item["description"], text
            notes = [
                f"marked the checklist item **{source}** as {'completed' if done else 'incomplete'}"
                for source, done in ticked(old, text)
            ]
            for body in notes or ["changed the description"]:
                self._note(item, self.user(author), body, system=True)

    def request_changes(self, item, author):
        """A reviewer requests changes, of which GitLab writes a system note:
        https://gitlab.com/gitlab-org/gitlab/-/blob/master/app/services/merge_requests/update_reviewer_state_service.rb
        """
        with self.lock:
            return self._note(item, self.user(author), "requested changes", system=True)

    def label(self, item, author, *, add=(), remove=()):
        with self.lock:
            self._relabel(item, self.user(author), add, remove)

    def assign(self, item, author, names):
        with self.lock:
            self._assign(item, self.user(author), [self.user(name)["id"] for name in names])

    def state(self, item, state):
        with self.lock:
            if state == "closed":
                self.close_item(item, "alice")
            elif state == "opened" and item["state"] == "closed":
                self.reopen_item(item, "alice")
            else:
                item["state"], item["updated_at"] = state, self.now()

    def push(self, project, branch):
        with self.lock:
            project["branches"].add(branch)

    # --- state ----------------------------------------------------------------------------------------------

    def now(self):
        self.ticks += 1
        if self.began is not None:
            moment = self.began + timedelta(seconds=self.ticks)
        else:  # no two are the same
            moment = clock.now() + timedelta(milliseconds=self.ticks)
        moment = moment.astimezone(self.zone)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _id(self):
        self.ids += 1
        return self.ids

    def _make(self, project, kind, author, title, description, labels, assignees):
        number = max(project[kind], default=0) + 1
        now = self.now()
        item = project[kind][number] = {
            "id": self._id(),
            "iid": number,
            "kind": kind,
            "project": project,
            "title": title,
            "description": description,
            "state": "opened",
            "author": author,
            "labels": [],
            "assignees": [],
            "notes": [],
            "events": [],
            "created_at": now,
            "updated_at": now,
        }
        self._relabel(item, author, labels, ())
        if assignees:
            self._assign(item, author, [self.user(name)["id"] for name in assignees])
        return item

    def _relabel(self, item, who, add, remove):
        for action, names in (("add", add), ("remove", remove)):
            for name in names:
                if (name in item["labels"]) == (action == "add"):
                    continue
                (item["labels"].append if action == "add" else item["labels"].remove)(name)
                label = item["project"]["labels"].setdefault(name, self._id())
                item["updated_at"] = self.now()
                item["events"].append(
                    {
                        "id": self._id(),
                        "user": who,
                        "created_at": item["updated_at"],
                        "action": action,
                        "label": {"id": label, "name": name},
                    }
                )

    def _assign(self, item, who, ids):
        gained = [number for number in ids if number not in item["assignees"]]
        lost = [number for number in item["assignees"] if number not in ids]
        item["assignees"] = list(ids)

        def mentioned(numbers):
            return " and ".join(f"@{self.users[number]['username']}" for number in numbers)

        words = [f"assigned to {mentioned(gained)}"] if gained else []
        words += [f"unassigned {mentioned(lost)}"] if lost else []
        if words:
            self._note(item, who, " and ".join(words), system=True)

    def _note(self, item, author, body, *, thread=None, system=False, position=None, internal=False, kind=None):
        now = self.now()
        note = {
            "id": self._id(),
            "type": kind or ("DiffNote" if position else "DiscussionNote" if thread else None),
            "body": body,
            "author": author,
            "system": system,
            "internal": internal,
            "created_at": now,
            "updated_at": now,
            "thread": thread or hashlib.sha1(f"{item['id']}:{now}".encode()).hexdigest(),
        }
        if position:
            note["position"] = position
        item["notes"].append(note)
        item["updated_at"] = now
        return note

    def _quick_actions(self, item, who, text):
        """Execute the quick actions of a text as GitLab does; returns the rest."""
        outside = CODE.sub("", text)
        for match in ACTIONS.finditer(outside):
            word, value = match[1], (match[2] or "").strip()
            if word in ("close", "merge"):
                item.update(state="closed" if word == "close" else "merged", updated_at=self.now(), closed_by=who)
                item["closed_at"] = item["merged_at"] = item["updated_at"]
            elif word == "title":
                item["title"] = value
            elif word in ("assign_reviewer", "request_review") and "reviewers" in item:
                # each request notifies the reviewer and writes a system note (gitlab-org/gitlab,
                # app/services/merge_requests/request_review_service.rb)
                number = self.user(value.removeprefix("@"))["id"]
                item["reviewers"] = list(dict.fromkeys((*item["reviewers"], number)))
                item.setdefault("asked_for_review", []).append(value.removeprefix("@"))
                self._note(item, who, f"requested review from {value}", system=True)
            elif word in ("label", "unlabel"):
                names = [value.strip('~"')]
                self._relabel(item, who, *((names, ()) if word == "label" else ((), names)))
        return text if ACTIONS.search(outside) is None else ACTIONS.sub("", text).strip()
