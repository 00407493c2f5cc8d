"""git is started hardened, and says what went wrong without saying a secret."""

import os
import subprocess
import sys
import threading
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent import cgroups, gitcmd, stale_git_locks
from agent.errors import DiskError, GitError, GitKilled
from agent.gitcmd import Credentials, Identity, git

SECRET = f"s3cr3t-token-value-{os.getpid()}"  # no other process of this machine has it


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "r.git"
    git("init", "--quiet", "--bare", str(path))
    return path


def test_the_version_is_numbers_and_new_enough():
    assert gitcmd.version() >= gitcmd.MINIMUM


def test_nothing_of_the_user_or_the_system_is_read(repository):
    listed = git("config", "--list", "--show-scope", git_dir=repository).output.decode()
    assert {line.split("\t")[0] for line in listed.splitlines()} <= {"command", "local"}


def test_standard_output_and_error_are_apart(repository):
    with pytest.raises(GitError) as caught:
        git("rev-parse", "--verify", "nothing", git_dir=repository)
    assert "Needed a single revision" in str(caught.value)
    assert caught.value.returncode == 128
    assert git("rev-parse", "--verify", "nothing", git_dir=repository, check=False).output == b""


def test_an_alias_or_a_hook_of_the_repository_is_not_run(repository, tmp_path):
    canary = tmp_path / "canary"
    (repository / "hooks").mkdir(exist_ok=True)
    hook = repository / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    empty = git("hash-object", "-t", "tree", "-w", "--stdin", git_dir=repository, stdin=b"").output.decode().strip()
    env = Identity("N", "e@x").environment(0)
    made = git("commit-tree", empty, git_dir=repository, stdin=b"m", env=env).output.decode().strip()
    git("update-ref", "refs/heads/x", made, git_dir=repository)
    assert not canary.exists()


def test_helpers_for_other_protocols_are_refused(repository, tmp_path):
    canary = tmp_path / "canary"
    with pytest.raises(GitError, match="not allowed"):
        git("fetch", f"ext::sh -c touch% {canary}", git_dir=repository)
    assert not canary.exists()


def test_a_command_that_takes_too_long_is_ended(repository):
    with pytest.raises(GitError, match="was ended after"):
        git("-c", "alias.wait=!sleep 30", "wait", git_dir=repository, timeout=0.2)


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ("fatal: write error: No space left on device", DiskError),
        ("error: file write error: Disk quota exceeded", DiskError),
        ("fatal: sha1 file '/x/git/index.lock' write error. Out of diskspace", DiskError),
        ("remote: No space left on device", GitError),
    ],
)
def test_a_full_disk_is_told_apart_when_it_is_ours(says, error, repository):
    with pytest.raises(error, match=r"No space|quota|diskspace"):
        git("-c", f"alias.full=!echo '{says}' >&2; exit 128", "full", git_dir=repository)


def test_more_output_than_allowed_is_an_error_not_a_shorter_answer(repository):
    with pytest.raises(GitError, match="printed more than 10 bytes"):
        git("version", "--build-options", cap=10)


def test_output_up_to_the_cap_is_whole(repository):
    data = os.urandom(70_000)
    name = git("hash-object", "-w", "--stdin", git_dir=repository, stdin=data).output.decode().strip()
    assert git("cat-file", "blob", name, git_dir=repository, cap=70_000).output == data


def test_the_identity_of_a_commit_is_given_per_call(repository):
    empty = git("hash-object", "-t", "tree", "-w", "--stdin", git_dir=repository, stdin=b"").output.decode().strip()
    who = Identity("Evil <root>\nname", "a b@ex\n.com").environment(1_700_000_000)
    made = git("commit-tree", empty, git_dir=repository, stdin=b"m", env=who).output.decode().strip()
    shown = git("log", "-1", "--format=%an|%ae|%cn|%at", made, git_dir=repository).output.decode().strip()
    assert shown == "Evil root name|ab@ex.com|Evil root name|1700000000"


def test_an_empty_identity_still_commits(repository):
    empty = git("hash-object", "-t", "tree", "-w", "--stdin", git_dir=repository, stdin=b"").output.decode().strip()
    who = Identity("", "").environment(0)
    assert git("commit-tree", empty, git_dir=repository, stdin=b"m", env=who).returncode == 0


