"""A repository on our loopback GitHub, and people who work in it (see `contract/forge_places.py`)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import SecretStr

from agent.config import settings_of
from agent.config.forge_sections import GitHub
from agent.forge.github.forge import GitHubForge
from agent.forge.markers import SIGNATURE
from agent.values import TaskKey
from forges.github_server import GitHubServer
from forges.github_state import now

TOKEN = "ghp_" + "t" * 36


def github_settings(root, base_url, **changes):
    """The part of the settings that the adapter reads: one section `github`."""
    section = {"base_url": base_url, "token": SecretStr(TOKEN), "projects": ("acme/web",)} | changes
    settings = settings_of({"context_storage": {"base_dir": str(root / "contexts")}})
    return settings.model_copy(update={"github": (GitHub.model_validate(section),)})


class GitHubPlace:
    """People with a browser."""

    lacks: ClassVar[dict[str, str]] = {}
    own = "makimono"  # the login of the token's account
    peer = None  # a context manager of a folder: the program that runs for all tests of a session

    def __init__(self, root, peer=None, **changes):
        self.root = root
        self.changes = changes
        self.start(peer)
        self.forge = self.again()

    def start(self, peer):
        self.server = GitHubServer(self.own).__enter__()
        self.address = self.server.base
        self.repo = self.server.state.repo("acme", "web")
        self.repo.people[self.own] = "write"

    def again(self, **changes):
        """A new adapter, as of another process."""
        self.settings = github_settings(self.root, self.address, **(self.changes | changes))
        return GitHubForge.from_settings(self.settings)[0]

    def close(self):
        self.forge.close()
        self.server.__exit__()

    def person(self, name):
        self.repo.people.setdefault(name, "write")
        return name

    def issue(
        self, title="Fix it", body="It is broken.\n", labels=("coding agent",), author="alice", state="open", base=None
    ):
        text = (body or None) if base is None else f"{body}\nbase: {base}\n"
        with self.server.state.lock:
            made = self.repo.issue(title, text, self.person(author), labels, state=state)
        return TaskKey("github", "acme", "web", "issue", str(made["number"]), self.forge.instance)

    def _issue(self, key):
        return self.repo.issues[int(key.task_id)]

    def put_labels(self, key, *labels):
        issue = self._issue(key)
        for name in [one for one in issue["labels"] if one not in labels]:
            self.repo.drop_label(issue, name, "alice")
        for name in labels:
            self.repo.put_label(issue, name, "alice")

    def labels(self, key):
        return sorted(self._issue(key)["labels"])

    def assign(self, key, actor, *logins):
        """Assign the issue to these accounts, and to nobody else."""
        self.repo.assign(self._issue(key), self.person(actor), logins)

    def close_issue(self, key):
        self.repo.close(int(key.task_id), "alice")

    def open_issue(self, key):
        self.repo.reopen(int(key.task_id), "alice")

    def remove_issue(self, key):
        self.repo.deleted.add(int(key.task_id))

    def comment(self, key, body, author="alice"):
        return str(self.repo.comment(int(key.task_id), body, self.person(author))["id"])

    def edit_comment(self, key, number, body):
        self.repo.comments[int(number)].update(body=body, updated_at=now())

    def remove_comment(self, key, number):
        del self.repo.comments[int(number)]

    def comments(self, key):
        """(author, body) of every comment, oldest first."""
        return [(one["user"], one["body"]) for one in self.repo.comments.values() if one["issue"] == int(key.task_id)]

    def words(self, key):
        """`comments` without the visible line of the program."""
        return [(author, body.replace(f"\n\n<sub>{SIGNATURE}</sub>", "")) for author, body in self.comments(key)]

    def said_at(self, pull, number):
        """(author, body) of what stands in the thread of a comment on a line, else in the conversation."""
        if number.startswith("r"):
            first = int(number[1:])
            lines = self.repo.review_comments.values()
            return [(one["user"], one["body"]) for one in lines if first in (one["id"], one["reply_to"])]
        return [(one["user"], one["body"]) for one in self.repo.comments.values() if one["issue"] == int(pull.id)]

    def seen(self, key, number=None):
        """The reactions of the account to the issue, or to a comment."""
        kinds = {"r": self.repo.review_comments, "v": self.repo.reviews}
        found = self._issue(key)
        if number is not None:
            found = kinds.get(number[0], self.repo.comments)[int(number.lstrip("rv"))]
        return [one["content"] for one in found.get("reactions", []) if one["user"] == self.own]

    def said_on(self, pull, body, author="alice"):
        """A comment in the conversation of a pull request; like the two below it returns the id as the adapter has it."""
        return str(self.repo.comment(int(pull.id), body, self.person(author))["id"])

    def line_comment(self, pull, body, path="a.py", line=7, author="alice", **more):
        return f"r{self.repo.review_comment(int(pull.id), body, self.person(author), path, line, **more)['id']}"

    def review(self, pull, body, author="alice", state="CHANGES_REQUESTED"):
        return f"v{self.repo.review(int(pull.id), body, self.person(author), state)['id']}"

    def branch(self, name):
        """Push a branch."""
        self.repo.branches.add(name)

    def checked_pull(self, _commit):
        """The address of a pull request with this head, as far as this host needs one to show the checks."""
        return ""

    def ci(self, commit, name, state, log=""):
        """A job of CI on a commit: passed, failed, skipped or pending."""
        ended = {"passed": "success", "failed": "failure", "skipped": "skipped"}
        self.repo.checks.run(commit, name, ended.get(state), log=log)

    def close_pull(self, pull):
        self.repo.close(int(pull.id), "alice")

    def pull_body(self, pull):
        return self.repo.issues[int(pull.id)]["body"]

    def pulls(self):
        return sum(issue["pull"] is not None for issue in self.repo.issues.values())
