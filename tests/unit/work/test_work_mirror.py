"""The mirror follows the other side, never drops an object, and leaves the other side untouched."""

import os
import shutil
import subprocess
import sys
import threading

import pytest
from work_repos import OTHER_UID, Source, mode, sh

from agent import durable_files
from agent.errors import GitError, RepositoryMissing, WorkError
from agent.gitcmd import git
from agent.work import Mirror
from agent.work.remote import Remote


def test_branches_tags_and_the_default_branch_come_over(source, make_mirror):
    source.git("tag", "v1")
    source.git("branch", "feature/x")
    mirror = make_mirror(source.path)
    assert mirror.branches() == ["feature/x", "main"]
    assert mirror.default_branch() == "main"
    assert mirror.commit_of("feature/x") == source.git("rev-parse", "HEAD").strip()
    assert git("tag", git_dir=mirror.path).output == b"v1\n"
    assert mirror.commit_of("nothing") is None
    assert mirror.commit_of("main~0") is None


def test_the_mirror_lies_where_the_design_says(source, tmp_path):
    mirror = Mirror(tmp_path / "contexts", "gitlab.example.com:8443", "group/sub", "repo", Remote(str(source.path)))
    mirror.fetch()
    assert mirror.path == tmp_path / "contexts/repos/gitlab.example.com%3A8443/group/sub/repo.git"


@pytest.mark.parametrize("owner", ["..", "a/../b", ".git", "a/.hidden", "a.git"])
def test_no_name_leads_out_of_the_folder_or_into_another_mirror(owner, source, tmp_path):
    mirror = Mirror(tmp_path / "contexts", "host", owner, "..", Remote(str(source.path)))
    parts = mirror.path.relative_to(tmp_path / "contexts" / "repos").parts
    assert not [part for part in parts if part.startswith(".")]
    assert not [part for part in parts[:-1] if part.endswith(".git")]


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/.git"])
def test_a_repository_is_named_by_folder_or_file_address(form, source, make_mirror):
    assert make_mirror(form.format(source.path)).default_branch() == "main"


def test_the_default_branch_need_not_be_main(tmp_path, make_mirror):
    source = Source(tmp_path / "s", branch="trunk/größe")
    source.commit()
    assert make_mirror(source.path).default_branch() == "trunk/größe"


def test_a_tag_with_the_name_of_the_default_branch_does_not_hide_it(source, make_mirror, make_workspace):
    first = source.git("rev-parse", "HEAD").strip()
    source.git("tag", "main")
    newest = source.commit("second")
    mirror = make_mirror(source.path)
    assert mirror.default_branch() == mirror.head_name() == "main"
    assert mirror.commit_of("main") == newest != first
    assert make_workspace(source, mirror=mirror).base_commit == newest


def test_a_detached_head_means_the_branch_at_that_commit(source, make_mirror):
    first = source.git("rev-parse", "HEAD").strip()
    source.git("branch", "old")
    source.commit("second")
    source.git("checkout", "-q", "--detach", first)
    assert make_mirror(source.path).default_branch() == "old"


def test_a_head_that_names_no_branch_means_the_only_one(source, make_mirror):
    sure = make_mirror(source.path)
    source.git("symbolic-ref", "HEAD", "refs/heads/gone")
    guessed = make_mirror(source.path)
    assert (sure.is_default_guessed, guessed.is_default_guessed) == (False, True)
    assert guessed.default_branch() == "main"


def test_an_empty_repository_is_recognised(tmp_path, make_mirror):
    mirror = make_mirror(Source(tmp_path / "s").path)
    assert mirror.is_empty()
    assert mirror.default_branch() is None
    assert mirror.head_name() == "main"


def test_a_branch_that_was_moved_by_force_moves_and_one_that_is_gone_goes(source, make_mirror):
    source.git("branch", "gone")
    second = source.commit("second")
    mirror = make_mirror(source.path)
    source.git("reset", "-q", "--hard", "HEAD~1")
    other = source.commit("other")
    source.git("branch", "-D", "-q", "gone")
    source.git("branch", "gone/below")  # in the way of the old name
    mirror.fetch()
    assert mirror.commit_of("main") == other
    assert mirror.branches() == ["gone/below", "main"]
    assert git("cat-file", "-t", second, git_dir=mirror.path).output == b"commit\n"


