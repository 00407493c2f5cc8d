"""Publishing: checked every time, once per commit, to our own branch, never over somebody else's commits."""

import os
from functools import partial

import pytest
from work_repos import ENV, OTHER_UID, Receipts, Source, commit, sh

from agent import clock, deadline, proc
from agent.errors import GitError, PolicyViolation, PushRejected, RemoteAway, RemoteRefused, StopHeard, WorkError
from agent.gitcmd import git
from agent.security import secrets
from agent.security.guarded_paths import guarded
from agent.work import Mirror, Publisher, changes, push_errors
from agent.work.remote import Remote

BRANCH = "makimono/7-11111111"
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


def publisher(workspace, effects=None, **options):
    options.setdefault("scan", secrets.scan)
    options.setdefault("guarded", lambda paths, _: [f"{one} is guarded" for one in paths if one.startswith(".github/")])
    return Publisher(workspace, effects or Receipts(), **options)


def change(workspace, name="new.txt", text="x\n", message="change"):
    (workspace.tree / name).parent.mkdir(parents=True, exist_ok=True)
    (workspace.tree / name).write_text(text)
    return commit(workspace, message)


def test_our_branch_arrives_and_nothing_else_moves(source, make_workspace):
    source.write("README.md", "dirty\n")
    before = source.git("status", "--porcelain=v2", "--branch")
    workspace = make_workspace(source)
    made = change(workspace)
    assert publisher(workspace).push() == made
    assert source.git("rev-parse", BRANCH).strip() == made
    assert source.git("status", "--porcelain=v2", "--branch") == before
    assert source.git("for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", f"refs/heads/{BRANCH}"]
    assert source.git("fsck", "--strict") == ""


def test_a_later_commit_moves_the_branch(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace)
    publisher(workspace, effects).push()
    second = change(workspace, "two.txt")
    assert publisher(workspace, effects).push() == second
    assert source.git("rev-parse", BRANCH).strip() == second


