"""A clean check-out: the commit, the set-up as its command left it, and nothing that the task's commands made."""

from types import SimpleNamespace

from test_work_setup import COMMAND, Runs, put, settings
from work_repos import commit

from agent.work import setup
from agent.work.checkout import NAME, checked_out


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def worked(source, make_workspace, **options):
    """A workspace with a set-up, a commit, and what a push does not take along."""
    source.write(".gitignore", "lib/\nnode_modules/\n")
    source.commit("ignore")
    workspace = make_workspace(source, **options)
    put(workspace)
    (workspace.tree / "src/app.py").write_text("import lib.util\n")
    (workspace.tree / "lib").mkdir()
    (workspace.tree / "lib/util.py").write_text("x = 1\n")
    (workspace.tree / "node_modules/x/i.js").write_text("changed by the task\n")
    (workspace.context_dir / "home/.local/bin/tool").write_text("changed by the task\n")
    commit(workspace)
    (workspace.tree / "README.md").write_text("not committed\n")
    return workspace


def test_it_holds_the_commit_and_the_set_up_as_it_was_left(source, make_workspace):
    workspace = worked(source, make_workspace)
    with checked_out(workspace, workspace.head()) as place:
        assert names(place.home) == []
        setup.copy_setup(settings(COMMAND), workspace, Runs(), place, workspace.head())
        assert names(place.tree) == [".git", ".gitignore", "README.md", "node_modules/x/i.js", "src/app.py"]
        assert (place.tree / "README.md").read_text() == "hello\n"
        assert (place.tree / "node_modules/x/i.js").read_text() == "1\n"
        assert (place.home / ".local/bin/tool").read_text() == "t\n"
        (place.tree / "closed").mkdir()
        (place.tree / "closed/file").write_text("x")
        (place.tree / "closed").chmod(0)
    assert not (workspace.context_dir / NAME).exists()
    assert (workspace.tree / "README.md").read_text() == "not committed\n"


def test_a_set_up_that_is_gone_from_the_cache_is_made_again(source, make_workspace):
    workspace, runs = worked(source, make_workspace), Runs()
    (workspace.mirror.base_dir / "setup" / workspace.state.setup / "done.json").unlink()
    with checked_out(workspace, workspace.head()) as place:
        setup.copy_setup(settings(COMMAND), workspace, runs, place, workspace.head())
        assert (place.tree / "node_modules/x/i.js").read_text() == "1\n"
    assert len(runs.seen) == 1


def test_without_a_sandbox_the_command_runs_again_on_the_base_commit(source, make_workspace):
    workspace, runs = worked(source, make_workspace, isolated=False), Runs()
    command = f"cp src/app.py seen; echo broken > README.md; rm .gitignore; {COMMAND}"
    with checked_out(workspace, workspace.head()) as place:
        setup.copy_setup(settings(command), workspace, runs, place, workspace.head(), relocatable=False)
        assert (place.tree / "seen").read_text() == "a = 1\nb = 2\nc = 3\n"
        assert (place.tree / "src/app.py").read_text() == "import lib.util\n"
        assert (place.tree / "README.md").read_text() == "hello\n"
        assert (place.tree / ".gitignore").exists()
        assert (place.tree / ".git").read_text() == f"gitdir: {workspace.git_dir}\n"
    assert [one.tree for one in runs.seen] == [workspace.context_dir / NAME / "tree"]


def test_without_a_set_up_there_is_the_commit_alone(source, make_workspace):
    workspace = worked(source, make_workspace)
    nothing = SimpleNamespace(workspace=SimpleNamespace(setup=None))
    with checked_out(workspace, workspace.base_commit) as place:
        setup.copy_setup(nothing, workspace, Runs(), place, workspace.base_commit)
        assert names(place.tree) == [".git", ".gitignore", "README.md", "src/app.py"]
        assert (place.tree / "src/app.py").read_text() == "a = 1\nb = 2\nc = 3\n"
