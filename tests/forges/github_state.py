"""The data of our loopback GitHub (repositories, issues, comments, pull requests, people) and its JSON forms.

Time comes from `agent.clock`, in whole seconds like GitHub's.
"""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path  # noqa: TC003 - a dataclass needs it

from agent import clock
from forges.github_checks import Checks
from forges.github_lifecycle import Lifecycle
from forges.github_shapes import make
from forges.host_rules import rung

NOTHING = "0" * 40
"""The hash of no commit."""
PLAIN_EVENTS = (
    *("closed", "reopened", "merged", "head_ref_deleted", "base_ref_deleted", "base_ref_changed"),
    "automatic_base_change_succeeded",
)
"""Events of an issue without further fields (docs.github.com/en/rest/using-the-rest-api/issue-event-types)."""


def now():
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Repo(Lifecycle):
    id: int
    owner: str
    name: str
    base: str
    clone_url: str
    ids: count
    people: dict = field(default_factory=dict)  # login → permission
    labels: dict = field(default_factory=dict)  # folded name → label
    issues: dict = field(default_factory=dict)  # number → issue, pull requests among them
    branches: set = field(default_factory=lambda: {"main"})
    comments: dict = field(default_factory=dict)  # id → comment (of issues)
    review_comments: dict = field(default_factory=dict)
    reviews: dict = field(default_factory=dict)
    moved: dict = field(default_factory=dict)  # number → (repo, number): transferred issues
    deleted: set = field(default_factory=set)
    archived: bool = False
    has_issues: bool = True
    may_push: bool = True
    drafts: bool = True
    default_branch: str = "main"
    number: int = 0
    pushed_at: str = ""
    pushes: list = field(default_factory=list)  # one for each push, oldest first
    gone: bool = False  # the repository was removed, or the token cannot see it
    git: Path | None = None  # a bare repository, whose branches are then used

    delete_on_merge: bool = False  # GitHub removes the branch of a merged pull request
    tips: dict = field(default_factory=dict)  # branch → commit, at the last look
    made: set = field(default_factory=set)  # trees and commits that the Git database API has made

    def __post_init__(self):
        self.checks = Checks(self)

    @staticmethod
    def moment():
        return now()

    def has_commit(self, sha):
        argv = ["git", "--git-dir", str(self.git), "cat-file", "-e", f"{sha}^{{commit}}"]
        return subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 0

    def has_branch(self, name):
        if self.git is None:
            return name in self.branches
        found = subprocess.run(
            ["git", "--git-dir", str(self.git), "show-ref", "--quiet", "--verify", f"refs/heads/{name}"]
        )
        return found.returncode == 0

    def commit_of(self, branch):
        """The commit of a branch of the repository; NOTHING if there is no repository."""
        if self.git is None:
            return NOTHING
        argv = ["git", "--git-dir", str(self.git), "rev-parse", f"refs/heads/{branch}"]
        return subprocess.check_output(argv, text=True).strip()

    @property
    def full_name(self):
        return f"{self.owner}/{self.name}"

    @property
    def url(self):
        return f"{self.base}/repos/{self.full_name}"

    # --- what people and the API do ---------------------------------------------------------------------------

    def label(self, name, color="ededed", description=None):
        return self.labels.setdefault(
            name.casefold(), {"id": next(self.ids), "name": name, "color": color, "description": description}
        )

    def issue(self, title, body, user, labels=(), assignees=(), state="open", pull=None):
        self.number += 1
        issue = {
            "id": next(self.ids),
            "number": self.number,
            "title": title,
            "body": body,
            "user": user,
            "labels": [],
            "assignees": [],
            "state": state,
            "created_at": now(),
            "updated_at": now(),
            "events": [],
            "pull": pull,
        }
        self.issues[self.number] = issue
        for name in labels:
            self.put_label(issue, name, user)
        self.assign(issue, user, assignees)
        return issue

    def assign(self, issue, actor, logins):
        """Assign the issue to these people and unassign the others."""
        before = issue.get("assignees", [])
        issue["assignees"] = list(logins)
        for name, people in (
            ("assigned", [one for one in logins if one not in before]),
            ("unassigned", [one for one in before if one not in logins]),
        ):
            for login in people:
                self.event(issue, name, actor, assignee=login, assigner=actor)

    def event(self, issue, name, actor, **more):
        issue["events"].append({"id": next(self.ids), "event": name, "actor": actor, "created_at": now(), **more})
        issue["updated_at"] = now()

    def put_label(self, issue, name, actor):
        label = self.label(name)
        if label["name"] not in issue["labels"]:
            issue["labels"].append(label["name"])
            self.event(issue, "labeled", actor, label=label["name"])

    def drop_label(self, issue, name, actor):
        found = next((one for one in issue["labels"] if one.casefold() == name.casefold()), None)
        if found is None:
            return False
        issue["labels"].remove(found)
        self.event(issue, "unlabeled", actor, label=found)
        return True

    def edit(self, issue, actor, title=None, body=None):
        """Somebody edits the issue's own title or text."""
        if title is not None and title != issue["title"]:
            self.event(issue, "renamed", actor, rename={"from": issue["title"], "to": title})
            issue["title"] = title
        if body is not None:
            issue["body"] = body
            issue.setdefault("edits", []).append((now(), actor))
        issue["updated_at"] = now()

    def comment(self, number, body, user):
        made = {
            "id": next(self.ids),
            "issue": number,
            "body": body,
            "user": user,
            "created_at": now(),
            "updated_at": now(),
        }
        self.comments[made["id"]] = made
        self.issues[number]["updated_at"] = now()
        return made

    def review_comment(self, number, body, user, path, line, reply_to=None, *, start=None, side="RIGHT", hunk="@@ @@"):
        """A comment on a line of the change, or on the lines from `start`; `side` LEFT is the text before it."""
        made = {
            "start": start,
            "side": side,
            "hunk": hunk,
            "commit": self.issues[number]["pull"]["sha"],
            "id": next(self.ids),
            "pull": number,
            "body": body,
            "user": user,
            "path": path,
            "line": line,
            "reply_to": reply_to,
            "created_at": now(),
            "updated_at": now(),
        }
        self.review_comments[made["id"]] = made
        self.issues[number]["updated_at"] = now()
        return made

    def review(self, number, body, user, state="COMMENTED"):
        """A review; GitHub lets nobody approve or request changes on a pull request of their own:
        https://docs.github.com/en/pull-requests/collaborating-with-pull-requests/reviewing-changes-in-pull-requests
        ("About pull request reviews")."""
        if user == self.issues[number]["user"] and state in ("APPROVED", "CHANGES_REQUESTED"):
            raise ValueError("Review Can not request changes on your own pull request")
        made = {"id": next(self.ids), "pull": number, "body": body, "user": user, "state": state, "created_at": now()}
        made["commit_id"] = self.issues[number]["pull"]["sha"]  # the head at the time of the review
        self.reviews[made["id"]] = made
        issue = self.issues[number]  # who has reviewed is asked no more
        issue["reviewers"] = [one for one in issue.get("reviewers", ()) if one != user]
        issue["updated_at"] = now()
        return made

    def pull(self, title, body, user, head, base, draft, fork=None, sha=NOTHING):
        pull = {"head": head, "base": base, "draft": draft, "merged_at": None, "fork": fork, "sha": sha}
        return self.issue(title, body, user, pull=pull)

    def rung(self, own):
        """The people who were notified by the account's texts."""
        texts = [one["body"] for one in self.comments.values() if one["user"] == own]
        texts += [one["body"] for one in self.issues.values() if one["user"] == own]
        return set().union(*map(rung, texts)) - {own}