class Server(BaseHTTPRequestHandler):
    """Asks for a password, records what came and what the processes' arguments and environments were."""

    def do_GET(self):
        header = self.headers.get("Authorization")
        self.server.seen.append(b64decode(header.split()[1]).decode() if header else None)
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                try:
                    for name in ("cmdline", "environ"):
                        with open(f"/proc/{entry}/{name}", "rb") as file:
                            self.server.processes.append(file.read())
                except OSError:
                    continue
        if self.server.redirect and not header:
            self.send_response(302)
            self.send_header("Location", self.server.redirect + self.path)
            self.end_headers()
            return
        self.send_response(401 if self.server.deny or not header else 404)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(redirect=None, deny=False):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
        server.seen, server.processes, server.redirect, server.deny = [], [], redirect, deny
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server, f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_credentials_reach_the_server_and_no_argument_or_environment(serve):
    server, url = serve()
    credentials = Credentials(f"{url}/a/b.git", "user", SECRET)
    with pytest.raises(GitError) as caught:
        git("ls-remote", f"{url}/a/b.git", credentials=credentials)
    assert f"user:{SECRET}" in server.seen
    assert not [data for data in server.processes if SECRET.encode() in data]
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(credentials)


def test_credentials_do_not_follow_a_redirect_to_another_host(serve):
    other, other_url = serve()
    _, url = serve(redirect=other_url)
    with pytest.raises(GitError):
        git("ls-remote", f"{url}/a/b.git", credentials=Credentials(f"{url}/a/b.git", "user", SECRET))
    assert other.seen
    assert set(other.seen) == {None}


def test_without_credentials_no_prompt_appears(serve):
    _, url = serve()
    with pytest.raises(GitError, match="could not read Username"):
        git("ls-remote", f"{url}/a/b.git")


def test_a_secret_in_an_address_is_not_in_the_message(serve):
    _, url = serve(deny=True)
    with pytest.raises(GitError) as caught:
        git("ls-remote", url.replace("http://", f"http://user:{SECRET}@") + "/a/b.git")
    assert SECRET not in str(caught.value)


def test_a_token_with_a_line_break_is_refused():
    with pytest.raises(GitError, match="line break"):
        git("ls-remote", "http://127.0.0.1:1/x", credentials=Credentials("http://127.0.0.1:1/x", "u", "a\nhost=evil"))


def test_the_callers_environment_does_not_leak_in(tmp_path):
    script = "from agent.gitcmd import git; import sys;sys.stdout.write(git('-c', 'alias.e=!env', 'e').output.decode())"
    env = {**os.environ, "OPENAI_API_KEY": SECRET, "GIT_DIR": "/evil", "GIT_EXEC_PATH_X": SECRET}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert SECRET not in done.stdout
    assert "GIT_DIR=/evil" not in done.stdout


@pytest.mark.parametrize("check", [True, False])
def test_a_git_that_somebody_killed_is_no_answer(monkeypatch, tmp_path, check):
    killed = tmp_path / "git"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(gitcmd, "program", lambda: str(killed))
    with pytest.raises(GitKilled, match="show-ref was killed by signal 9"):
        gitcmd.git("show-ref", check=check)


KILLED_ONCE = """#!/bin/sh
# Killed at its first call of MARK, with the locks that a git has then; every other call is git's own.
case " $* " in *" MARK "*) [ -e DONE ] || { touch DONE LOCKS; kill -9 $$; } ;; esac
exec REAL "$@"
"""


def killed_once(tmp_path, monkeypatch, mark, *locks):
    """A git that is killed at its first call of `mark` and leaves these locks; the file that says that it was."""
    done, script = tmp_path / "killed", tmp_path / "git"
    text = KILLED_ONCE.replace("DONE", str(done)).replace("LOCKS", " ".join(map(str, locks))).replace("MARK", mark)
    script.write_text(text.replace("REAL", gitcmd.program()))
    script.chmod(0o755)
    monkeypatch.setattr(gitcmd, "program", lambda: str(script))
    return done


@pytest.fixture
def work(tmp_path):
    """(git directory, work tree) with one file that no commit has."""
    folder, tree = tmp_path / "repository", tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("a\n")
    gitcmd.git("init", "-q", "--bare", str(folder))
    return folder, tree


def test_a_git_that_is_killed_is_run_again_and_its_locks_are_removed(tmp_path, work, monkeypatch):
    folder, tree = work
    done = killed_once(tmp_path, monkeypatch, "add", folder / "index.lock")
    gitcmd.git("add", "-A", git_dir=folder, work_tree=tree)
    assert done.exists()
    assert gitcmd.git("ls-files", git_dir=folder, work_tree=tree).output == b"a.txt\n"
    assert not (folder / "index.lock").exists()