@pytest.mark.parametrize("first", [False, True], ids=["one", "two"])
def test_a_commit_of_ours_that_this_disk_lost_is_taken_up_again(first, source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    if first:
        change(workspace, "first.txt")
        publisher(workspace, effects).push()
    before, pushed = workspace.head(), workspace.state.pushed
    made = change(workspace)
    publisher(workspace, effects).push()
    git("update-ref", f"refs/heads/{BRANCH}", before, git_dir=workspace.git_dir)
    workspace.update_state(pushed=pushed)
    (workspace.tree / "later.txt").write_text("x\n")
    workspace.mirror.fetch()
    again = publisher(workspace, effects)
    again.take_up()
    assert (workspace.head(), workspace.state.pushed) == (made, made)
    assert workspace.uncommitted() == ["later.txt"]
    newest = commit(workspace, "later")
    assert again.push() == newest
    assert source.git("rev-parse", BRANCH).strip() == newest
    assert source.git("rev-parse", f"{BRANCH}~1").strip() == made


def test_a_commit_of_somebody_else_is_not_taken_up(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    made = change(workspace)
    publisher(workspace, effects).push()
    source.git("checkout", "-q", BRANCH)
    source.write("theirs.txt", "x\n")
    source.commit("theirs")
    workspace.mirror.fetch()
    publisher(workspace, effects).take_up()
    assert workspace.head() == made


def test_a_commit_is_pushed_once(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    made = change(workspace)
    publishing = publisher(workspace, effects)
    publishing.push()
    publishing.push()
    assert effects.done == [f"push:{made}"]
    assert effects.receipt(f"push:{made}") == {"commit": made, "branch": BRANCH}


def test_a_push_whose_receipt_was_lost_is_found_not_repeated(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace)
    publisher(workspace).push()
    workspace.update_state(pushed=None)
    effects = Receipts()
    made = publisher(workspace, effects).push()
    assert effects.done == []
    assert effects.receipt(f"push:{made}")
    assert workspace.state.pushed == made


def test_commits_of_somebody_else_on_our_branch_are_not_overwritten(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace)
    publisher(workspace, effects).push()
    source.git("checkout", "-q", BRANCH)
    theirs = source.commit("by a person")
    change(workspace, "two.txt")
    with pytest.raises(PushRejected, match=f"is at {theirs[:12]}, which is not of this task"):
        publisher(workspace, effects).push()
    assert source.git("rev-parse", BRANCH).strip() == theirs


def test_a_branch_that_moves_between_the_look_and_the_push_is_not_overwritten(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace)
    publishing = publisher(workspace)
    publishing.push()
    source.git("branch", "-f", BRANCH, "main")
    head = change(workspace, "two.txt")
    with pytest.raises(GitError, match=r"stale info|rejected"):
        publishing.remote.push(workspace.git_dir, head, BRANCH, "")
    with pytest.raises(PushRejected, match="stale info"):
        publishing._push(head, workspace.state.pushed)


def test_a_branch_that_somebody_removed_is_made_again(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace)
    publisher(workspace, effects).push()
    source.git("branch", "-D", "-q", BRANCH)
    second = change(workspace, "two.txt")
    publisher(workspace, effects).push()
    assert source.git("rev-parse", BRANCH).strip() == second


def test_commits_taken_back_after_a_push_are_replaced(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    first = change(workspace)
    publisher(workspace, effects).push()
    change(workspace, "two.txt")
    workspace.take_back()
    assert workspace.head() == first
    workspace.take_back(workspace.start)
    other = change(workspace, "three.txt")
    publisher(workspace, effects).push()
    assert source.git("rev-parse", BRANCH).strip() == other


def test_an_earlier_tasks_branch_is_continued(source, make_workspace, make_mirror):
    workspace = make_workspace(source)
    change(workspace)
    publisher(workspace).push()
    later = make_workspace(source, uuid="later", mirror=make_mirror(source.path), start_at=BRANCH)
    second = change(later, "two.txt")
    publisher(later).push()
    assert source.git("rev-parse", BRANCH).strip() == second
    assert later.changed_paths() == ["new.txt", "two.txt"]


def test_the_first_commit_of_an_empty_repository_is_pushed(tmp_path, make_workspace):
    source = Source(tmp_path / "s")
    workspace = make_workspace(source)
    made = change(workspace)
    publisher(workspace).push()
    assert source.git("rev-parse", BRANCH).strip() == made


def test_only_own_branches_are_pushed(source, make_workspace):
    workspace = make_workspace(source, branch="main2")
    change(workspace)
    with pytest.raises(PushRejected, match="is not ours"):
        publisher(workspace).push()
    assert "main2" not in source.git("branch")


def test_without_a_commit_there_is_nothing_to_push(source, make_workspace):
    with pytest.raises(WorkError, match="no commit"):
        publisher(make_workspace(source)).push()


@pytest.mark.parametrize(
    ("name", "text", "message", "finding"),
    [
        ("a.py", f"token = '{TOKEN}'\n", "m", "GitHub token in a.py"),
        ("a.bin", f"\0\0{TOKEN}\0", "m", "GitHub token in a.bin"),
        ("a.py", "x\n", f"use {TOKEN}", "GitHub token"),
        (".github/workflows/ci.yml", "x\n", "m", ".github/workflows/ci.yml is guarded"),
    ],
)
def test_what_may_not_be_published_stops_the_push(name, text, message, finding, source, make_workspace):
    workspace = make_workspace(source)
    change(workspace)
    change(workspace, name, text, message)
    with pytest.raises(PolicyViolation) as caught:
        publisher(workspace).push()
    assert [found for found in caught.value.findings if finding in found]
    assert TOKEN not in str(caught.value)
    assert BRANCH not in source.git("branch")


def bare_repository(folder):
    """As `git init --bare` makes it, with a file in each folder, since git keeps no empty one."""
    sh("git", "init", "-q", "--bare", str(folder), cwd=folder.parent)
    for name in ("objects", "refs"):
        (folder / name / "keep").write_text("")


@pytest.mark.parametrize("way", ["whole", "HEAD renamed", "commondir", "the last part"])
def test_an_embedded_bare_repository_stops_the_push(way, source, make_workspace):
    """git runs what the config of such a folder names, as soon as somebody calls it there."""
    (source.path / "a").mkdir()
    if way == "the last part":
        bare_repository(source.path / "a" / "repo")
        (source.path / "a" / "repo" / "HEAD").unlink()
        source.commit()
    workspace = make_workspace(source)
    folder = workspace.tree / "a" / "repo"
    if way == "the last part":
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
    else:
        folder.parent.mkdir(exist_ok=True)
        bare_repository(folder)
    if way == "HEAD renamed":
        (folder / "HEAD").rename(folder / "Head")
    elif way == "commondir":
        for name in ("objects", "refs"):
            (folder / name).rename(folder.parent / name)
        (folder / "commondir").write_text("..\n")
    commit(workspace, "a repository")
    check = publisher(workspace, guarded=guarded)
    with pytest.raises(PolicyViolation, match="PA-10 a/repo is taken for a repository"):
        check.check()
    publisher(workspace, guarded=partial(guarded, look=("a/",))).check()


def test_a_folder_that_only_looks_like_one_stops_nothing(source, make_workspace):
    workspace = make_workspace(source)
    for name in (
        "src/hooks/use.ts",
        "src/refs/index.ts",
        "src/objects/a.ts",
        "src/config",
        "HEAD",
        "objects/a",
        "refs/b",
    ):
        change(workspace, name)
    publisher(workspace, guarded=guarded).check()


def test_what_no_push_takes_along_stops_none(source, make_workspace):
    """A repository in an ignored folder or in the tree, and the examples that vendors print."""
    source.write(".gitignore", "vendor/\n")
    source.commit()
    workspace = make_workspace(source)
    for name in ("vendor/dep", "sub"):
        sh("git", "init", "-q", str(workspace.tree / name), cwd=source.path)
    made = change(
        workspace, "tests/test_aws.py", "key = 'AKIAIOSFODNN7EXAMPLE'; 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'\n"
    )
    assert publisher(workspace).push() == made


def test_a_file_that_the_host_does_not_take_is_named_before_the_push(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, "data/big.bin", "x" * 3_000_001)
    change(workspace, "data/big.bin", "x")  # a push takes every commit along
    change(workspace, "data/fits.bin", "y" * 2_999_999)
    small = publisher(workspace)
    small.largest = 3_000_000
    with pytest.raises(PolicyViolation) as caught:
        small.push()
    assert [found.partition(":")[0] for found in caught.value.findings] == [
        "data/big.bin has 2.9 MiB, and the host takes files up to 2.9 MiB"
    ]
    assert BRANCH not in source.git("branch")
    reopened = make_workspace(source)
    change(reopened, "other.txt")
    again = publisher(reopened)
    again.largest = 3_000_000
    again.push()
    assert reopened.changed_paths() == ["data/big.bin", "data/fits.bin", "other.txt"]


def test_a_secret_that_the_next_commit_removes_stops_the_push(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, "a.py", f"token = '{TOKEN}'\n")
    change(workspace, "a.py", "token = None\n")
    with pytest.raises(PolicyViolation, match="GitHub token"):
        publisher(workspace).check()


def test_what_was_refused_and_put_right_is_published_without_its_history(source, make_workspace):
    workspace = make_workspace(source)
    pushed = change(workspace, "first.txt")
    publisher(workspace).push()
    change(workspace, "good.txt")
    change(workspace, "a.py", f"token = '{TOKEN}'\n")
    with pytest.raises(PolicyViolation, match="GitHub token"):
        publisher(workspace).push()
    reopened = make_workspace(source)
    made = change(reopened, "a.py", "token = None\n")
    assert publisher(reopened).push() == made
    assert source.git("rev-parse", f"{BRANCH}~1").strip() == pushed
    assert TOKEN not in source.git("log", "-p", BRANCH)
    assert reopened.changed_paths() == ["a.py", "first.txt", "good.txt"]


def test_what_was_refused_and_not_put_right_is_refused_again(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, "a.py", f"token = '{TOKEN}'\n")
    for _ in range(2):
        with pytest.raises(PolicyViolation, match="GitHub token"):
            publisher(workspace).push()
        assert commit(workspace)


def test_a_commit_that_was_checked_is_not_checked_again_but_a_new_one_is(source, make_workspace):
    workspace = make_workspace(source)
    seen = []
    publishing = publisher(workspace, scan=lambda chunks: seen.append(b"".join(chunks)) or [])
    change(workspace)
    publishing.check()
    publishing.push()
    assert len(seen) == 1
    change(workspace, "two.txt")
    publishing.push()
    assert len(seen) == 2
    assert b"two.txt" in seen[1]


def test_the_other_half_of_a_push_is_not_ended_with_its_task(source, make_workspace):
    hook = source.path / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nenv > seen\n")
    hook.chmod(0o755)
    workspace = make_workspace(source)
    change(workspace)
    workspace.mirror.remote = Remote(workspace.mirror.url, env={proc.MARK: "11111111-2222"})
    publisher(workspace).push()
    seen = (source.path / ".git/seen").read_text()
    assert "GIT_DIR=" in seen
    assert proc.MARK not in seen


def test_a_refusing_hook_of_the_other_side_is_told(source, make_workspace):
    hook = source.path / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'GH006: Protected branch\x1b[31m, ask a maintainer' >&2\nexit 1\n")
    hook.chmod(0o755)
    workspace = make_workspace(source)
    made = change(workspace)
    effects = Receipts()
    with pytest.raises(PushRejected, match="GH006: Protected branch") as caught:
        publisher(workspace, effects).push()
    assert "\x1b" not in str(caught.value)
    assert isinstance(caught.value.__cause__, GitError)
    assert caught.value.__cause__.__cause__ is None, "no error is its own cause"
    assert workspace.head() == made
    hook.unlink()
    assert publisher(workspace, effects).push() == made


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        ("error: GH006: Protected branch update failed", "branch_protected", "let the account push"),
        ("GitLab: You are not allowed to push code to protected branches on this project.", "branch_protected", "rule"),
        ("error: GH013: Repository rule violations found", "branch_protected", "a rule protects this name"),
        ("Forgejo: branch makimono/1-fix is protected from force push", "branch_protected", "let the account push"),
        ("Forgejo: User permission denied for writing.", "push_forbidden", "Write on GitHub and Forgejo"),
        ("Forgejo: branch main is protected from an unverified commit 1a2b3c", "push_rejected", "commit.signing_key"),
        ("GitLab: You are not allowed to push code to this project.", "push_forbidden", "Developer on GitLab"),
        ("ERROR: Permission to acme/web.git denied to makimono.", "push_forbidden", "Write on GitHub"),
        ("This repository was archived so it is read-only.", "repository_archived", "unarchive it"),
        ("commit message must name a ticket", "push_rejected", "look at the rules"),
    ],
)
def test_each_refusal_of_a_push_has_its_code_and_what_to_do(words, code, advice, source, make_workspace):
    hook = source.path / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    hook.chmod(0o755)
    workspace = make_workspace(source)
    made = change(workspace)
    with pytest.raises(PushRejected, match=advice) as caught:
        publisher(workspace).push()
    assert caught.value.code == code
    assert words.split(": ")[-1] in str(caught.value)
    assert workspace.head() == made


def test_a_host_that_is_ill_is_tried_again_and_is_no_refusal_of_the_branch(source, make_workspace):
    hook = source.path / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'GitLab: Internal API unreachable' >&2\nexit 1\n")
    hook.chmod(0o755)
    workspace = make_workspace(source)
    made = change(workspace)
    with pytest.raises(RemoteRefused, match=r"could not store it just now.*Internal API unreachable"):
        publisher(workspace).push()
    hook.unlink()
    assert publisher(workspace).push() == made
    declined = " ! [remote rejected] a -> a (pre-receive hook declined)\nremote: "
    for ill in (
        "GitLab: Internal API error (503)",
        "GitLab: Failed to authorize your Git request: internal API unreachable",
        "GitLab: API is not accessible",
        "Forgejo: Internal Server Connection Error",
        "fatal error in commit_refs",
        "Gitea: Internal Server Error",  # go-gitea/gitea#22293
        "Unable to contact gitea: Post http://127.0.0.1:3000/api: connection refused",
        "error: unable to write loose object file: No space left on device        ",
        "GitLab: The project is in maintenance mode",
    ):
        assert push_errors.remedy(declined + ill)
    for ill in (
        "unable to migrate objects to permanent storage",
        "transaction failed to start",
        "failed to update ref",
    ):
        assert push_errors.remedy(f" ! [remote rejected] a -> a ({ill})")
    assert push_errors.remedy(
        "error: remote unpack failed: unable to write\n ! [remote rejected] a -> a (unpacker error)"
    )


@pytest.mark.parametrize(
    "line",
    [
        "GitLab: Internal API error (403)",
        "",
        "error: secret found in src/maintenance.py",
        "GitLab: src/maintenance/plan.md: file name is prohibited by the pattern 'plan'",
        "ERROR: files under maintenance/ need approval",
        "Ticket PROJ-1 is in status Maintenance; pushes need an open ticket",
        "Policy check timed out? no: file 'docs/timeout.md' is not allowed",
        "error: tests/test_timeout.py: line 3: Timed out is no message",
        "Lint: timeout.py:3: bad; please fix and try again later",
        "file disk-out-of-memory.txt exceeds the limit of 10 MB",
        "you must not use internal error codes",
        "unable to write summary",
    ],
)
def test_a_hook_that_refuses_a_commit_is_no_ill_host_whatever_it_quotes(line):
    rejected = " ! [remote rejected] makimono/1-timeout -> makimono/1-timeout ({})\nremote: {}\n"
    tail = "error: failed to push some refs to 'https://h/maintenance.git'\n"
    assert not push_errors.remedy(rejected.format("pre-receive hook declined", line) + tail)
    # docs.github.com, "Refusing to allow an OAuth App to create or update workflow": the reason names the file
    workflow = "refusing to allow a GitHub App to create or update workflow `.github/workflows/maintenance.yml`"
    assert not push_errors.remedy(rejected.format(workflow, line) + tail)


def test_a_branch_that_a_person_has_checked_out_is_published_once_another_one_is(source, make_workspace):
    workspace = make_workspace(source)
    made = change(workspace)
    source.git("checkout", "-q", "-b", workspace.branch)
    with pytest.raises(RemoteRefused, match="check out another one"):
        publisher(workspace).push()
    source.git("checkout", "-q", "main")
    source.git("branch", "-q", "-D", workspace.branch)
    assert publisher(workspace).push() == made


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_push_of_the_same_branch_that_is_under_way_is_waited_for(whose, source, make_workspace):
    """The attempt before was cut off while the other side still went on."""
    workspace = make_workspace(source)
    made = change(workspace)
    arrives = made if whose == "ours" else source.git("rev-parse", "main").strip()
    hook = source.path / ".git/hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nrm -f "$0"\ngit update-ref "$1" {arrives}\n')
    hook.chmod(0o755)
    with clock.use(clock.FakeClock()) as time:
        if whose == "ours":
            assert publisher(workspace).push() == made
            assert time.slept == [1.0]
        else:
            with pytest.raises(PushRejected, match="stale info") as caught:
                publisher(workspace).push()
            assert caught.value.code == "branch_moved"
    assert source.git("rev-parse", BRANCH).strip() == arrives


def test_a_push_that_git_calls_done_and_that_left_nothing_is_not_published(source, make_workspace):
    workspace = make_workspace(source)
    made = change(workspace)
    effects = Receipts()
    hook = source.path / ".git/hooks/post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ngit update-ref -d refs/heads/{BRANCH}\n")
    hook.chmod(0o755)
    with clock.use(clock.FakeClock()) as time:
        with pytest.raises(RemoteRefused, match=f"git said that it pushed {made[:12]} .* is not there"):
            publisher(workspace, effects).push()
        assert time.slept == [1.0, 2.0, 4.0, 8.0]
    assert workspace.state.pushed is None
    hook.unlink()
    assert publisher(workspace, effects).push() == made
    assert source.git("rev-parse", BRANCH).strip() == made


@pytest.mark.parametrize("owner", ["dead", "alive"])
def test_the_lock_of_our_branch_is_removed_in_a_folder_where_nobody_has_it(owner, source, make_workspace):
    """A push that was killed has left it; its git was a child of ours."""
    workspace = make_workspace(source)
    made = change(workspace)
    lock = source.path / ".git/refs/heads" / f"{BRANCH}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held, clock.use(clock.FakeClock()):
        if owner == "alive":
            with pytest.raises(RemoteRefused, match="has left the lock of that branch") as caught:
                publisher(workspace).push()
            assert "by hand" not in str(caught.value)
            assert "manually" not in str(caught.value)
            assert "Another git process" not in str(caught.value)
            assert lock.exists()
        held.close()
        assert publisher(workspace).push() == made
    assert source.git("rev-parse", BRANCH).strip() == made
    assert not lock.exists()


def test_the_lock_of_another_branch_is_left_to_whoever_keeps_the_repository(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace)
    lock = source.path / ".git/refs/heads/main.lock"
    lock.touch()
    said = f"remote: error: cannot lock ref 'refs/heads/main': Unable to create '{lock}': File exists."
    assert not publisher(workspace)._unlock(said)
    assert lock.exists()


def test_a_branch_that_is_in_the_way_of_our_name_is_said(source, make_workspace):
    workspace = make_workspace(source)
    source.git("branch", "makimono")  # a file where ours needs a folder
    change(workspace)
    with pytest.raises(PushRejected, match="in the way") as caught:
        publisher(workspace).push()
    assert caught.value.code == "branch_taken"


@pytest.mark.parametrize("there", ["makimono", f"{BRANCH}/more"])
def test_a_branch_that_was_in_the_way_from_the_start_is_said_before_any_work(source, make_workspace, there):
    source.git("branch", there)
    with pytest.raises(PushRejected, match=r"set `branch\.prefix`") as caught:
        make_workspace(source)
    assert caught.value.code == "branch_taken"
    assert f"a branch {there!r}" in str(caught.value)


def test_an_other_side_that_is_gone_is_an_error_of_its_own(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace)
    workspace.mirror.remote = Remote("http://127.0.0.1:1/x.git")
    with pytest.raises(GitError):
        publisher(workspace).push()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("reachable", [True, False])
def test_as_root_a_push_leaves_nothing_of_root_in_somebodys_repository(reachable, make_workspace, tmp_path):
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755 if reachable else 0o700)
        source = Source(tmp_path.__class__(folder) / "theirs")
        source.commit("first")
        canary = tmp_path.__class__(folder) / "theirs/whoami"
        hook = source.path / ".git/hooks/post-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\nid -u > {canary}\n")
        hook.chmod(0o755)
        for parent, folders, files in os.walk(source.path):
            for name in (*folders, *files, "."):
                os.lchown(os.path.join(parent, name), OTHER_UID, OTHER_UID)
        workspace = make_workspace(source)
        made = change(workspace)
        publisher(workspace).push()
        env = {**ENV, "GIT_CONFIG_GLOBAL": "/dev/null"}
        out = sh("git", "-c", "safe.directory=*", "rev-parse", BRANCH, cwd=source.path, env=env)
        assert out.strip() == made
        if reachable:
            assert canary.read_text() == f"{OTHER_UID}\n"  # the owner's hook runs as the owner, as with any push
        else:
            assert not canary.exists()  # and never as root
        for parent, folders, files in os.walk(source.path):
            for name in (*folders, *files):
                assert os.lstat(os.path.join(parent, name)).st_uid == OTHER_UID, name


