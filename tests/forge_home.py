"""A home with issues on a forge: FlowHome's daemon, workers and model, people of `forges/*_place.py` with a browser,
and git over HTTP with a token.

There is one class per forge, with the same methods for the results of a run, so that a test runs on each of them
(`HOMES`).
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack
from dataclasses import dataclass

import yaml
from certificates import of_an_authority
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from flow_home import FlowHome, git
from forges.faults import CHANGE
from forges.forgejo_place import ForgejoPlace
from forges.forgejo_server import TOKEN as FORGEJO_TOKEN
from forges.forgejo_state import is_draft, without_draft
from forges.front import front
from forges.git_http import served, write_logins
from forges.github_emulate import GitHubEmulatePlace, emulate
from forges.github_place import TOKEN as GITHUB_TOKEN
from forges.github_place import GitHubPlace
from forges.gitlab_place import PROJECT, GitLabPlace
from forges.gitlab_place import TOKEN as GITLAB_TOKEN
from forges.local_place import LocalPlace

TASK = "Round the sum and not the prices"
OWN = "makimono"
OFTEN = "scheduling: {interval: 0.5, idle_interval: 0.5}\n"  # intervals of the polls, and of a running task's requests
KILL = """#!/bin/sh
# The worker of the branch that arrived, by the name of its process; once.
rm -f "$0"
read -r old new ref
for entry in /proc/[0-9]*; do
  case "$(tr '\\0' ' ' < "$entry/cmdline")" in
    "makimono: ${ref##*-}"*) kill -9 "${entry#/proc/}" && echo "$ref" >> killed ;;
  esac
done 2> /dev/null
"""


@dataclass(frozen=True)
class Pull:
    """A pull or merge request as people see it."""

    title: str
    body: str
    state: str
    draft: bool
    head: str
    base: str
    reviewers: tuple[str, ...]


class ForgeHome:
    """One project, and a person, alice, who may write to it."""

    source = project = token = git_user = base_url = ""
    account = OWN
    pull_name = "pull request"
    git_most = 0  # kilobytes of a request to git; 0 for any number

    def __init__(self, folder, plays, *, config=""):
        self.stack = ExitStack()
        self.flow = FlowHome(folder, plays, repos=(), config="")
        self.stack.callback(self.flow.close)
        self.people()
        logins = {self.git_user: self.token}
        address = self.stack.enter_context(served(folder / "http", folder / "repos", logins, self.git_most))
        self.repo = self.flow.repository(self.project)
        self.place = self.open(address)
        self.stack.callback(self.place.close)
        section = f"base_url: '{self.base_url}', {self.login()}, projects: [{self.project}]"
        self.configure(f"{self.source}: {{{section}}}\n{config}")

    def login(self):
        """The settings of the account's login in its section of the configuration."""
        return f"token: {self.token}"

    def configure(self, config):
        """Replace FlowHome's own source by that of this home."""
        text = self.flow.config.read_text().replace("task_sources: [local]", f"task_sources: [{self.source}]")
        text = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("local:"))
        self.flow.config.write_text(text + config)

    def people(self):
        """Set up everything that must exist before the repository's name is known."""

    def open(self, address):
        """The place, with git at `address`; sets `base_url`."""
        raise NotImplementedError

    def close(self):
        self.stack.close()

    # --- actions of people, and results of a run ---------------------------------------------------------------

    def issue(self, *labels, author="alice", waits=True):
        """Create an issue with the bot's label (unless not `waits`), and more labels."""
        return self.place.issue(TASK, "Please.\n", (*(["coding agent"] if waits else []), *labels), author)

    def stranger_says(self, key, body):
        """Write a comment as somebody without permission."""
        raise NotImplementedError

    def assign(self, key, *names):
        """alice assigns the issue to these people only."""
        raise NotImplementedError

    def labels(self, key):
        return self.place.labels(key)

    def relabel(self, key, remove=(), add=()):
        """A person removes and adds labels; the others stay."""
        kept = [name for name in self.labels(key) if name not in remove]
        self.place.put_labels(key, *kept, *add)

    def own(self, key, kind):
        """Own comments of an issue with a marker of this kind (progress, final), oldest first."""
        marked = re.compile(rf":{kind}(-[\d-]+)? -->")
        return [body for author, body in self.place.comments(key) if author == self.account and marked.search(body)]

    def pulls(self):
        """Every pull request, oldest first."""
        raise NotImplementedError

    def merge(self, pull):
        """A person merges a pull request, in git too; the host then does what it does by itself."""
        self.merged(pull)

    def merged(self, pull):
        """Mark it as merged at the forge."""
        raise NotImplementedError

    def close_pull(self, pull):
        """A person closes a pull request without a merge."""
        raise NotImplementedError

    def changes(self):
        """The changes at the forge by its API so far, in order, as text."""
        raise NotImplementedError

    def kill_after(self, number):
        """Kill the process that makes the change of this number, counted from 0, after the change and before the
        answer."""
        self.server.fault(CHANGE, "", after=True, cut=True, skip=number, call=self._kill)

    def killed(self):
        """Whether the kill has happened."""
        return not self.server.faults

    def _kill(self):
        os.kill(self.flow.worker(1) or self.flow.processes[-1].pid, signal.SIGKILL)

    def kill_after_push(self):
        """Kill the worker that pushes, after the branch has arrived and before the answer."""
        hook = self.repo / "hooks" / "post-receive"
        hook.write_text(KILL)
        hook.chmod(0o755)

    def show(self, what):
        return git("show", what, cwd=self.repo)

    def commits(self, branch):
        """Subjects of a branch, newest first, without the first commit of all."""
        return git("log", "--format=%s", f"main..{branch}", cwd=self.repo).splitlines()

    def refuse_git(self):
        """Replace git's token by another one."""
        write_logins(self.flow.folder / "http", {self.git_user: "another-token-altogether"})

    def where_the_token_is(self):
        """Files below the home that contain the token, except the configuration and lighttpd's own list."""
        files = [path for path in self.flow.folder.rglob("*") if path.is_file()]
        files = [path for path in files if path.name not in ("config.yaml", "logins", "seed.json")]
        return [path for path in files if self.token.encode() in path.read_bytes()]