@pytest.mark.parametrize("check", [True, False])
def test_a_lock_whose_owner_is_dead_stands_in_nobodys_way(work, check):
    folder, tree = work
    (folder / "index.lock").touch()
    assert gitcmd.git("add", "-A", git_dir=folder, work_tree=tree, check=check).returncode == 0
    for name in ("HEAD.lock", "refs/heads/x.lock", "config.lock"):
        (folder / name).touch()
    commit = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    gitcmd.git("hash-object", "-w", "-t", "tree", "--stdin", git_dir=folder, stdin=b"")
    gitcmd.git("symbolic-ref", "HEAD", "refs/heads/x", git_dir=folder)
    gitcmd.git("config", "a.b", "c", git_dir=folder)
    made = gitcmd.git("commit-tree", commit, "-m", "x", git_dir=folder, env=gitcmd.Identity("a", "a@b").environment(1))
    gitcmd.git("update-ref", "refs/heads/x", made.output.decode().strip(), git_dir=folder)
    assert not list(folder.rglob("*.lock"))


def test_a_lock_that_somebody_has_is_his(work):
    folder, tree = work
    with (folder / "index.lock").open("w"), pytest.raises(GitError, match=r"index\.lock") as refused:
        gitcmd.git("add", "-A", git_dir=folder, work_tree=tree)
    assert (folder / "index.lock").exists()
    assert "manually" not in str(refused.value), "no advice for people who cannot follow it"


def test_a_lock_of_another_repository_is_not_touched(tmp_path, work):
    folder, _ = work
    lock = tmp_path / "index.lock"
    lock.touch()
    assert stale_git_locks.lock_in_error(f"fatal: Unable to create '{lock}': File exists.", folder) is None
    assert (
        stale_git_locks.lock_in_error(f"fatal: Unable to create '{folder}/../index.lock': File exists.", folder) is None
    )


def test_what_may_have_happened_is_not_done_again_by_itself(tmp_path, work, monkeypatch):
    folder, _ = work
    killed_once(tmp_path, monkeypatch, "update-ref")
    with pytest.raises(GitKilled, match="update-ref was killed by signal 9"):
        gitcmd.git("update-ref", "-d", "refs/heads/x", git_dir=folder)


def test_a_fetch_whose_other_half_is_killed_is_done_again(tmp_path, work):
    """A real git-upload-pack of a real git, killed in the middle, with the words that git has for it."""
    folder, tree = work
    gitcmd.git("add", "-A", git_dir=folder, work_tree=tree)
    env = gitcmd.Identity("a", "a@b").environment(1)
    tops = gitcmd.git("write-tree", git_dir=folder).output.decode().strip()
    commit = gitcmd.git("commit-tree", tops, "-m", "x", git_dir=folder, env=env).output.decode().strip()
    gitcmd.git("update-ref", "refs/heads/x", commit, git_dir=folder)
    real = subprocess.run([gitcmd.program(), "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    once = tmp_path / "upload-pack"
    done = tmp_path / "killed"
    once.write_text(f'#!/bin/sh\n[ -e {done} ] || {{ touch {done}; kill -9 $$; }}\nexec {real}/git-upload-pack "$@"\n')
    once.chmod(0o755)
    other = tmp_path / "other"
    gitcmd.git("init", "-q", "--bare", str(other))
    gitcmd.git("fetch", f"--upload-pack={once}", "--", str(folder), "refs/heads/x:refs/heads/x", git_dir=other)
    assert done.exists()
    assert gitcmd.git("rev-parse", "refs/heads/x", git_dir=other).output.decode().strip() == commit


@pytest.mark.parametrize(
    ("has", "may"),
    [
        (256 << 20, 128 << 20),
        (512 << 20, 256 << 20),
        (1 << 30, gitcmd.LEAST),
        (4 << 30, 1 << 30),
        (64 << 30, gitcmd.MEMORY),
    ],
)
def test_a_git_beside_a_work_tree_may_have_a_quarter_of_what_the_group_has(monkeypatch, has, may):
    """A container's limit counts, not the memory of the machine that it runs on; of a small one git gets half, so that
    it ends by its own limit before the kernel ends whatever it likes."""
    monkeypatch.setattr(cgroups, "machine_memory", lambda: has)
    assert gitcmd.memory.__wrapped__() == may