class State:
    """All data.  `lock` is held while a request is handled and while a test changes something in between."""

    def __init__(self, base):
        self.base = base
        self.lock = threading.RLock()
        self.ids = count(1000)
        self.repos = {}  # folded full name → Repo
        self.old_names = {}  # folded old full name → Repo
        self.bots = set()

    def repo(self, owner, name, clone_url=None):
        made = Repo(next(self.ids), owner, name, self.base, clone_url or f"{self.base}/{owner}/{name}.git", self.ids)
        made.pushed_at = (clock.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")  # a fork has its parent's
        self.repos[made.full_name.casefold()] = made
        return made

    def push(self, repo, branch, commit, actor, *, forced=False, ago=0):
        """Somebody pushes a commit to a branch, `ago` seconds before now.

        GitHub itself then moves the head of each open pull request from this branch, with its ref `refs/pull/N/head`;
        a push that is not a fast-forward also makes the event `head_ref_force_pushed` (docs.github.com, "Issue event
        types").
        """
        when = (clock.now() - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ref = f"refs/heads/{branch}"
        before = next((one["after"] for one in reversed(repo.pushes) if one["ref"] == ref), NOTHING)
        kind = "branch_creation" if before == NOTHING else "force_push" if forced else "push"
        repo.pushes.append(
            {
                "id": next(self.ids),
                "node_id": "PSH_1",
                "before": before,
                "after": commit,
                "ref": ref,
                "timestamp": when,
                "activity_type": kind,
                "actor": actor,
            }
        )
        repo.pushed_at = when
        for base in self.repos.values():
            for issue in base.issues.values():
                pull = issue["pull"]
                if pull is None or issue["state"] != "open" or pull["head"] != branch:
                    continue
                if (pull["fork"] or base) is not repo:
                    continue
                pull["sha"], issue["updated_at"] = commit, now()
                if kind == "force_push":
                    base.event(issue, "head_ref_force_pushed", actor, commit_id=commit)
                if base.git is not None:
                    argv = [
                        "git",
                        "--git-dir",
                        str(base.git),
                        "update-ref",
                        f"refs/pull/{issue['number']}/head",
                        commit,
                    ]
                    subprocess.run(argv, check=True)

    def rename(self, repo, owner, name):
        self.old_names[repo.full_name.casefold()] = repo
        del self.repos[repo.full_name.casefold()]
        repo.owner, repo.name = owner, name
        self.repos[repo.full_name.casefold()] = repo

    # --- how it is shown --------------------------------------------------------------------------------------

    def user(self, login, schema="simple-user"):
        if login is None:
            return None
        kind = "Bot" if login in self.bots or login.endswith("[bot]") else "User"
        address = f"{self.base}/users/{login}"
        number = abs(hash(login)) % 10**9
        return make(schema, login=login, id=number, node_id=f"U_{login}", type=kind, url=address, site_admin=False)

    def show_label(self, repo, name):
        label = repo.label(name)
        return make("label", **label, url=f"{repo.url}/labels/x", default=False, node_id=f"LA_{label['id']}")

    def show_repo(self, repo, schema="full-repository"):
        return make(
            schema,
            id=repo.id,
            name=repo.name,
            full_name=repo.full_name,
            owner=self.user(repo.owner),
            private=True,
            url=repo.url,
            html_url=f"{self.base}/{repo.full_name}",
            clone_url=repo.clone_url,
            default_branch=repo.default_branch,
            archived=repo.archived,
            pushed_at=repo.pushed_at,
            has_issues=repo.has_issues,
            permissions={"admin": False, "maintain": False, "push": repo.may_push, "triage": True, "pull": True},
        )

    def show_issue(self, repo, issue, schema="issue"):
        url = f"{repo.url}/issues/{issue['number']}"
        more = {}
        if issue["pull"]:
            address = f"{repo.url}/pulls/{issue['number']}"
            more["pull_request"] = {"url": address, "html_url": address, "diff_url": address, "patch_url": address}
        if schema != "issue":
            more["score"] = 1.0
        people = [self.user(login) for login in issue["assignees"]]
        return make(
            schema,
            id=issue["id"],
            node_id=f"I_{issue['id']}",
            number=issue["number"],
            title=issue["title"],
            body=issue["body"],
            user=self.user(issue["user"]),
            labels=[self.show_label(repo, name) for name in issue["labels"]],
            assignee=people[0] if people else None,
            assignees=people,
            state=issue["state"],
            locked=False,
            comments=sum(one["issue"] == issue["number"] for one in repo.comments.values()),
            created_at=issue["created_at"],
            updated_at=issue["updated_at"],
            closed_at=issue.get("closed_at"),
            state_reason=issue.get("state_reason"),
            **({"closed_by": self.user(issue.get("closed_by"))} if schema == "issue" else {}),
            author_association="NONE",
            url=url,
            repository_url=repo.url,
            html_url=f"{self.base}/{repo.full_name}/issues/{issue['number']}",
            **more,
        )

    def show_comment(self, repo, one):
        return make(
            "issue-comment",
            id=one["id"],
            body=one["body"],
            user=self.user(one["user"]),
            created_at=one["created_at"],
            updated_at=one["updated_at"],
            url=f"{repo.url}/issues/comments/{one['id']}",
            issue_url=f"{repo.url}/issues/{one['issue']}",
            html_url=f"{self.base}/{repo.full_name}/issues/{one['issue']}#issuecomment-{one['id']}",
        )

    def show_review_comment(self, repo, one):
        more = {"in_reply_to_id": one["reply_to"]} if one["reply_to"] else {}
        return make(
            "pull-request-review-comment",
            id=one["id"],
            body=one["body"],
            user=self.user(one["user"]),
            path=one["path"],
            line=one["line"],
            original_line=one["line"] or 12,
            start_line=one["start"],
            original_start_line=one["start"],
            start_side=one["side"] if one["start"] else None,
            side=one["side"],
            diff_hunk=one["hunk"],
            commit_id=one["commit"],
            original_commit_id=one["commit"],
            html_url=f"{self.base}/{repo.full_name}/pull/{one['pull']}#discussion_r{one['id']}",
            created_at=one["created_at"],
            updated_at=one["updated_at"],
            pull_request_url=f"{repo.url}/pulls/{one['pull']}",
            **more,
        )

    def show_review(self, repo, one):
        return make(
            "pull-request-review",
            id=one["id"],
            node_id=f"PRR_{one['id']}",
            body=one["body"],
            user=self.user(one["user"]),
            state=one["state"],
            submitted_at=one["created_at"],
            commit_id=one["commit_id"],
            pull_request_url=f"{repo.url}/pulls/{one['pull']}",
        )

    def show_event(self, repo, one):
        name = {"labeled": "labeled-issue-event", "unlabeled": "unlabeled-issue-event"}.get(one["event"])
        if one["event"] in PLAIN_EVENTS:
            return make(
                "state-change-issue-event",
                id=one["id"],
                event=one["event"],
                actor=self.user(one["actor"]),
                created_at=one["created_at"],
                commit_id=one.get("commit_id"),
                url=f"{repo.url}/issues/events/{one['id']}",
                performed_via_github_app=None,
            )
        more = {}
        if name is not None:
            more["label"] = {"name": one["label"], "color": repo.label(one["label"])["color"]}
        else:
            name = f"{one['event']}-issue-event"
        if one["event"] == "head_ref_force_pushed":
            name, more["commit_id"] = "issue-event", one["commit_id"]
        elif one["event"] == "transferred":  # "Issue event types", with no properties of its own
            name = "issue-event"
        elif one["event"] == "renamed":
            more["rename"] = one["rename"]
        elif "assignee" in one:
            more = {"assignee": self.user(one["assignee"]), "assigner": self.user(one["assigner"])}
        return make(
            name,
            id=one["id"],
            event=one["event"],
            actor=self.user(one["actor"]),
            created_at=one["created_at"],
            url=f"{repo.url}/issues/events/{one['id']}",
            performed_via_github_app=None,
            **more,
        )

    def show_pull(self, repo, issue, schema="pull-request"):
        pull, number = issue["pull"], issue["number"]
        fork = pull["fork"]

        def side(ref, of):
            made = make(schema)["head"] if of is None else make(schema)["base"]
            shown = None if of is None or of.gone else self.show_repo(of, "repository")
            owner = of.owner if of is not None else None
            return made | {
                "label": f"{owner}:{ref}",
                "ref": ref,
                "sha": pull["sha"] if ref == pull["head"] else repo.tips.get(ref, NOTHING),
                "repo": shown,
                "user": self.user(owner) if owner else None,
            }

        return make(
            schema,
            id=issue["id"],
            node_id=f"PR_{issue['id']}",
            number=number,
            title=issue["title"],
            body=issue["body"],
            user=self.user(issue["user"]),
            labels=[self.show_label(repo, name) for name in issue["labels"]],
            state=issue["state"],
            draft=pull["draft"],
            head=side(pull["head"], fork if fork is not None else repo),
            base=side(pull["base"], repo),
            merged_at=pull["merged_at"],
            created_at=issue["created_at"],
            updated_at=issue["updated_at"],
            url=f"{repo.url}/pulls/{number}",
            html_url=f"{self.base}/{repo.full_name}/pull/{number}",
            closed_at=issue.get("closed_at"),
            requested_reviewers=[self.user(one) for one in issue.get("reviewers", ())],
            auto_merge=self._show_auto_merge(issue),
            **(self._show_merge(repo, issue) if schema == "pull-request" else {}),
        )

    def _show_auto_merge(self, issue):
        who = issue["pull"].get("auto_merge")
        if who is None or issue["state"] != "open":
            return None
        return make("auto-merge", enabled_by=self.user(who), merge_method="merge")

    def _show_merge(self, repo, issue):
        """What only the answer about a single pull request has."""
        pull, (mergeable, state) = issue["pull"], repo.mergeable(issue)
        merged = pull["merged_at"] is not None
        by = self.user(pull["merged_by"], "nullable-simple-user") if pull.get("merged_by") else None
        return {"merged": merged, "mergeable": mergeable, "mergeable_state": state, "merged_by": by}
