"""A project on our loopback GitLab, and people who work in it (see `contract/forge_places.py`).

The host has a sub-path and a port, and the project is in a subgroup, so these tests cover more than gitlab.com needs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

from pydantic import SecretStr

from agent.config.commits import Branch
from agent.config.forge_sections import GitLab as Section
from agent.forge.gitlab.forge import GitLabForge
from agent.values import TaskKey
from forges.gitlab_server import GitLab
from forges.gitlab_state import DEVELOPER

TOKEN = "glpat-" + "t" * 20
PROJECT = "acme/tools/web"


def gitlab_settings(root, base_url, *more, **changes):
    """The part of the settings that the adapter reads: one section `gitlab`, and optionally more."""
    section = {"base_url": base_url, "token": SecretStr(TOKEN), "projects": (PROJECT,)} | changes
    sections = (section, *({"base_url": base_url, "token": SecretStr(TOKEN)} | one for one in more))
    return SimpleNamespace(
        root=root,
        base_dir=root / "contexts",
        branch=Branch(),
        gitlab=tuple(Section.model_validate(one) for one in sections),
    )


class GitLabPlace:
    """People with a browser."""

    lacks: ClassVar[dict[str, str]] = {}
    own, is_bot = "makimono", True  # the token's account

    def __init__(self, root, *, tls=None, **changes):
        self.root, self.tls = root, tls
        self.changes = changes
        self.start()
        self.server.user(self.own, token=TOKEN, bot=self.is_bot)
        self.project = self.server.project(PROJECT, members={self.own: DEVELOPER, "alice": DEVELOPER})
        self.forge = self.again()

    def start(self):
        self.server = GitLab("/gitlab", tls=self.tls)
        self.address = self.server.url

    def again(self, *more, **changes):
        """A new adapter, as of another process."""
        settings = gitlab_settings(self.root, self.address, *more, **(self.changes | changes))
        return GitLabForge.from_settings(settings)[0]

    def close(self):
        self.forge.close()
        self.server.close()

    def person(self, name, level=DEVELOPER):
        user = self.server.user(name)
        self.project["members"].setdefault(user["id"], level)
        return name

    def issue(
        self, title="Fix it", body="It is broken.\n", labels=("coding agent",), author="alice", state="open", base=None
    ):
        text = (body or None) if base is None else f"{body}\nbase: {base}\n"
        made = self.server.issue(self.project, self.person(author), title=title, description=text, labels=labels)
        if state == "closed":
            self.server.state(made, "closed")
        return self.key(made)

    def key(self, item, project=PROJECT):
        owner, _, name = project.rpartition("/")
        kind = "merge_request" if item["kind"] == "merge_requests" else "issue"
        return TaskKey("gitlab", owner, name, kind, str(item["iid"]), self.forge.instance)

    def item(self, key):
        kind = "merge_requests" if key.task_type == "merge_request" else "issues"
        return self.project[kind][int(key.task_id)]

    def put_labels(self, key, *labels):
        item = self.item(key)
        gone = [name for name in item["labels"] if name not in labels]
        self.server.label(item, "alice", add=labels, remove=gone)

    def labels(self, key):
        return sorted(self.item(key)["labels"])

    def assign(self, key, actor, *logins):
        """Assign the issue to these accounts, and to nobody else."""
        self.server.assign(self.item(key), self.person(actor), logins)

    def close_issue(self, key):
        self.server.state(self.item(key), "closed")

    def open_issue(self, key):
        self.server.state(self.item(key), "opened")

    def remove_issue(self, key):
        del self.project["issues"][int(key.task_id)]

    def comment(self, key, body, author="alice"):
        return str(self.server.note(self.item(key), self.person(author), body)["id"])

    def edit_comment(self, key, number, body):
        self.server.edit(self.item(key), number, body)

    def remove_comment(self, key, number):
        item = self.item(key)
        item["notes"] = [note for note in item["notes"] if note["id"] != int(number)]

    def comments(self, key):
        """(author, body) of every comment, oldest first."""
        return [(note["author"]["username"], note["body"]) for note in self.item(key)["notes"] if not note["system"]]

    def said_at(self, pull, number):
        """(author, body) of what stands in the discussion of a note."""
        notes = self.project["merge_requests"][int(pull.id)]["notes"]
        thread = next(one["thread"] for one in notes if str(one["id"]) == number)
        return [(one["author"]["username"], one["body"]) for one in notes if one["thread"] == thread]

    def seen(self, key, number=None):
        """The awards of the account to the issue, or to a note."""
        items = [*self.project["issues"].values(), *self.project["merge_requests"].values()]
        notes = [note for item in items for note in item["notes"]]
        found = self.item(key) if number is None else next(one for one in notes if str(one["id"]) == number)
        return [one["name"] for one in found.get("awards", []) if one["user"]["username"] == self.own]

    def said_on(self, pull, body, author="alice", **more):
        """A note of a merge request; it returns the id as the adapter has it."""
        item = self.project["merge_requests"][int(pull.id)]
        return str(self.server.note(item, self.person(author), body, **more)["id"])

    def line_comment(self, pull, body, path="a.py", line=7, author="alice"):
        return self.said_on(pull, body, author, position={"new_path": path, "old_path": path, "new_line": line})

    def request_changes(self, pull, body, author="alice"):
        """A review that requests changes; a text is a note of its own."""
        item = self.project["merge_requests"][int(pull.id)]
        if body:
            self.server.note(item, self.person(author), body)
        return str(self.server.request_changes(item, self.person(author))["id"])

    def branch(self, name):
        """Push a branch."""
        self.server.push(self.project, name)

    def checked_pull(self, commit):
        """The address of a merge request with this head."""
        item = self.server.merge_request(self.project, self.person("alice"), source="fix", sha=commit)
        return f"{self.server.url}/{self.project['path']}/-/merge_requests/{item['iid']}"

    def ci(self, commit, name, state, log=""):
        """A job of CI on a commit: passed, failed, skipped or pending."""
        known = {"passed": "success", "failed": "failed", "skipped": "skipped", "pending": "running"}
        found = [one for one in self.project.get("pipelines", {}).values() if one["sha"] == commit]
        pipeline = found[-1] if found else self.server.pipeline(self.project, commit, "fix")
        self.server.job(pipeline, name, known[state], trace=log)

    def close_pull(self, pull):
        self.server.state(self.project["merge_requests"][int(pull.id)], "closed")

    def pull_body(self, pull):
        return self.project["merge_requests"][int(pull.id)]["description"]

    def pulls(self):
        return len(self.project["merge_requests"])
