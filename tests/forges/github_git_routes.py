"""The Git database of our loopback GitHub: trees and commits in the bare repository of `Repo.git`, and which are signed.

What is refused, and where it is written:

- a mode that is not in the list, an object that is not there, the removal of a path that is not there: 422
  (docs.github.com/en/rest/git/trees, "Create a tree")
- a tree or a parent that only a push to another ref than a branch has brought: 422.  The clients of GitHub found that
  such a tree cannot be reused, while blobs can (renovatebot/renovate, lib/modules/platform/github/index.ts, `pushFiles`)
- an empty repository: 409 (docs.github.com/en/rest/git, "Git Repository is empty")

A commit is signed, with GitHub as its committer, when an App makes it and the request names no author, no committer and
no signature (docs.github.com, "About commit signature verification", "Signature verification for bots"; not on an
Enterprise Server).  Any other commit is `unsigned`.  While the signature service is away,
`verified` is false and `reason` is `gpgverify_error` or `gpgverify_unavailable` (docs.github.com/en/rest/git/commits,
"Signature verification object").  The signature of GitHub's commits ends with an empty line.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile

from agent import clock
from forges.github_errors import Refused
from forges.github_shapes import make

MODES = {"100644": "blob", "100755": "blob", "120000": "blob", "040000": "tree", "160000": "commit"}
HOOK = """#!/bin/sh
# "Require signed commits" (docs.github.com, "About protected branches"), on every branch
while read -r old new ref; do
  case "$ref" in refs/heads/*) ;; *) continue ;; esac
  for commit in $(git rev-list "$new" --not --branches); do
    grep -q "$commit" signed || { echo "error: GH013: Commits must have verified signatures." >&2; exit 1; }
  done
done
"""


def git(folder, *argv, stdin=None, **env):
    done = subprocess.run(
        ["git", "--git-dir", str(folder), *argv], input=stdin, capture_output=True, env={**os.environ, **env}
    )
    return done.stdout.decode().strip() if done.returncode == 0 else None


def require_signed(repo):
    """Switch the rule on."""
    hook = repo.git / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)


def refused(message):
    return Refused(422, message, [])


class GitRoutes:
    """A part of `github_server.GitHubServer`."""

    is_enterprise = False
    service_away = ""  # the reason in the answers while the signature service is away

    def _usable(self, repo):
        """The objects of the branches, and those that this API has made."""
        if not git(repo.git, "for-each-ref", "refs/heads"):
            raise Refused(409, "Git Repository is empty.")
        listed = git(repo.git, "rev-list", "--objects", "--branches") or ""
        trees = git(repo.git, "log", "--branches", "--format=%T") or ""
        return {line.split(" ")[0] for line in listed.splitlines()} | set(trees.split()) | repo.made

    def _make_tree(self, repo, _parts, _query, body, _login, _path):
        usable, base = self._usable(repo), body.get("base_tree")
        if base is not None and base not in usable:
            raise refused("base_tree is not a valid tree")
        paths = [one["path"] for one in body["tree"]]
        if any(other.startswith(f"{one}/") for one in paths for other in paths):
            raise refused("tree.path contains a malformed path component")
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            git(repo.git, "read-tree", base or "--empty", **index)
            there = set((git(repo.git, "ls-files", **index) or "").splitlines())
            lines = []
            for one in body["tree"]:
                if MODES.get(one["mode"]) != one["type"]:
                    raise refused("Must supply a valid tree.mode")
                if one["sha"] is None and one["path"] not in there:
                    raise refused("GitRPC::BadObjectState")
                kind = one["type"] if one["type"] == "commit" else git(repo.git, "cat-file", "-t", one["sha"] or "")
                if one["sha"] is not None and kind != one["type"]:
                    raise refused(f"tree.sha {one['sha']} is not a valid {one['type']}")
                mode, sha = ("0", "0" * 40) if one["sha"] is None else (one["mode"], one["sha"])
                lines.append(f"{mode} {sha}\t{one['path']}\n")
            done = git(repo.git, "update-index", "--index-info", stdin="".join(lines).encode(), **index)
            if done is None:
                raise refused("tree.path is not valid")
            made = git(repo.git, "write-tree", **index)
        repo.made.add(made)
        return 201, make("git-tree", sha=made, url=f"{repo.url}/git/trees/{made}", truncated=False), {}

    def _make_commit(self, repo, _parts, _query, body, login, _path):
        usable = self._usable(repo)
        if body["tree"] not in usable:
            raise refused("Tree SHA does not exist")
        if not set(body.get("parents", ())) <= usable:
            raise refused("Parent SHA does not exist or is not a commit object")
        user, second = self.state.user(login), int(clock.now().timestamp())
        by_default = not body.keys() & {"author", "committer", "signature"}
        signs = login.endswith("[bot]") and by_default and not self.is_enterprise
        mail = f"{user['id']}+{login}@users.noreply.{self.base.removeprefix('http://').partition(':')[0]}"
        own = {"name": login, "email": mail}
        author = body.get("author") or own
        committer = {"name": "GitHub", "email": "noreply@github.com"} if signs else body.get("committer") or author
        people = [
            f"{kind} {one['name']} <{one['email']}> {second} +0000"
            for kind, one in (("author", author), ("committer", committer))
        ]
        parents = [f"parent {one}" for one in body.get("parents", ())]
        head, message = "\n".join([f"tree {body['tree']}", *parents, *people]), body["message"]
        payload, signature = f"{head}\n\n{message}", None
        if signs:
            word = hashlib.sha256(payload.encode()).hexdigest()
            signature = f"-----BEGIN PGP SIGNATURE-----\n\n{word}\n-----END PGP SIGNATURE-----\n"
            head += "\ngpgsig " + signature.replace("\n", "\n ")
        text = f"{head}\n\n{message}".encode()
        made = git(repo.git, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text)
        repo.made.add(made)
        if signs:
            with (repo.git / "signed").open("a") as file:
                file.write(f"{made}\n")
        date = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        verification = {
            "verified": signs and not self.service_away,
            "reason": self.service_away or ("valid" if signs else "unsigned"),
            "signature": signature,
            "payload": payload if signs else None,
            "verified_at": date if signs else None,
        }
        url = f"{repo.url}/git/commits/{made}"
        shown = make(
            "git-commit",
            sha=made,
            url=url,
            html_url=url,
            author={**author, "date": date},
            committer={**committer, "date": date},
            message=message,
            tree={"sha": body["tree"], "url": f"{repo.url}/git/trees/{body['tree']}"},
            parents=[{"sha": one, "url": url, "html_url": url} for one in body.get("parents", ())],
            verification=verification,
        )
        return 201, shown, {}

    git_routes = (
        ("POST", "/git/trees", _make_tree),
        ("POST", "/git/commits", _make_commit),
    )