def test_joining_packs_loses_no_object_that_nothing_names_any_more(source, make_mirror, monkeypatch):
    mirror = make_mirror(source.path)
    lost = []
    monkeypatch.setattr("agent.work.mirror.MANY_PACKS", 3)  # a size, so that few fetches are enough
    for number in range(6):
        source.write("n.txt", f"{number}\n")
        lost.append(source.commit(str(number)))
        mirror.fetch()
        source.git("reset", "-q", "--hard", "HEAD~1")
    assert len(list((mirror.path / "objects/pack").glob("*.pack"))) <= 4
    for commit in lost:
        assert git("cat-file", "-p", f"{commit}:n.txt", git_dir=mirror.path).output
    assert not [entry for entry in os.listdir(mirror.path / "objects") if len(entry) == 2]


def test_nothing_is_fetched_when_nothing_changed(source, make_mirror):
    mirror = make_mirror(source.path)
    before = sorted(path.name for path in (mirror.path / "objects/pack").iterdir())
    mirror.fetch()
    assert sorted(path.name for path in (mirror.path / "objects/pack").iterdir()) == before


def test_a_dirty_work_tree_that_is_named_stays_as_it_is(source, make_mirror):
    source.write("README.md", "changed, not committed\n")
    source.write("staged.txt", "staged\n")
    source.git("add", "staged.txt")
    source.write("untracked.txt", "x\n")
    before = source.git("status", "--porcelain=v2", "--branch")
    mirror = make_mirror(source.path)
    assert source.git("status", "--porcelain=v2", "--branch") == before
    assert git("cat-file", "-p", f"{mirror.commit_of('main')}:README.md", git_dir=mirror.path).output == b"hello\n"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path / "nowhere", "the folder does not exist"),
        (lambda path: path, "git init"),
    ],
)
def test_where_no_repository_is_the_message_says_what_to_do(make, says, tmp_path, make_mirror):
    with pytest.raises(RepositoryMissing, match=says):
        make_mirror(make(tmp_path))


def test_a_folder_inside_a_repository_names_the_repository(source, make_mirror):
    with pytest.raises(RepositoryMissing, match=f"a part of the repository {source.path}"):
        make_mirror(source.path / "src")


@pytest.mark.parametrize("url", ["--upload-pack=touch /tmp/x", "ext::sh -c true", "http://-x", "", "https://"])
def test_what_is_no_address_is_refused(url, tmp_path):
    with pytest.raises((RepositoryMissing, GitError)):
        Mirror(tmp_path, "h", "o", "r", Remote(url)).fetch()


def test_a_server_that_does_not_answer_is_a_git_error(tmp_path):
    with pytest.raises(GitError, match=r"Failed to connect|Connection refused|Couldn't connect"):
        Mirror(tmp_path, "h", "o", "r", Remote("http://127.0.0.1:1/x.git")).fetch()


def test_two_fetches_at_once_wait_for_each_other(source, make_mirror):
    mirror = make_mirror(source.path)
    commit = source.commit("second")
    failures = []

    def fetch():
        try:
            mirror.fetch()
        except (GitError, WorkError) as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert mirror.commit_of("main") == commit


def test_locks_of_a_killed_git_do_not_stop_the_next_fetch(source, make_mirror):
    mirror = make_mirror(source.path)
    for name in ("HEAD.lock", "packed-refs.lock", "refs/heads/main.lock"):
        (mirror.path / name).touch()
    commit = source.commit("second")
    mirror.fetch()
    assert mirror.commit_of("main") == commit


def test_a_mirror_that_was_half_made_is_made_whole(source, make_mirror, tmp_path):
    path = tmp_path / "contexts/repos/local/local/repo.git"
    (path / "objects").mkdir(parents=True)
    (path / "HEAD").touch()
    assert make_mirror(source.path).default_branch() == "main"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_are_as_the_design_says_whatever_the_umask(mask, source, make_mirror, tmp_path):
    old = os.umask(mask)
    try:
        mirror = make_mirror(source.path)
        source.commit("second")
        mirror.fetch()
    finally:
        os.umask(old)
    root = os.geteuid() == 0
    assert mode(tmp_path / "contexts" / "repos") == (0o710 if root else 0o700)
    for folder in ("", "repos/local", "repos/local/local"):
        assert mode(tmp_path / "contexts" / folder) == (0o711 if root else 0o700)
    for parent, _, files in os.walk(mirror.path):
        assert mode(parent) & 0o777 == (0o755 if root else 0o700), parent
        for name in files:
            assert mode(os.path.join(parent, name)) & 0o077 == (0o044 if root else 0), name


