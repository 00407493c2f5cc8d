"""What a command of the repository left is hostile: links in the place of folders, trees thousands of folders deep."""

import os
import pwd
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from deep_tree import DEEP, make_deep
from test_work_setup import Runs, settings
from work_repos import Source, commit

from agent import filetree, treecopy
from agent.work import Mirror, Workspace
from agent.work.remote import Remote
from agent.work.setup import prepare

ROOT = os.geteuid() == 0
NOBODY = 65534


def in_child(do, uid=None):
    """Run `do` in a child, as another user where `uid` says so."""
    child = os.fork()
    if not child:
        code = 1
        try:
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            do()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture(params=["as I am", "as an ordinary user"])
def user(request):
    """Runs a function in a folder of its own, as whoever runs the tests and, when that is root, as somebody else."""
    if request.param == "as an ordinary user" and not ROOT:
        pytest.skip("the other one is this one already")
    uid = NOBODY if request.param == "as an ordinary user" else None
    folder = Path(tempfile.mkdtemp(prefix="makimono-hostile-"))
    if uid is not None:
        os.chown(folder, uid, uid)
    yield lambda do: in_child(lambda: do(folder), uid)
    filetree.remove(folder)


def made(folder):
    """A repository, its mirror and a function that opens a workspace; and a folder of the host that is not its own."""
    source = Source(folder / "source")
    source.write("lib/keep.txt", "the repository's\n")
    source.write("lib/sub/deep/keep.txt", "the repository's\n")
    source.write("plain.txt", "the repository's\n")
    source.commit()
    host = folder / "host"
    (host / "sub" / "deep").mkdir(parents=True)
    for name in ("keep.txt", "sub/deep/keep.txt"):
        (host / name).write_text("the host's")
    mirror = Mirror(folder / "contexts", "local", "local", "repo", Remote(str(source.path)))
    mirror.fetch()

    def open_one(uuid):
        context = folder / "contexts" / "running" / uuid
        context.mkdir(parents=True)
        workspace = Workspace(context, mirror, branch=f"makimono/7-{uuid}", base=None)
        workspace.open()
        return workspace

    return SimpleNamespace(host=host, open=open_one)


def put(workspace, command, **options):
    return prepare(
        settings(command), workspace.mirror, workspace, Runs(), home=workspace.context_dir / "home", **options
    )


def whole(host):
    return all((host / name).read_text() == "the host's" for name in ("keep.txt", "sub/deep/keep.txt"))


@pytest.mark.parametrize("relocatable", [True, False], ids=["copied", "in place"])
def test_a_set_up_that_replaces_a_tracked_folder_by_a_link_touches_nothing_of_the_host(user, relocatable):
    def trial(folder):
        place = made(folder)
        for number, command in enumerate(
            (
                f"rm -rf lib; ln -s {place.host} lib",
                f"rm -rf lib/sub; ln -s {place.host}/sub lib/sub",
                f"rm -rf lib/sub/deep; ln -s {place.host}/sub/deep lib/sub/deep; rm plain.txt; ln -s {place.host} plain.txt",
                f"rm -rf lib; ln -s {place.host} lib; ln -s {place.host} $HOME/lib; ln -s {place.host} node_modules",
            )
        ):
            workspace = place.open(f"task-{number}")
            assert put(workspace, command, relocatable=relocatable).ok
            assert whole(place.host), command
            assert (workspace.tree / "lib/keep.txt").read_text() == "the repository's\n"
            assert not (workspace.tree / "lib/sub/deep").is_symlink()
            assert workspace.uncommitted() == [], "what is not carried over is not committed"
            (workspace.tree / "lib/new.txt").write_text("the task's")
            commit(workspace)
            assert workspace.changed_paths() == ["lib/new.txt"], "and new files beside it still are"

    user(trial)


def test_a_set_up_thousands_of_folders_deep_is_copied_and_removed(user):
    def trial(folder):
        place = made(folder)
        first, second = place.open("task-1"), place.open("task-2")

        def run(command, tree, home, *rest):
            make_deep(tree)
            make_deep(home)
            return Runs()(command, tree, home, *rest)

        for workspace in (first, second):
            home = workspace.context_dir / "home"
            report = prepare(settings("mkdir closed; chmod 0 closed"), workspace.mirror, workspace, run, home=home)
            assert report.ok, report
            assert filetree.size(home) == 5000
            assert sum(entry.left for entry in filetree.walk(workspace.tree)) > DEEP
        assert report.cached
        filetree.remove(folder / "contexts")

    user(trial)


def test_a_tree_thousands_of_folders_deep_is_judged_and_committed(source, make_workspace):
    workspace = make_workspace(source)
    make_deep(workspace.tree)
    (workspace.tree / "new.txt").write_text("x")
    assert workspace.guard() == []
    commit(workspace)
    assert workspace.changed_paths() == ["new.txt"]
    (workspace.tree / ".git").unlink()
    (workspace.tree / ".git").mkdir()
    make_deep(workspace.tree / ".git")
    assert workspace.guard() == []
    assert (workspace.tree / ".git").is_file()


def test_a_copy_says_what_it_could_not_read_and_goes_on(user):
    def trial(folder):
        (folder / "tree" / "closed").mkdir(parents=True)
        (folder / "tree" / "closed" / "x").write_text("x")
        (folder / "tree" / "open").write_text("x")
        (folder / "tree" / "secret").write_text("x")
        (folder / "tree" / "secret").chmod(0)
        (folder / "tree" / "closed").chmod(0)
        copy = treecopy.Copy()
        copy.tree(folder / "tree", folder / "copy")
        missed = [] if os.geteuid() == 0 else ["closed: Permission denied", "secret: Permission denied"]
        assert sorted(copy.missed) == missed
        assert (folder / "copy" / "open").read_text() == "x"

    user(trial)


def test_what_root_wrote_into_a_persons_repository_is_given_back_and_nothing_else(tmp_path):
    if not ROOT:
        pytest.skip("only root writes for others")
    from agent.work.remote import Remote

    person = pwd.getpwnam("nobody").pw_uid
    private = tmp_path / "private"  # so that git cannot be run as the owner
    private.mkdir(mode=0o700)
    source = Source(private / "repo")
    source.commit()
    for path in [source.path, *source.path.rglob("*")]:
        os.chown(path, person, person, follow_symlinks=False)
    precious = tmp_path / "precious"
    precious.write_text("root's")
    git = source.path / ".git"
    os.link(precious, git / "objects" / "linked")
    (git / "way").symlink_to(tmp_path)
    (git / "objects" / "by-root").write_text("x")
    Remote(str(source.path))._give_to_owner()
    assert (git / "objects" / "by-root").stat().st_uid == person
    assert precious.stat().st_uid == 0