class GitHubHome(ForgeHome):
    """`acme/web` on our loopback GitHub."""

    source, project, token, git_user = "github", "acme/web", GITHUB_TOKEN, "x-access-token"

    def open(self, address):
        place = GitHubPlace(self.flow.folder)
        place.server.git, place.repo.git = address, self.repo
        place.repo.people["alice"] = "write"
        self.base_url, self.server, self.state = place.address, place.server, place.repo
        return place

    def stranger_says(self, key, body):
        self.state.comment(int(key.task_id), body, "stranger")

    def assign(self, key, *names):
        with self.server.state.lock:
            self.state.assign(self.state.issues[int(key.task_id)], "alice", names)

    def pulls(self):
        with self.server.state.lock:
            self.state.refresh()
        return [
            Pull(
                one["title"],
                one["body"],
                "merged" if one["pull"]["merged_at"] else one["state"],
                one["pull"]["draft"],
                one["pull"]["head"],
                one["pull"]["base"],
                tuple(one.get("reviewers", ())),
            )
            for one in self.state.issues.values()
            if one["pull"]
        ]

    def _pull(self, pull):
        return next(one for one in self.state.issues.values() if one["pull"] and one["pull"]["head"] == pull.head)

    def merged(self, pull):
        with self.server.state.lock:
            self.state.merge(self._pull(pull)["number"])

    def close_pull(self, pull):
        with self.server.state.lock:
            self.state.close(self._pull(pull)["number"], "alice")

    def changes(self):
        return [f"{verb} {path}" for verb, path, status in self.server.journal if verb != "GET" and status < 400]