def test_over_http_a_token_is_read_at_each_call_and_kept_nowhere(served, make_workspace, tmp_path):
    _, url, bare = served
    calls = []
    mirror = Mirror(
        tmp_path / "contexts", "h", "o", "r", Remote(url, credentials=lambda: calls.append(1) or ("u", "good-password"))
    )
    mirror.fetch()
    workspace = make_workspace(None, mirror=mirror)
    made = change(workspace)
    publisher(workspace).push()
    assert git("rev-parse", BRANCH, git_dir=bare).output.decode().strip() == made
    assert len(calls) >= 4
    for parent, _, files in os.walk(tmp_path / "contexts"):
        for name in files:
            with open(os.path.join(parent, name), "rb") as file:
                assert b"good-password" not in file.read(), name


def test_an_expired_token_is_asked_for_once_more(served, tmp_path):
    _, url, _ = served
    tokens = iter(["expired", "good-password"])
    mirror = Mirror(
        tmp_path / "c", "h", "o", "r", Remote(url, credentials=lambda: ("u", next(tokens, "good-password")))
    )
    mirror.fetch()
    assert mirror.default_branch() == "main"


def test_a_token_that_can_be_made_anew_is_renewed_once_after_a_refusal(served, tmp_path):
    _, url, _ = served
    tokens, renewed = ["expired"], []

    def renew():
        renewed.append(tokens.pop())
        tokens.append("good-password")

    mirror = Mirror(tmp_path / "c", "h", "o", "r", Remote(url, credentials=lambda: ("u", tokens[0]), renew=renew))
    mirror.fetch()
    assert mirror.default_branch() == "main"
    assert renewed == ["expired"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/x.git", "https://nowhere.invalid/x.git"])
def test_an_other_side_that_cannot_be_reached_is_away_not_refusing(address, tmp_path):
    with pytest.raises(RemoteAway, match="cannot be reached"):
        Mirror(tmp_path / "c", "h", "o", "r", Remote(address)).fetch()


def test_a_server_that_fails_is_away(served, make_workspace, tmp_path):
    server, url, _ = served
    mirror = Mirror(tmp_path / "contexts", "h", "o", "r", Remote(url, credentials=lambda: ("u", "good-password")))
    mirror.fetch()
    workspace = make_workspace(None, mirror=mirror)
    change(workspace)
    server.status = 502
    with pytest.raises(RemoteAway, match="502"):
        publisher(workspace).push()


def test_a_token_that_stays_refused_is_told_without_it(served, tmp_path):
    _, url, _ = served
    mirror = Mirror(tmp_path / "c", "h", "o", "r", Remote(url, credentials=lambda: ("u", "wrong-password")))
    with pytest.raises(WorkError, match="was refused; check the token") as caught:
        mirror.fetch()
    assert "wrong-password" not in str(caught.value)
    assert url in str(caught.value)


def test_a_token_without_the_right_to_push_keeps_the_commit(served, make_workspace, tmp_path):
    server, url, _ = served
    mirror = Mirror(tmp_path / "contexts", "h", "o", "r", Remote(url, credentials=lambda: ("u", "good-password")))
    mirror.fetch()
    workspace = make_workspace(None, mirror=mirror)
    made = change(workspace)
    server.forbid = True
    with pytest.raises(RemoteRefused, match="check the token"):
        publisher(workspace).push()
    assert workspace.head() == made
    server.forbid = False
    assert publisher(workspace).push() == made


def test_a_repository_that_is_not_on_the_server_is_missing(served, tmp_path):
    from agent.errors import RepositoryMissing

    _, url, _ = served
    mirror = Mirror(
        tmp_path / "c",
        "h",
        "o",
        "r",
        Remote(url.replace("repo.git", "none.git"), credentials=lambda: ("u", "good-password")),
    )
    with pytest.raises(RepositoryMissing, match="or the token may not see it"):
        mirror.fetch()


def test_the_tree_of_what_was_pushed_goes_and_can_be_made_again(source, make_workspace):
    source.write(".gitignore", "build/\n")
    source.commit()
    workspace = make_workspace(source)
    change(workspace, "new.txt")
    workspace.update_state(setup="key")
    (workspace.tree / "build").mkdir()
    (workspace.tree / "build" / "out.o").write_text("x")
    assert not workspace.discard(), "it was not pushed"
    publisher(workspace).push()
    (workspace.tree / "late.txt").write_text("x")
    assert not workspace.discard(), "this is in no commit"
    (workspace.tree / "late.txt").unlink()
    assert not workspace.discard(["build/out.o"]), "a tool wrote it, and no commit has it"
    assert (workspace.tree / "build/out.o").exists()
    assert workspace.discard(["new.txt"])
    assert not workspace.tree.exists()
    again = make_workspace(source)
    assert (again.tree / "new.txt").exists()
    assert not (again.tree / "build").exists()
    assert (again.state.setup, again.state.gone, again.uncommitted()) == ("", False, [])


def test_the_tree_of_a_task_that_changed_nothing_goes(source, make_workspace):
    workspace = make_workspace(source)
    assert workspace.discard()
    assert not workspace.tree.exists()


def test_a_commit_that_was_searched_is_not_searched_again(source, make_workspace):
    read = []

    def scan(chunks):
        read.append(b"".join(chunks))
        return []

    workspace = make_workspace(source)
    change(workspace, text="first\n")
    one = publisher(workspace, scan=scan)
    one.check()
    one.check()
    change(workspace, "two.txt", "second\n")
    one.check()
    assert (b"first" in read[0], read[1], b"second" in read[2], b"first" in read[2]) == (True, b"", True, False)
    workspace.take_back(workspace.start)
    change(workspace, "three.txt", "third\n")
    one.check()
    assert all(text in read[3] for text in (b"first", b"second", b"third")), (
        "another history is searched from its start"
    )


def test_a_search_that_found_something_is_repeated(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, text=f"{TOKEN}\n")
    one = publisher(workspace)
    for _ in range(2):
        with pytest.raises(PolicyViolation):
            one.check()


def test_a_search_ends_when_the_task_is_told_to_stop(source, make_workspace):
    stopping = []

    def scan(chunks):
        stopping.append(True)
        return list(chunks)

    workspace = make_workspace(source)
    change(workspace)
    with deadline.listening(lambda: bool(stopping)), pytest.raises(StopHeard):
        publisher(workspace, scan=scan).check()


def test_a_file_that_the_host_does_not_take_is_never_read_and_the_others_are_committed(source, make_workspace):
    workspace = make_workspace(source, largest=1 << 20)
    (workspace.tree / "flood.bin").write_bytes(b"\0" * ((1 << 20) + 1))
    (workspace.tree / "src/app.py").write_bytes(b"\0" * (2 << 20))
    assert change(workspace, "a.txt")
    assert workspace.changed_paths() == ["a.txt"]
    assert [line.partition(" and ")[0] for line in workspace.too_large] == [
        "src/app.py has 2.0 MiB",
        "flood.bin has 1.0 MiB",
    ]
    stored = git("cat-file", "--batch-all-objects", "--batch-check=%(objectsize)", git_dir=workspace.git_dir).output
    assert max(map(int, stored.split())) < 1 << 20
    assert [one.path for one in workspace.changes_now()] == ["src/app.py", "a.txt"]
    (workspace.tree / "flood.bin").write_text("small")
    (workspace.tree / "src/app.py").write_text("a = 2\n")
    assert commit(workspace)
    assert workspace.too_large == [line for line in workspace.reports if "was left out" in line] == []
    publisher(workspace).push()


def test_many_small_files_are_read_by_one_git(source, make_workspace):
    """A process for each of 20,000 files took minutes."""
    workspace = make_workspace(source)
    (workspace.tree / "d").mkdir()
    for number in range(400):
        (workspace.tree / "d" / str(number)).write_text(f"{number}\n")
        (workspace.tree / "d" / f"{number}.link").symlink_to(f"{number}")
    change(workspace)
    entries = workspace.entries()
    assert len(entries) == 801

    def look():
        began = os.times()
        workspace.lfs_pointers()
        assert changes.mode_findings(workspace.git_dir, entries) == []
        ended = os.times()
        return ended.children_user + ended.children_system - began.children_user - began.children_system

    def one_git():
        began = os.times()
        git("rev-parse", "HEAD", git_dir=workspace.git_dir)
        ended = os.times()
        return ended.children_user + ended.children_system - began.children_user - began.children_system

    assert min(look() for _ in range(3)) < 80 * max(0.01, *(one_git() for _ in range(3)))


def test_a_link_out_of_the_tree_is_found_among_many(source, make_workspace):
    workspace = make_workspace(source)
    for number in range(3):
        (workspace.tree / f"{number}.link").symlink_to("README.md" if number else "../outside")
    commit(workspace)
    with pytest.raises(PolicyViolation, match=r"0\.link is a symlink to \.\./outside"):
        publisher(workspace).check()
