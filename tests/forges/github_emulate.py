"""The same people on `emulate`, an independent GitHub emulator (npm; one process for all tests, one repository per
test).

`LACKS` lists its missing features; the tests that need them run against our own loopback GitHub.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import count
from urllib.parse import quote

import requests
from ports import free_port

from agent.values import TaskKey
from forges.github_place import GitHubPlace
from forges.programs import EMULATE, node, running

PEOPLE = ("alice", "bob", "mallory", *(f"user{number}" for number in range(1, 13)))
LACKS = {
    "drafts": "emulate has no GraphQL, by which a draft becomes ready",
    "removal": "emulate cannot delete an issue",
}
_numbers = count(1)


@contextmanager
def emulate(folder, base_url=None):
    """The address of a running emulate, inside the block; `base_url` is its public address behind a proxy."""
    logins = ["acme", "makimono", *PEOPLE]
    seed = {
        "tokens": {f"ghp_{login}": {"login": login, "scopes": ["repo", "user"]} for login in logins},
        "github": {"users": [{"login": login, "name": login} for login in logins]},
    }
    file = folder / "seed.json"
    file.write_text(json.dumps(seed))
    port = free_port()
    argv = [*node(EMULATE), "start", "--service", "github", "--port", str(port), "--seed", str(file)]
    argv += ["--base-url", base_url] if base_url else []
    with running(argv, port, folder / "emulate.log"):
        yield f"http://localhost:{port}"


class GitHubEmulatePlace(GitHubPlace):
    """People who use the API with tokens of their own."""

    lacks = LACKS
    peer = staticmethod(emulate)

    def start(self, peer):
        self.address = peer
        self.name = f"web-{next(_numbers)}"
        self.changes = {"token": "ghp_makimono", "projects": (f"acme/{self.name}",)} | self.changes
        self.as_("acme", "POST", "/user/repos", {"name": self.name, "auto_init": True})
        for login in ("makimono", *PEOPLE):
            self.as_("acme", "PUT", f"{self.path}/collaborators/{login}", {"permission": "push"})
        for name in ("coding agent", "coding agent processing", "bug"):
            self.as_("acme", "POST", f"{self.path}/labels", {"name": name, "color": "ededed"})

    def close(self):
        self.forge.close()

    @property
    def path(self):
        return f"/repos/acme/{self.name}"

    def as_(self, login, verb, path, body=None, but="\0"):
        """Send a request as a person; returns the decoded answer.  `but` is an error that does not matter."""
        headers = {"Authorization": f"Bearer ghp_{login}"}
        answer = requests.request(verb, f"{self.address}{path}", json=body, headers=headers, timeout=30)
        assert answer.status_code < 300 or but in answer.text, answer.text
        return answer.json() if answer.content else None

    def issue(
        self, title="Fix it", body="It is broken.\n", labels=("coding agent",), author="alice", state="open", base=None
    ):
        text = (body or None) if base is None else f"{body}\nbase: {base}\n"
        self._labels_exist(labels)
        made = self.as_(author, "POST", f"{self.path}/issues", {"title": title, "body": text, "labels": list(labels)})
        key = TaskKey("github", "acme", self.name, "issue", str(made["number"]), self.forge.instance)
        if state == "closed":
            self.close_issue(key)
        return key

    def _labels_exist(self, labels):
        there = {label["name"] for label in self.as_("acme", "GET", f"{self.path}/labels?per_page=100")}
        for name in set(labels) - there:
            self.as_("acme", "POST", f"{self.path}/labels", {"name": name, "color": "ededed"})

    def put_labels(self, key, *labels):
        self._labels_exist(labels)
        self.as_("alice", "PUT", f"{self.path}/issues/{key.task_id}/labels", {"labels": list(labels)})

    def labels(self, key):
        return sorted(label["name"] for label in self.as_("alice", "GET", f"{self.path}/issues/{key.task_id}/labels"))

    def close_issue(self, key):
        self.as_("alice", "PATCH", f"{self.path}/issues/{key.task_id}", {"state": "closed"})

    def comment(self, key, body, author="alice"):
        return str(self.as_(author, "POST", f"{self.path}/issues/{key.task_id}/comments", {"body": body})["id"])

    def edit_comment(self, key, number, body):
        self.as_("alice", "PATCH", f"{self.path}/issues/comments/{number}", {"body": body})

    def remove_comment(self, key, number):
        self.as_("acme", "DELETE", f"{self.path}/issues/comments/{number}")

    def comments(self, key):
        found = self.as_("alice", "GET", f"{self.path}/issues/{key.task_id}/comments?per_page=100")
        return [(one["user"]["login"], one["body"]) for one in found]

    def branch(self, name):
        head = self.as_("acme", "GET", f"{self.path}/git/ref/heads/main")["object"]["sha"]
        self.as_(
            "acme", "POST", f"{self.path}/git/refs", {"ref": f"refs/heads/{name}", "sha": head}, but="already exists"
        )

    def close_pull(self, pull):
        self.as_("alice", "PATCH", f"{self.path}/pulls/{quote(pull.id)}", {"state": "closed"})

    def pull_body(self, pull):
        return self.as_("alice", "GET", f"{self.path}/pulls/{pull.id}")["body"]

    def pulls(self):
        return len(self.as_("alice", "GET", f"{self.path}/pulls?state=all&per_page=100"))
