"""Git LFS: content becomes pointers that git-lfs itself reads, and comes into new work trees."""

import hashlib
import os
import shutil
import threading
from http.server import ThreadingHTTPServer

import pytest
from lfs_backend import LfsBackend
from services import absent
from work_repos import Receipts, commit, sh

from agent.errors import ContentWrong, PolicyViolation, PushRejected, RemoteAway
from agent.security.secrets import scan
from agent.work import Publisher
from agent.work import lfs as lfs_module
from agent.work.checkout import checked_out

OLD, NEW = b"\0old content\n" * 700, b"\0new content\n" * 900
BRANCH = "makimono/7-11111111"


def oid(content):
    return hashlib.sha256(content).hexdigest()


def pointer(content):
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid(content)}\nsize {len(content)}\n"


@pytest.fixture
def lfs_source(source):
    source.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    source.write("old.bin", pointer(OLD))
    source.write("lost.bin", pointer(b"nobody has it"))
    source.commit()
    return source


@pytest.fixture
def lfs(lfs_source, tmp_path):
    root = tmp_path / "served"
    root.mkdir()
    sh("git", "clone", "-q", "--bare", str(lfs_source.path), str(root / "repo.git"), cwd=tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), LfsBackend)
    server.root, server.passwords, server.accepted, server.forbid = str(root), [], {"good-password"}, False
    server.status, server.page, server.stalls = None, None, []
    server.objects, server.verified, server.refuse, server.over_quota = {oid(OLD): OLD}, [], {}, set()
    server.log, server.logins_at_storage = [], []
    server.url = f"http://127.0.0.1:{server.server_port}/repo.git"
    server.bare = root / "repo.git"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(lfs, make_mirror, make_workspace):
    def make(**options):
        mirror = make_mirror(lfs.url, credentials=lambda: ("x", "good-password"))
        return make_workspace(None, mirror=mirror, **options)

    return make


def publisher(workspace):
    return Publisher(workspace, Receipts(), scan=lambda chunks: scan(chunks, ()), guarded=lambda *_: [])


def git_status(workspace):
    return sh("git", f"--git-dir={workspace.git_dir}", f"--work-tree={workspace.tree}", "status", "--short", cwd="/")


def test_a_new_tree_has_the_content_and_nothing_is_changed_by_it(opened, lfs):
    workspace = opened()
    assert (workspace.tree / "old.bin").read_bytes() == OLD
    assert (workspace.tree / "lost.bin").read_text() == pointer(b"nobody has it")
    (told,) = [line for line in workspace.reports if line.startswith("Git LFS: ")]
    assert "Object does not exist" in told
    assert git_status(workspace) == ""
    assert workspace.uncommitted() == []
    assert commit(workspace) is None
    assert lfs.logins_at_storage == [None]  # the token stays on the forge
    with checked_out(workspace, workspace.head()) as place:
        assert (place.tree / "old.bin").read_bytes() == OLD
    opened(uuid="second")
    assert lfs.logins_at_storage == [None]  # the mirror had it
    (workspace.git_dir / "index").write_bytes(b"half")  # as a power loss leaves it
    workspace.open()
    assert workspace.uncommitted() == []


def test_the_limit_leaves_pointers(opened, lfs):
    workspace = opened(lfs_limit=len(OLD) - 1)
    assert (workspace.tree / "old.bin").read_text() == pointer(OLD)
    assert lfs.log == ["download"]
    assert any("workspace.lfs_limit" in line for line in workspace.reports)


def test_changed_and_new_content_is_uploaded_before_the_push(opened, lfs, tmp_path):
    workspace = opened()
    (workspace.tree / "old.bin").write_bytes(NEW)
    (workspace.tree / "sub").mkdir()
    (workspace.tree / "sub/50% of 'it'.bin").write_bytes(b"\0more")
    for path in workspace.tree.rglob("*.bin"):  # git reads a file anew that is as young as its index
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (workspace.tree / "copy.bin").write_text(pointer(OLD))  # a pointer whose content is there
    assert workspace.why_left_out("sub/50% of 'it'.bin") == ""
    head = commit(workspace)
    assert workspace.left_behind(["old.bin", "sub/50% of 'it'.bin"]) == []
    assert (git_status(workspace), workspace.uncommitted()) == ("", [])
    assert publisher(workspace).push() == head
    assert {lfs.objects[oid(NEW)], lfs.objects[oid(b"\0more")]} == {NEW, b"\0more"}
    assert sorted(lfs.verified) == sorted([oid(NEW), oid(b"\0more")])
    assert set(lfs.logins_at_storage) == {None}
    assert sh("git", "show", f"{BRANCH}:old.bin", cwd=lfs.bare) == pointer(NEW)
    if shutil.which("git-lfs") is None:
        absent("git-lfs is not here (scripts/test-peers)")
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"), "GIT_TERMINAL_PROMPT": "0"}
    sh("git", "lfs", "install", cwd=home, env=env)
    clone = home / "clone"
    address = lfs.url.replace("http://", "http://x:good-password@")
    sh("git", "clone", "-q", "-b", BRANCH, address, str(clone), cwd=home, env={**env, "GIT_LFS_SKIP_SMUDGE": "1"})
    sh("git", "lfs", "pull", "--exclude=lost.bin", cwd=clone, env=env)
    assert (clone / "old.bin").read_bytes() == NEW
    assert (clone / "sub/50% of 'it'.bin").read_bytes() == b"\0more"
    assert sh("git", "status", "--short", cwd=clone, env=env) == ""
    sh("git", "lfs", "fsck", "--pointers", cwd=clone, env=env)