class GitHubAppHome(GitHubHome):
    """The same for a GitHub App: git accepts only the newest of its tokens."""

    token = "none-was-made-yet"
    account = "makimono-app[bot]"

    def open(self, address):
        place = super().open(address)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        own = (serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        (self.flow.folder / "app.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *own))
        pem = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        public = key.public_key().public_bytes(*pem).decode()
        self.server.tokens.clear()
        self.server.apps[7] = (public, "makimono-app", {99: "acme"})
        self.server.on_token = self.git_takes
        return place

    def login(self):
        return "app: {id: 7, private_key_file: app.pem}"

    def git_takes(self, token):
        write_logins(self.flow.folder / "http", {self.git_user: token})

    def expire(self):
        """Let every token that was made so far expire."""
        with self.server.state.lock:
            self.server.tokens.clear()
        self.refuse_git()


class GitLabHome(ForgeHome):
    """A project in a subgroup on our loopback GitLab, which has a sub-path; git has the same address."""

    source, project, token, git_user = "gitlab", PROJECT, GITLAB_TOKEN, "oauth2"
    pull_name = "merge request"

    def open(self, address):
        place = self.new_place()
        place.server.git, place.project["git"] = address, str(self.repo)
        self.base_url, self.server = place.address, place.server
        return place

    def new_place(self):
        return GitLabPlace(self.flow.folder)

    def stranger_says(self, key, body):
        self.server.note(self.place.item(key), "stranger", body)

    def assign(self, key, *names):
        self.server.assign(self.place.item(key), "alice", names)

    def pulls(self):
        with self.server.lock:
            self.server.refresh(self.place.project)
        names = {user["id"]: user["username"] for user in self.server.users.values()}
        return [
            Pull(
                one["title"].removeprefix("Draft: "),
                one["description"],
                {"opened": "open"}.get(one["state"], one["state"]),
                one["title"].startswith("Draft: "),
                one["source_branch"],
                one["target_branch"],
                tuple(names[number] for number in one["reviewers"]),
            )
            for one in self.place.project["merge_requests"].values()
        ]

    def _request(self, pull):
        return next(one for one in self.place.project["merge_requests"].values() if one["source_branch"] == pull.head)

    def merged(self, pull):
        self.server.merge(self._request(pull))

    def close_pull(self, pull):
        self.server.state(self._request(pull), "closed")

    def changes(self):
        return [f"{verb} {path}" for verb, path in self.server.asked() if verb != "GET"]


class GitLabTlsHome(GitLabHome):
    """The same over TLS, API and git, with a certificate of a company's own authority."""

    def new_place(self):
        tls, self.authority = of_an_authority(self.flow.folder)
        return GitLabPlace(self.flow.folder, tls=tls, ca_file=self.authority)

    def login(self):
        return f"{super().login()}, ca_file: {self.authority.name}"


class GitHubEmulateHome(ForgeHome):
    """A repository on emulate, an independent GitHub emulator, with git at the same address."""

    source, token, git_user = "github", "ghp_makimono", "x-access-token"

    def people(self):
        self.front = self.stack.enter_context(front())
        self.front.api = self.stack.enter_context(emulate(self.flow.folder, self.front.address))
        self.base_url = self.front.address
        self.made = GitHubEmulatePlace(self.flow.folder, self.front.api)
        self.project = f"acme/{self.made.name}"

    def open(self, address):
        self.front.git = address
        return self.made

    def pulls(self):
        found = self.place.as_("alice", "GET", f"{self.place.path}/pulls?state=all&per_page=100")
        return [
            Pull(
                one["title"],
                one["body"],
                "merged" if one.get("merged_at") else one["state"],
                one["draft"],
                one["head"]["ref"],
                one["base"]["ref"],
                tuple(user["login"] for user in one["requested_reviewers"]),
            )
            for one in sorted(found, key=lambda one: one["number"])
        ]

    def _number(self, pull):
        found = self.place.as_("alice", "GET", f"{self.place.path}/pulls?state=all&per_page=100")
        return next(one["number"] for one in found if one["head"]["ref"] == pull.head)

    def merged(self, pull):
        tip = git("rev-parse", f"refs/heads/{pull.head}", cwd=self.repo).strip()
        git("update-ref", f"refs/heads/{pull.base}", tip, cwd=self.repo)
        self.place.as_("alice", "PUT", f"{self.place.path}/pulls/{self._number(pull)}/merge", {})

    def close_pull(self, pull):
        self.place.as_("alice", "PATCH", f"{self.place.path}/pulls/{self._number(pull)}", {"state": "closed"})

    def changes(self):
        return [f"{verb} {path}" for verb, path, status in self.front.journal if verb != "GET" and status < 400]


class AtOneAddress(ForgejoPlace):
    """A Forgejo that calls itself by the address at which it is reached."""

    root_url = None


class ForgejoHome(ForgeHome):
    """`acme/web` of an organisation on our loopback Forgejo, which has a sub-path; git has the same address."""

    source, project, token, git_user = "forgejo", "acme/web", FORGEJO_TOKEN, "oauth2"

    def open(self, address):
        place = AtOneAddress(self.flow.folder)
        place.server.git, place.repo.git = address, self.repo
        place.person("alice")
        self.base_url, self.server, self.state = place.address, place.server, place.repo
        return place

    def stranger_says(self, key, body):
        with self.server.state.lock:
            self.server.state.user_id("stranger")
            self.state.comment(key.task_id, body, "stranger")

    def assign(self, key, *names):
        with self.server.state.lock:
            self.state.assign(self.place.item(key), "alice", names)

    def pulls(self):
        return [
            Pull(
                without_draft(one["title"]),
                one["body"],
                "merged" if one["pull"]["merged_at"] else one["state"],
                is_draft(one["title"]),
                one["pull"]["head"],
                one["pull"]["base"],
                tuple(one["pull"]["reviewers"]),
            )
            for one in self.state.issues.values()
            if one["pull"]
        ]

    def _pull(self, pull):
        return next(one for one in self.state.issues.values() if one["pull"] and one["pull"]["head"] == pull.head)

    def merged(self, pull):
        with self.server.state.lock:
            self.state.merge(self._pull(pull)["number"], "alice")

    def close_pull(self, pull):
        with self.server.state.lock:
            self.state.set_state(self._pull(pull), "alice", "closed")

    def changes(self):
        return [f"{verb} {path}" for verb, path, status in self.server.journal if verb != "GET" and status < 400]


class LocalHome(ForgeHome):
    """The local tracker, with the kills of `forges/killing.py`."""

    source = "tests.forges.killing:KillingForge"

    def __init__(self, folder, plays, *, config=""):
        self.stack = ExitStack()
        self.flow = FlowHome(folder, plays, config=config)
        self.stack.callback(self.flow.close)
        self.repo = self.flow.repos["default"]
        self.place = LocalPlace(folder)
        text = self.flow.config.read_text()
        self.flow.config.write_text(text.replace("task_sources: [local]", f"task_sources: ['{self.source}']"))
        self.flow.pin(self.source)

    def pulls(self):
        heads = [
            yaml.safe_load(text.split("---\n")[1]) | {"body": text.split("---\n", 2)[2]} for text in self.flow.pulls()
        ]
        names = ("title", "body", "state", "draft", "head", "base")
        return [Pull(*(head[name] for name in names), ("alice",)) for head in heads]

    def changes(self):
        return (self.flow.folder / "changes").read_text().split()

    def kill_after(self, number):
        (self.flow.folder / "die").write_text(str(number))

    def killed(self):
        return not (self.flow.folder / "die").exists()


HOMES = {
    "local": LocalHome,
    "github": GitHubHome,
    "gitlab": GitLabHome,
    "forgejo": ForgejoHome,
    "github-emulate": GitHubEmulateHome,
}
