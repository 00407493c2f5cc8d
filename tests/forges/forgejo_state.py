"""The data of our loopback Forgejo: repositories, issues, comments, pull requests, people, and what the server does with
them by itself.

Sources are the server's own code and pages: codeberg.org/forgejo/forgejo (11.0), forgejo.org/docs.  Time comes from
`agent.clock`, in whole seconds like Forgejo's, with the offset of the server's time zone.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from dataclasses import dataclass, field
from datetime import timedelta, timezone
from itertools import count
from pathlib import Path  # noqa: TC003 - a dataclass needs it

from agent import clock
from forges.host_rules import forgejo_closes, rung

ZONE = timezone(timedelta(hours=2))
LEVELS = ("none", "read", "write", "admin", "owner")
PREFIXES = ("WIP:", "[WIP]")
"""docs "Work in progress": default of `repository.pull-request.WORK_IN_PROGRESS_PREFIXES`."""
NOTHING = "0" * 40


def now():
    return clock.now().replace(microsecond=0)


def shown_time(moment):
    return None if moment is None else moment.astimezone(ZONE).isoformat()


def is_draft(title):
    """models/issues/pull.go `HasWorkInProgressPrefix`: without regard to capitals."""
    return any(title.upper().startswith(prefix) for prefix in PREFIXES)


def without_draft(title):
    """The title that a person sees behind the mark of a draft."""
    while is_draft(title):
        title = title.partition("]" if title[0] == "[" else ":")[2].strip()
    return title


def cut_title(title):
    """models/issues/issue_update.go: a title is cut after 255 bytes, without a word."""
    return title.encode()[:255].decode("utf-8", "ignore")


@dataclass
class Repo:
    """`people` are collaborators, login → level.  In an organisation `teams` are mappings with `name`, `members` and
    `units` (unit → level)."""

    id: int
    owner: str
    name: str
    ids: count
    is_org: bool = False
    people: dict = field(default_factory=dict)
    teams: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # id → label of the repository
    org_labels: dict = field(default_factory=dict)  # id → label of the organisation
    issues: dict = field(default_factory=dict)  # number → issue, pull requests among them
    branches: set = field(default_factory=lambda: {"main"})
    comments: dict = field(default_factory=dict)  # id → comment
    reviews: dict = field(default_factory=dict)
    statuses: dict = field(default_factory=dict)  # commit → list of statuses
    archived: bool = False
    has_issues: bool = True
    has_pulls: bool = True
    private: bool = False
    gone: bool = False
    default_branch: str = "main"
    number: int = 0
    git: Path | None = None  # a bare repository, whose branches are then used

    @property
    def full_name(self):
        return f"{self.owner}/{self.name}"

    def level(self, login):
        """models/perm/access: the owner, a collaborator, or the least that a team gives over its units."""
        if login == self.owner:
            return "owner"
        teams = [min(one["units"].values(), key=LEVELS.index) for one in self.teams if login in one["members"]]
        levels = [self.people.get(login, "none"), *teams, "none" if self.private else "read"]
        return max(levels, key=LEVELS.index)

    def writes(self, login):
        team = any(login in one["members"] and "write" in one["units"].values() for one in self.teams)
        return team or self.level(login) in ("write", "admin", "owner")

    def assignees(self):
        """models/repo/user_repo.go `GetRepoAssignees`: whoever may write; in an organisation also everybody of a team
        that writes in one unit, or reads pull requests."""
        found = [login for login, level in self.people.items() if level in ("write", "admin")]
        for team in self.teams:
            units = team["units"]
            if "write" in units.values() or units.get("repo.pulls") == "read":
                found += team["members"]
        return list(dict.fromkeys([*found, *([] if self.is_org else [self.owner])]))

    def has_branch(self, name):
        return name in self.branches if self.git is None else self.commit_of(name) != NOTHING

    def commit_of(self, branch):
        """The commit of a branch; NOTHING if there is no such branch or no repository."""
        if self.git is None:
            return NOTHING
        argv = ["git", "--git-dir", str(self.git), "rev-parse", "--verify", "-q", f"refs/heads/{branch}"]
        found = subprocess.run(argv, capture_output=True, text=True, check=False)
        return found.stdout.strip() or NOTHING

    def find(self, number):
        return self.issues.get(int(number))

    # --- labels -------------------------------------------------------------------------------------------------

    def label(self, name, color="ededed", description="", exclusive=False):
        """A new label.  models/issues/label.go checks no name: two labels may have the same."""
        made = {"id": next(self.ids), "name": name, "color": color, "description": description, "exclusive": exclusive}
        self.labels[made["id"]] = made
        return made

    def known_label(self, name):
        found = (one for one in self.labels.values() if one["name"] == name)
        return next(found, None) or self.label(name)

    def any_label(self, number):
        return self.labels.get(number) or self.org_labels.get(number)

    def put_label(self, issue, label, actor):
        """models/issues/issue_label.go: an exclusive label takes the others of its scope away."""
        if label["id"] in issue["labels"]:
            return
        if label["exclusive"] and "/" in label["name"]:
            scope = label["name"].rpartition("/")[0]
            for number in list(issue["labels"]):
                other = self.any_label(number)
                if other["exclusive"] and other["name"].rpartition("/")[0] == scope:
                    self.drop_label(issue, other, actor)
        issue["labels"].append(label["id"])
        self.event(issue, "label", actor, label=label, body="1")

    def drop_label(self, issue, label, actor):
        if label["id"] in issue["labels"]:
            issue["labels"].remove(label["id"])
            self.event(issue, "label", actor, label=label, body="")

    def label_names(self, issue):
        return [self.any_label(number)["name"] for number in issue["labels"]]

    # --- issues -------------------------------------------------------------------------------------------------

    def issue(self, title, body, user, labels=(), assignees=(), state="open", pull=None):
        self.number += 1
        issue = {
            "id": next(self.ids),
            "number": self.number,
            "title": cut_title(title),
            "body": body or "",
            "user": user,
            "labels": [],
            "assignees": [],
            "state": state,
            "created_at": now(),
            "updated_at": now(),
            "timeline": [],
            "is_locked": False,
            "pull": pull,
        }
        self.issues[self.number] = issue
        for name in labels:
            self.put_label(issue, self.known_label(name), user)
        self.assign(issue, user, assignees)
        return issue

    def event(self, issue, kind, actor, **more):
        """One row of the timeline; it moves `updated_at` of the issue (models/issues/comment.go)."""
        made = {"id": next(self.ids), "type": kind, "user": actor, "body": "", "created_at": now(), **more}
        made |= {"updated_at": made["created_at"], "issue": issue["number"]}
        issue["timeline"].append(made)
        issue["updated_at"] = now()
        return made

    def assign(self, issue, actor, logins):
        """Assign the issue to these people and unassign the others."""
        before, issue["assignees"] = issue["assignees"], list(logins)
        for login in logins:
            if login not in before:
                self.event(issue, "assignees", actor, assignee=login)
        for login in before:
            if login not in logins:
                self.event(issue, "assignees", actor, assignee=login, removed_assignee=True)

    def set_state(self, issue, actor, state):
        if issue["state"] != state:
            issue["state"] = state
            self.event(issue, "close" if state == "closed" else "reopen", actor)

    def edit(self, issue, actor, title=None, body=None):
        """Somebody edits the issue.  A new text leaves no row in the timeline, only another `updated_at`."""
        if title is not None and cut_title(title) != issue["title"]:
            old, issue["title"] = issue["title"], cut_title(title)
            self.event(issue, "change_title", actor, old_title=old, new_title=issue["title"])
        if body is not None and body != issue["body"]:
            issue.update(body=body, updated_at=now())
        if issue["pull"]:
            self._refer(issue, actor)

    def comment(self, number, body, user):
        made = self.event(self.issues[int(number)], "comment", user, body=body)
        self.comments[made["id"]] = made
        return made

    def edit_comment(self, comment, body):
        """models/issues/comment.go `UpdateComment`: `updated_at` of the issue stays."""
        comment.update(body=body, updated_at=now())

    def remove_comment(self, number):
        comment = self.comments.pop(number)
        issue = self.issues[comment["issue"]]
        issue["timeline"].remove(comment)

    # --- pull requests --------------------------------------------------------------------------------------------

    def pull(self, title, body, user, head, base, *, fork=None, sha=NOTHING):
        pull = {"head": head, "base": base, "fork": fork, "sha": sha, "merged_at": None, "reviewers": []}
        issue = self.issue(title, body, user, pull=pull)
        self._refer(issue, user)
        self._write_ref(issue)
        return issue

    def _refer(self, issue, actor):
        """models/issues/issue_xref.go: each issue that title or text of a pull request names gets a row about it."""
        named = {
            int(number) for number in re.findall(r"(?:^|[\s(\[])[#!]([0-9]+)\b", f"{issue['title']}\n{issue['body']}")
        }
        for number in sorted(named & set(self.issues) - {issue["number"]}):
            rows = self.issues[number]["timeline"]
            if not any(row["type"] == "pull_ref" and row["ref_issue"] is issue for row in rows):
                self.event(self.issues[number], "pull_ref", actor, ref_issue=issue)

    def review(self, number, body, user, state="COMMENT", lines=()):
        """A review with comments on lines: (path, line, text), a negative line for one that was removed."""
        issue = self.issues[int(number)]
        made = {"id": next(self.ids), "pull": int(number), "body": body, "user": user, "state": state}
        made |= {"commit_id": issue["pull"]["sha"], "created_at": now(), "updated_at": now(), "lines": []}
        self.reviews[made["id"]] = made
        for path, line, text in lines:
            one = self.event(issue, "code", user, body=text, review=made["id"], path=path, line=line, resolver=None)
            made["lines"].append(one)
        self.event(issue, "review", user, body=body, review=made["id"])
        return made

    def merge(self, number, actor, commits=()):
        """A person merges; returns the issues that the merge closes.  `commits` are messages of commits.

        services/pull/check.go refuses a draft, so the person takes the prefix off before.
        """
        pull = self.issues[int(number)]
        self.edit(pull, actor, title=without_draft(pull["title"]))
        pull["pull"]["merged_at"] = now()
        pull["state"] = "closed"
        self.event(pull, "merge_pull", actor)
        texts = [pull["title"], pull["body"], *(one["body"] for one in pull["timeline"] if one["type"] == "comment")]
        closed = set().union(*(forgejo_closes(text, self.address, self.full_name) for text in texts))
        if pull["pull"]["base"] == self.default_branch:
            found = (forgejo_closes(text, self.address, self.full_name, is_markdown=False) for text in commits)
            closed |= set().union(*found)
        closed &= {one for one, issue in self.issues.items() if issue["pull"] is None and issue["state"] == "open"}
        for one in closed:
            self.set_state(self.issues[one], actor, "closed")
        return closed

    def branch_removed(self, branch, actor):
        """services/pull/pull.go `CloseBranchPulls`: pull requests from and onto a removed branch are closed."""
        self.branches.discard(branch)
        for issue in self.issues.values():
            pull = issue["pull"]
            if pull and issue["state"] == "open" and branch in (pull["base"], None if pull["fork"] else pull["head"]):
                self.set_state(issue, actor, "closed")

    def pushed(self, branch, before, after, actor, bases, *, forced=False):
        """services/pull: a push moves the head of each open pull request from the branch, and leaves a row
        `pull_push`, whose text is JSON.  `bases` are the repositories with pull requests."""
        for base in bases:
            for issue in base.issues.values():
                pull = issue["pull"]
                if pull is None or issue["state"] != "open" or pull["head"] != branch:
                    continue
                if (pull["fork"] or base) is not self or pull["sha"] == after:
                    continue
                pull["sha"] = after
                commits = [before, after] if forced else [after]
                base.event(issue, "pull_push", actor, body=json.dumps({"is_force_push": forced, "commit_ids": commits}))
                base._write_ref(issue)

    def _write_ref(self, issue):
        """The ref `refs/pull/N/head` in the repository."""
        commit = issue["pull"]["sha"]
        if self.git is not None and commit != NOTHING:
            argv = ["git", "--git-dir", str(self.git), "update-ref", f"refs/pull/{issue['number']}/head", commit]
            subprocess.run(argv, check=True)

    def look_at_git(self, actor, bases):
        """Notice pushes and removed branches in the repository, as the server's hooks do."""
        if self.git is None:
            return
        for issue in list(self.issues.values()):
            pull = issue["pull"]
            if pull is None or issue["state"] != "open" or pull["fork"]:
                continue
            commit = self.commit_of(pull["head"])
            if commit == NOTHING:
                self.branch_removed(pull["head"], actor)
            elif commit != pull["sha"]:
                self.pushed(pull["head"], pull["sha"], commit, actor, bases)

    def rung(self, own):
        """The people who were notified by the account's texts."""
        texts = [one["body"] for one in self.comments.values() if one["user"] == own]
        texts += [one["body"] for one in self.issues.values() if one["user"] == own]
        return set().union(*map(rung, texts)) - {own}


class State:
    """All data.  `lock` is held while a request is handled and while a test changes something in between."""

    def __init__(self, address):
        self.address = address
        self.lock = threading.RLock()
        self.ids = count(1000)
        self.repos = {}  # folded full name → Repo
        self.old_names = {}  # folded old full name → Repo
        self.users = {}  # login → id

    def repo(self, owner, name, **more):
        made = Repo(next(self.ids), owner, name, self.ids, **more)
        made.address = self.address
        self.repos[made.full_name.casefold()] = made
        return made

    def rename(self, repo, owner, name):
        self.old_names[repo.full_name.casefold()] = repo
        del self.repos[repo.full_name.casefold()]
        repo.owner, repo.name = owner, name
        self.repos[repo.full_name.casefold()] = repo

    def push(self, repo, branch, commit, actor, *, before=NOTHING, forced=False):
        """Somebody pushes a commit to a branch."""
        repo.branches.add(branch)
        repo.pushed(branch, before, commit, actor, self.repos.values(), forced=forced)

    def user_id(self, login):
        return self.users.setdefault(login, 100 + len(self.users))