@pytest.mark.parametrize("status", [403, 404, 501, 507])
def test_where_the_forge_takes_no_content_nothing_is_pushed(opened, lfs, status):
    workspace = opened()
    lfs.refuse["upload"] = status
    (workspace.tree / "new.bin").write_bytes(NEW)
    commit(workspace)
    with pytest.raises(PushRejected, match=f"status {status}: Git LFS is not for you") as refused:
        publisher(workspace).push()
    assert refused.value.code == "lfs_refused"
    assert BRANCH not in sh("git", "branch", cwd=lfs.bare)
    (workspace.tree / "new.bin").unlink()  # what the model may do about it
    (workspace.tree / "other.txt").write_text("x")
    commit(workspace)
    publisher(workspace).push()
    assert workspace.changed_paths() == ["other.txt"]
    assert not workspace.lfs_pointers()


def test_one_object_that_is_refused_keeps_the_branch_back(opened, lfs):
    workspace = opened()
    lfs.over_quota.add(oid(NEW))
    (workspace.tree / "new.bin").write_bytes(NEW)
    commit(workspace)
    with pytest.raises(PushRejected, match=r"new\.bin: over its data quota \(507\)"):
        publisher(workspace).push()
    lfs.over_quota.clear()
    (workspace.tree / "new.bin").write_text(pointer(b"made up"))
    commit(workspace)
    with pytest.raises(PushRejected, match="content that is neither here nor on the other side"):
        publisher(workspace).push()
    assert BRANCH not in sh("git", "branch", cwd=lfs.bare)


def test_a_server_that_is_busy_is_asked_again_later(opened, lfs):
    workspace = opened()
    lfs.refuse["upload"] = 503
    (workspace.tree / "new.bin").write_bytes(NEW)
    commit(workspace)
    with pytest.raises(RemoteAway, match="status 503"):
        publisher(workspace).push()
    lfs.refuse.clear()
    publisher(workspace).push()
    assert lfs.objects[oid(NEW)] == NEW


@pytest.mark.parametrize("where", ["objects/batch", "/storage/", "/verify"])
@pytest.mark.parametrize("status", [200, 503])
def test_a_page_in_place_of_an_answer_is_neither_a_refusal_nor_an_upload(opened, lfs, where, status):
    workspace = opened()
    (workspace.tree / "new.bin").write_bytes(NEW)
    made = commit(workspace)
    before = sh("git", "for-each-ref", cwd=lfs.bare)
    lfs.page = lambda _command, path: (status, b"<html><title>Sign in</title></html>") if where in path else None
    with pytest.raises(RemoteAway, match="text/html '<html><title>Sign in"):
        publisher(workspace).push()
    assert sh("git", "for-each-ref", cwd=lfs.bare) == before, "the content is not there, so nothing points to it"
    lfs.page = None
    assert publisher(workspace).push() == made
    assert lfs.objects[oid(NEW)] == NEW


def test_a_secret_in_the_content_is_found(opened):
    workspace = opened()
    token = b"ghp_" + b"a1B2" * 10
    (workspace.tree / "new.bin").write_bytes(b"\0\n@@ -1,1 +0,0 @@\n--- x\n" + token + b"\n")
    commit(workspace)
    with pytest.raises(PolicyViolation, match=r"GitHub token in new\.bin, line 4"):
        publisher(workspace).push()


