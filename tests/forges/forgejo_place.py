"""A repository on our loopback Forgejo, and people who work in it (see `contract/forge_places.py`).

The host has a sub-path and a port, and calls itself by another address, so these tests cover more than a usual host
needs.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import SecretStr

from agent.config import settings_of
from agent.config.forge_sections import Forgejo
from agent.forge.forgejo.forge import ForgejoForge
from agent.forge.markers import SIGNATURE
from agent.values import TaskKey
from forges.forgejo_routes import set_status
from forges.forgejo_server import ROOT_URL, TOKEN, ForgejoServer


def forgejo_settings(root, **changes):
    """The part of the settings that the adapter reads: one section `forgejo`."""
    section = {"token": SecretStr(TOKEN), "projects": ("acme/web",)} | changes
    settings = settings_of({"context_storage": {"base_dir": str(root / "contexts")}})
    return settings.model_copy(update={"forgejo": (Forgejo.model_validate(section),)})


class ForgejoPlace:
    """People with a browser."""

    lacks: ClassVar[dict[str, str]] = {"logs": "Forgejo's API has no logs of jobs"}
    prefix, root_url = "/git", ROOT_URL
    is_org = True
    own = "makimono"  # the login of the token's account

    def __init__(self, root, peer=None, **changes):
        self.root = root
        self.changes = changes
        self.server = ForgejoServer(self.own, prefix=self.prefix, root=self.root_url).__enter__()
        self.address = self.server.base
        self.repo = self.server.state.repo("acme", "web", is_org=self.is_org)
        self.repo.people[self.own] = "write"
        self.server.state.user_id(self.own)
        self.forge = self.again()

    def again(self, **changes):
        """A new adapter, as of another process."""
        self.settings = forgejo_settings(self.root, **({"base_url": self.address} | self.changes | changes))
        return ForgejoForge.from_settings(self.settings)[0]

    def close(self):
        self.forge.close()
        self.server.__exit__()
        assert self.server.undocumented == []

    def person(self, name, level="write"):
        self.server.state.user_id(name)
        self.repo.people.setdefault(name, level)
        return name

    def issue(
        self, title="Fix it", body="It is broken.\n", labels=("coding agent",), author="alice", state="open", base=None
    ):
        text = (body or None) if base is None else f"{body}\nbase: {base}\n"
        with self.server.state.lock:
            made = self.repo.issue(title, text, self.person(author), labels, state=state)
        return self.key(made)

    def key(self, made):
        kind = "pull_request" if made["pull"] else "issue"
        return TaskKey("forgejo", "acme", "web", kind, str(made["number"]), self.forge.instance)

    def item(self, key):
        return self.repo.issues[int(key.task_id)]

    def put_labels(self, key, *labels):
        with self.server.state.lock:
            issue = self.item(key)
            for label in [self.repo.any_label(one) for one in issue["labels"]]:
                if label["name"] not in labels:
                    self.repo.drop_label(issue, label, "alice")
            for name in labels:
                self.repo.put_label(issue, self.repo.known_label(name), "alice")

    def labels(self, key):
        return sorted(self.repo.label_names(self.item(key)))

    def assign(self, key, actor, *logins):
        """Assign the issue to these accounts, and to nobody else."""
        self.repo.assign(self.item(key), self.person(actor), logins)

    def close_issue(self, key):
        self.repo.set_state(self.item(key), "alice", "closed")

    def open_issue(self, key):
        self.repo.set_state(self.item(key), "alice", "open")

    def remove_issue(self, key):
        del self.repo.issues[int(key.task_id)]

    def comment(self, key, body, author="alice"):
        return str(self.repo.comment(key.task_id, body, self.person(author))["id"])

    def edit_comment(self, _key, number, body):
        self.repo.edit_comment(self.repo.comments[int(number)], body)

    def remove_comment(self, _key, number):
        self.repo.remove_comment(int(number))

    def comments(self, key):
        """(author, body) of every comment, oldest first."""
        return [(one["user"], one["body"]) for one in self.item(key)["timeline"] if one["type"] == "comment"]

    def words(self, key):
        """`comments` without the visible line of the program."""
        return [(author, body.replace(f"\n\n<sub>{SIGNATURE}</sub>", "")) for author, body in self.comments(key)]

    def said_at(self, pull, _number):
        """(author, body) of what stands in the conversation."""
        timeline = self.repo.issues[int(pull.id)]["timeline"]
        return [(one["user"], one["body"]) for one in timeline if one["type"] == "comment"]

    def seen(self, key, number=None):
        """The reactions of the account to the issue, or to a comment."""
        found = self.item(key)
        if number is not None:
            lines = [one for review in self.repo.reviews.values() for one in review["lines"]]
            found = next((one for one in lines if f"r{one['id']}" == number), None) or self.repo.comments[int(number)]
        return [content for login, content in found.get("reactions", []) if login == self.own]

    def said_on(self, pull, body, author="alice"):
        """A comment in the conversation of a pull request; like the two below it returns the id as the adapter has it."""
        return str(self.repo.comment(pull.id, body, self.person(author))["id"])

    def line_comment(self, pull, body, path="a.py", line=7, author="alice"):
        return f"r{self.repo.review(pull.id, '', self.person(author), lines=[(path, line, body)])['lines'][0]['id']}"

    def review(self, pull, body, author="alice", state="REQUEST_CHANGES"):
        return f"v{self.repo.review(pull.id, body, self.person(author), state)['id']}"

    def branch(self, name):
        """Push a branch."""
        self.repo.branches.add(name)

    def checked_pull(self, _commit):
        """The address of a pull request with this head, as far as this host needs one to show the checks."""
        return ""

    def ci(self, commit, name, state, log=""):
        """A status of a commit: passed, failed, skipped or pending; the host shows no logs."""
        known = {"passed": "success", "failed": "failure", "skipped": "warning", "pending": "pending"}
        set_status(self.repo, commit, name, known[state], description=log.strip().rpartition("\n")[2])

    def close_pull(self, pull):
        self.repo.set_state(self.repo.issues[int(pull.id)], "alice", "closed")

    def pull_body(self, pull):
        return self.repo.issues[int(pull.id)]["body"]

    def pulls(self):
        return sum(issue["pull"] is not None for issue in self.repo.issues.values())
