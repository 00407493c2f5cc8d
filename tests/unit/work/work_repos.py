"""Helpers of this room's tests: plain git, a user's repository, receipts."""

import os
import shutil
import subprocess
from base64 import b64decode
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from git_backend import answered

ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A Person",
    "GIT_AUTHOR_EMAIL": "person@example.com",
    "GIT_COMMITTER_NAME": "A Person",
    "GIT_COMMITTER_EMAIL": "person@example.com",
}
OTHER_UID = 54321


def sh(*argv, cwd, env=None, stdin=None):
    """Plain git as a user runs it."""
    done = subprocess.run(
        argv, cwd=cwd, env={**ENV, **(env or {})}, input=stdin, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8", "surrogateescape")


class Source:
    """A user's repository with a work tree."""

    def __init__(self, path, branch="main"):
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", branch)

    def git(self, *args, **options):
        return sh("git", *args, cwd=self.path, **options)

    def write(self, name, data):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def commit(self, message="change"):
        self.git("add", "-A", "--force")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()


class Receipts:
    """Effects according to the contract in values: return the recorded receipt, else look the effect up, else perform
    it."""

    def __init__(self):
        self.receipts = {}
        self.done = []

    def once(self, name, look_up, do, *, is_new=False, **detail):
        if name in self.receipts:
            return self.receipts[name]
        found = look_up()
        if found is None:
            found = do()
            self.done.append(name)
        self.receipts[name] = found
        return found

    def receipt(self, name):
        return self.receipts.get(name)

    def intended(self):
        return frozenset(self.done)


def commit(workspace, message="change"):
    return workspace.commit(message, name="Makimono", email="bot@example.com")


def mode(path):
    return os.lstat(path).st_mode & 0o7777


def remove(path):
    shutil.rmtree(Path(path))


class Backend(BaseHTTPRequestHandler):
    """git's own HTTP server, protected by a password."""

    protocol_version = "HTTP/1.0"

    def is_page(self):
        """Whether the answer is a page of a proxy, `server.page`; it is then sent, without asking for a login."""
        page = self.server.page(self.command, self.path) if self.server.page is not None else None
        if page is None:
            return False
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(page[0])
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page[1])))
        self.end_headers()
        self.wfile.write(page[1])
        return True

    def do_GET(self):
        if self.is_page():
            return
        login = self.headers.get("Authorization", "")
        password = b64decode(login.split()[1]).decode().partition(":")[2] if login else None
        self.server.passwords.append(password)
        if password not in self.server.accepted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.server.status:
            self.send_response(self.server.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.server.forbid and "git-receive-pack" in self.path:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.server.stalls and self.server.stalls.pop(0):
            self.server.stalled.set()
            self.server.go_on.wait(30)
            return
        status, fields, content = answered(self, {**ENV, "REMOTE_USER": "x"})
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *args):
        pass


def files_of(workspace):
    """The files and links of a work tree, without `.git`."""
    found = (path for path in workspace.tree.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(workspace.tree)) for path in found if path.name != ".git")