@pytest.mark.parametrize("where", ["http://127.0.0.1:9/repo.git/info/lfs", "https://attacker.example/lfs", "ssh://x/y"])
def test_a_repository_cannot_send_the_login_elsewhere(lfs_source, lfs, opened, where):
    workspace = opened()
    (workspace.tree / ".lfsconfig").write_text(f'[lfs]\n\turl = "{where}"\n')  # the model's own says nothing
    (workspace.tree / "new.bin").write_bytes(NEW)
    commit(workspace)
    publisher(workspace).push()
    lfs_source.write(".lfsconfig", f'[lfs]\n\turl = "{where}"\n')
    lfs_source.commit()
    lfs_source.git("push", "-q", str(lfs.bare), "HEAD:main")
    other = opened(uuid="second", branch="makimono/8-11111111")
    (other.tree / "other.bin").write_bytes(NEW + b"x")
    commit(other)
    with pytest.raises(PushRejected, match="not the repository's own host"):
        publisher(other).push()


def test_a_folder_of_this_machine_keeps_objects_as_git_lfs_does(lfs_source, make_workspace, tmp_path):
    if shutil.which("git-lfs") is None:
        absent("git-lfs is not here (scripts/test-peers)")
    store = lfs_source.path / ".git/lfs/objects" / oid(OLD)[:2] / oid(OLD)[2:4]
    store.mkdir(parents=True)
    (store / oid(OLD)).write_bytes(OLD)
    workspace = make_workspace(lfs_source)
    assert (workspace.tree / "old.bin").read_bytes() == OLD
    (workspace.tree / "new.bin").write_bytes(NEW)
    os.chmod(workspace.tree / "old.bin", 0o755)
    commit(workspace)
    publisher(workspace).push()
    assert workspace.changed_paths() == ["new.bin", "old.bin"]
    assert sh("git", "ls-tree", BRANCH, "old.bin", cwd=lfs_source.path).startswith("100755")
    env = {"HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig")}
    sh("git", "lfs", "install", cwd=tmp_path, env=env)
    lfs_source.git("rm", "-q", "lost.bin")
    sh("git", "clone", "-q", "-b", BRANCH, f"file://{lfs_source.path}", "clone", cwd=tmp_path, env={**env, "GIT_LFS_SKIP_SMUDGE": "1"})  # fmt: skip
    sh("git", "lfs", "pull", "--exclude=lost.bin", cwd=tmp_path / "clone", env=env)
    assert (tmp_path / "clone/new.bin").read_bytes() == NEW


def object_of(git_dir, content):
    """The path of content in a store."""
    folder = git_dir / "lfs/objects" / oid(content)[:2] / oid(content)[2:4]
    folder.mkdir(parents=True, exist_ok=True)
    return folder / oid(content)


def test_a_damaged_object_of_a_folder_of_this_machine_stays_a_pointer(lfs_source, make_workspace):
    object_of(lfs_source.path / ".git", OLD).write_bytes(b"!" * len(OLD))
    workspace = make_workspace(lfs_source)
    assert (workspace.tree / "old.bin").read_text() == pointer(OLD)
    (told,) = [line for line in workspace.reports if line.startswith("Git LFS: ")]
    assert "the SHA-256 of the content is not that of the pointer" in told


def test_a_damaged_copy_is_not_published_and_named(lfs_source, make_workspace):
    workspace = make_workspace(lfs_source)
    (workspace.tree / "new.bin").write_bytes(NEW)
    commit(workspace)
    object_of(workspace.git_dir, NEW).write_bytes(b"!" * len(NEW))
    with pytest.raises(PushRejected, match=r"the copy of new\.bin on this machine is damaged"):
        publisher(workspace).push()
    assert not object_of(lfs_source.path / ".git", NEW).exists()


def test_a_file_that_changes_while_it_is_committed_is_named_and_nothing_is_stored(opened, monkeypatch):
    workspace = opened()
    path = workspace.tree / "old.bin"
    path.write_bytes(NEW)
    put = lfs_module.Objects.store_content

    def put_changed(self, wanted, blocks):
        path.write_bytes(OLD + b"more")
        put(self, wanted, blocks)

    with monkeypatch.context() as patch:
        patch.setattr(lfs_module.Objects, "store_content", put_changed)
        with pytest.raises(ContentWrong, match=r"old\.bin changed while it was committed"):
            commit(workspace)
    assert not object_of(workspace.git_dir, NEW).exists()
    assert commit(workspace), "the next try commits it"


def test_a_broken_pointer_is_not_content(opened):
    workspace = opened()
    (workspace.tree / "old.bin").write_text(pointer(OLD).replace("size", "sise"))
    assert "begins like a pointer" in workspace.why_left_out("old.bin")
    commit(workspace)
    assert workspace.changed_paths() == []