def test_a_shallow_source_works(source, make_mirror, make_workspace, tmp_path):
    source.commit("second")
    sh("git", "clone", "-q", "--depth=1", f"file://{source.path}", str(tmp_path / "shallow"), cwd=tmp_path)
    mirror = make_mirror(tmp_path / "shallow")
    assert mirror.commit_of("main") == source.git("rev-parse", "HEAD").strip()
    workspace = make_workspace(None, mirror=mirror)
    (workspace.tree / "new.txt").write_text("x\n")
    made = workspace.commit("m", name="n", email="e@x")
    assert workspace.changed_paths() == ["new.txt"]
    mirror.remote.push(workspace.git_dir, made, workspace.branch, "")
    assert sh("git", "rev-parse", workspace.branch, cwd=tmp_path / "shallow").strip() == made


def test_a_repository_with_sha256_works(tmp_path, make_mirror, make_workspace):
    path = tmp_path / "source"
    path.mkdir()
    sh("git", "init", "-q", "-b", "main", "--object-format=sha256", ".", cwd=path)
    (path / "a").write_text("a\n")
    sh("git", "add", "a", cwd=path)
    sh("git", "commit", "-q", "-m", "x", cwd=path)
    mirror = make_mirror(path)
    assert len(mirror.commit_of("main")) == 64
    workspace = make_workspace(None, mirror=mirror)
    (workspace.tree / "a").write_text("b\n")
    assert len(workspace.commit("m", name="n", email="e@x")) == 64


def test_a_login_in_an_address_is_taken_out_of_it():
    remote = Remote("https://user:p%40ss@example.com:8443/a/b.git")
    assert remote.url == "https://example.com:8443/a/b.git"
    assert remote._credentials() == ("user", "p@ss")
    assert Remote("https://ghp_token@example.com/a.git")._credentials() == ("x-access-token", "ghp_token")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_can_be_fetched(source, make_mirror):
    for parent, folders, files in os.walk(source.path):
        for name in (*folders, *files, "."):
            os.lchown(os.path.join(parent, name), OTHER_UID, OTHER_UID)
    mirror = make_mirror(source.path)
    assert mirror.default_branch() == "main"
    assert make_mirror(f"file://{source.path}", "again").default_branch() == "main"


def test_the_lock_is_held_until_the_git_of_a_killed_process_has_ended(served, tmp_path):
    server, url, _ = served
    server.stalls = [False, False, True]  # the list of branches comes, the fetch hangs
    script = (
        "import sys; from pathlib import Path; from agent.work import Mirror; from agent.work.remote import Remote;"
        "remote = Remote(sys.argv[2], credentials=lambda: ('u', 'good-password'));"
        "Mirror(Path(sys.argv[1]), 'h', 'o', 'r', remote).fetch()"
    )
    worker = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "c"), url])
    assert server.stalled.wait(30)
    worker.kill()
    worker.wait()
    lock = tmp_path / "c/repos/h/o/.r.git.lock"
    assert durable_files.is_locked(lock)
    server.go_on.set()
    with durable_files.locked(lock):
        pass
    mirror = Mirror(tmp_path / "c", "h", "o", "r", Remote(url, credentials=lambda: ("u", "good-password")))
    mirror.fetch()
    assert mirror.default_branch() == "main"


STOPPED_GIT = """#!/bin/sh
case " $* " in *" {word} "*) echo > {folder}/stopped; read -r _ < {folder}/go ;; esac
exec {git} "$@"
"""


@pytest.mark.parametrize("word", ["init", "update-ref", "fetch"])
def test_the_lock_is_held_until_any_git_that_changes_the_mirror_has_ended(word, source, make_mirror, tmp_path):
    """The next owner of the lock removes lock files, or a repository that is not complete, of a git that runs."""
    if word != "init":
        source.git("branch", "gone")
        make_mirror(source.path)
        source.git("branch", "-D", "-q", "gone")
        source.commit("second")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(STOPPED_GIT.format(word=word, folder=folder, git=shutil.which("git")))
    (folder / "git").chmod(0o755)
    for name in ("stopped", "go"):
        os.mkfifo(folder / name)
    script = (
        "import sys; from pathlib import Path; from agent.work import Mirror; from agent.work.remote import Remote;"
        "Mirror(Path(sys.argv[1]), 'local', 'local', 'repo', Remote(sys.argv[2])).fetch()"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "contexts"), str(source.path)],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    (folder / "stopped").read_text()
    worker.kill()
    worker.wait()
    lock = tmp_path / "contexts/repos/local/local/.repo.git.lock"
    is_held = durable_files.is_locked(lock)
    (folder / "go").write_text("\n")
    with durable_files.locked(lock):
        assert is_held
    assert make_mirror(source.path).branches() == ["main"]
