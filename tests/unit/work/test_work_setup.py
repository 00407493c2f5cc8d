"""Dependencies: installed once on the base commit, copied into each task, never with a secret, a failure never kept."""

import os
import shutil
import subprocess
import threading
from types import SimpleNamespace

import pytest
from work_repos import OTHER_UID, commit

from agent import proc
from agent.config.host_allowlist import parse_all
from agent.config.sections import Setup
from agent.errors import ConfigError
from agent.values import Finished
from agent.work import setup as setting_up
from agent.work.setup import prepare

ROOT = os.geteuid() == 0


class Runs:
    """Runs set-up commands for real, beside a note of what each was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, command, tree, home, network, env, timeout):
        self.seen.append(
            SimpleNamespace(command=command, tree=tree, home=home, network=network, env=env, timeout=timeout)
        )
        return proc.run(
            ["/bin/sh", "-c", command],
            cwd=tree,
            timeout=timeout,
            env={"PATH": "/usr/bin:/bin", "HOME": str(home), **env},
            foreign=True,
        )


def settings(command, **fields):
    hosts = fields.pop("hosts", ())
    setup = Setup(command=command, **fields)
    return SimpleNamespace(
        workspace=SimpleNamespace(setup=setup),
        sandbox=SimpleNamespace(network=hosts),
        setup_hosts=lambda section: tuple(dict.fromkeys((*section.network, *hosts))),
    )


COMMAND = "mkdir -p node_modules/x $HOME/.local/bin && echo 1 > node_modules/x/i.js && echo t > $HOME/.local/bin/tool"


def put(workspace, command=COMMAND, runs=None, **options):
    fields = options.pop("fields", {})
    home = workspace.context_dir / "home"
    return prepare(settings(command, **fields), workspace.mirror, workspace, runs or Runs(), home=home, **options)


def test_without_a_set_up_nothing_is_run(source, make_workspace):
    workspace = make_workspace(source)
    nothing = SimpleNamespace(workspace=SimpleNamespace(setup=None))
    assert prepare(nothing, workspace.mirror, workspace, Runs(), home=workspace.context_dir / "home").ok


def test_the_result_is_in_the_tree_and_in_the_home(source, make_workspace):
    workspace = make_workspace(source)
    report = put(workspace)
    assert report.ok
    assert not report.cached
    assert (workspace.tree / "node_modules/x/i.js").read_text() == "1\n"
    assert (workspace.context_dir / "home/.local/bin/tool").read_text() == "t\n"
    assert workspace.uncommitted() == []
    assert not (workspace.context_dir / ".setup.tmp").exists()


def test_a_second_task_gets_a_copy_and_runs_nothing(source, make_workspace):
    runs = Runs()
    first = make_workspace(source)
    put(first, runs=runs)
    second = make_workspace(source, uuid="second")
    report = put(second, runs=runs)
    assert report.cached
    assert len(runs.seen) == 1
    (second.tree / "node_modules/x/i.js").write_text("changed by the second\n")
    third = make_workspace(source, uuid="third")
    put(third, runs=runs)
    assert (third.tree / "node_modules/x/i.js").read_text() == "1\n"
    assert (first.tree / "node_modules/x/i.js").read_text() == "1\n"


def test_the_command_sees_the_base_commit_only(source, make_workspace, make_mirror):
    source.git("checkout", "-q", "-b", "makimono/7-earlier")
    source.write("src/app.py", "evil = 1\n")
    source.commit()
    source.git("checkout", "-q", "main")
    workspace = make_workspace(source, start_at="makimono/7-earlier")
    (workspace.tree / "local.txt").write_text("x")
    put(workspace, "cat src/app.py > $HOME/seen; ls > $HOME/names")
    assert (workspace.context_dir / "home/seen").read_text() == "a = 1\nb = 2\nc = 3\n"
    assert (workspace.context_dir / "home/names").read_text() == "README.md\nsrc\n"
    assert (workspace.tree / "src/app.py").read_text() == "evil = 1\n"


def test_the_command_gets_what_is_configured_and_nothing_else(source, make_workspace):
    runs = Runs()
    workspace = make_workspace(source)
    put(workspace, "true", runs=runs, fields={"network": True, "env": {"CI": "1"}, "timeout": 7})
    (seen,) = runs.seen
    assert (seen.network, seen.env, seen.timeout) == (parse_all(["*"]), {"CI": "1"}, 7)
    assert workspace.mirror.base_dir in seen.tree.parents
    assert workspace.tree != seen.tree


def test_a_secret_in_its_environment_is_refused(source, make_workspace):
    runs = Runs()
    with pytest.raises(ConfigError, match="PIP_INDEX holds a declared secret") as caught:
        put(
            make_workspace(source),
            "true",
            runs=runs,
            fields={"env": {"PIP_INDEX": "https://u:s3cr3t-value@x/"}},
            secrets=("s3cr3t-value", ""),
        )
    assert "s3cr3t-value" not in str(caught.value)
    assert runs.seen == []


def test_a_failure_is_reported_with_its_output_and_not_kept(source, make_workspace):
    runs = Runs()
    workspace = make_workspace(source)
    report = put(workspace, "echo why it failed; mkdir node_modules; exit 3", runs=runs)
    assert not report.ok
    assert "exit code 3" in report.note
    assert "why it failed" in report.output
    assert not (workspace.tree / "node_modules").exists()
    assert [
        path.name for path in (workspace.mirror.base_dir / "setup").iterdir() if not path.name.endswith(".lock")
    ] == []
    put(make_workspace(source, uuid="second"), "echo why it failed; mkdir node_modules; exit 3", runs=runs)
    assert len(runs.seen) == 2


@pytest.mark.parametrize("relocatable", [True, False], ids=["copied", "in place"])
def test_one_that_leaves_a_pipe_that_git_would_read_is_a_failure(source, make_workspace, relocatable):
    report = put(make_workspace(source), "mkfifo .gitignore", relocatable=relocatable)
    assert not report.ok
    assert ".gitignore is a named pipe" in report.note


def test_one_that_takes_too_long_is_a_failure(source, make_workspace):
    report = put(make_workspace(source), "sleep 30", fields={"timeout": 0.2})
    assert not report.ok
    assert "workspace.setup.timeout" in report.note


def test_opening_again_does_not_set_up_again(source, make_workspace):
    runs = Runs()
    workspace = make_workspace(source)
    put(workspace, runs=runs)
    shutil.rmtree(workspace.tree / "node_modules")
    assert put(make_workspace(source), runs=runs).cached
    assert len(runs.seen) == 1
    assert not (workspace.tree / "node_modules").exists()  # the task removed it: that is its work


def test_a_copy_that_was_cut_off_is_done_again(source, make_workspace):
    workspace = make_workspace(source)
    put(workspace)
    workspace.update_state(setup="")
    (workspace.context_dir / ".setup.tmp/tree").mkdir(parents=True)
    (workspace.context_dir / ".setup.tmp/tree/half").write_text("x")
    shutil.rmtree(workspace.tree / "node_modules/x")
    assert put(workspace).cached
    assert (workspace.tree / "node_modules/x/i.js").exists()
    assert not (workspace.tree / "half").exists()


def test_a_build_that_was_cut_off_is_done_again(source, make_workspace):
    workspace = make_workspace(source)
    section = settings(COMMAND).workspace.setup
    key = setting_up.cache_key(section, workspace.mirror, workspace)
    top = workspace.mirror.base_dir / "setup"
    (top / f".{key}.tmp/tree").mkdir(parents=True)
    (top / f".{key}.tmp/tree/half").write_text("x")
    (top / key).mkdir()  # without done.json
    assert put(workspace).ok
    assert (top / key / "done.json").exists()
    assert not (workspace.tree / "half").exists()


def test_whatever_the_result_depends_on_is_in_the_key(source, make_workspace, tmp_path, monkeypatch):
    source.write("sub/requirements-dev.txt", "pytest\n")
    source.commit()

    def key(workspace, command="c", **fields):
        made = settings(command, **fields)
        hosts = made.setup_hosts(made.workspace.setup)
        return setting_up.cache_key(made.workspace.setup, workspace.mirror, workspace, hosts)

    named = {"cache_key_files": ("requirements*.txt",)}
    one = make_workspace(source, uuid="one")
    ones = key(one, **named)
    source.commit("the same tree in another commit")
    same = make_workspace(source, uuid="same")
    source.write("src/app.py", "changed = 1\n")
    source.commit()
    two = make_workspace(source, uuid="two")
    twos = key(two, **named)
    source.write("sub/requirements-dev.txt", "pytest>9\n")
    source.commit()
    three = make_workspace(source, uuid="three")
    source.git("checkout", "-q", "-b", "release")
    source.commit("a branch")
    source.git("checkout", "-q", "main")
    branch = make_workspace(source, uuid="branch", base="release")

    assert len({key(one), key(same), key(two), key(three)}) == 4, "the command may read any file, and ask git"
    assert key(one) != key(one, "d")
    assert len({key(one), key(one, network=True), key(one, network=["a.example"]), key(one, hosts=["b.example"])}) == 4
    assert key(one, network=["a.example"]) == key(one, hosts=["a.example"])
    assert key(one) != key(one, env={"A": "1"})
    assert key(three) != key(branch)
    assert ones == twos != key(three, **named), "the operator says that it reads no other"
    assert key(three, **named) != key(branch, **named) == key(branch), "which is believed of the default branch only"
    assert key(one, **named) == key(one), "and of its newest commit"
    before = key(one)
    (tmp_path / "os-release").write_text("ID=another\n")
    monkeypatch.setattr(setting_up, "OS_RELEASE", tmp_path / "os-release")
    assert key(one) != before


@pytest.mark.parametrize("named", [(), ("requirements.txt",)])
def test_a_branch_with_another_script_feeds_nothing_to_tasks_on_the_default_branch(source, make_workspace, named):
    source.write("requirements.txt", "pytest\n")
    source.write("setup.sh", "mkdir node_modules; echo good | tee node_modules/i.js > $HOME/profile\n")
    source.commit()
    source.git("checkout", "-q", "-b", "evil")
    source.write("setup.sh", "mkdir node_modules; echo evil | tee node_modules/i.js > $HOME/profile\n")
    source.commit()
    source.git("checkout", "-q", "main")
    runs = Runs()
    for number, (base, expected) in enumerate((("evil", "evil"), ("main", "good"), ("evil", "evil"), (None, "good"))):
        workspace = make_workspace(source, uuid=f"task-{number}", base=base)
        report = put(workspace, "sh setup.sh", runs=runs, fields={"cache_key_files": named})
        assert report.cached == (number > 1)
        assert (workspace.tree / "node_modules/i.js").read_text() == f"{expected}\n"
        assert (workspace.context_dir / "home/profile").read_text() == f"{expected}\n"


@pytest.mark.parametrize("named", [(), ("requirements.txt",)])
def test_a_commit_of_a_merged_branch_feeds_nothing_to_tasks_on_the_default_branch(source, make_workspace, named):
    """Nobody has looked at each commit of a merged branch; a pull request that begins there has it as its base."""
    good = "mkdir node_modules; echo good > node_modules/i.js\n"
    source.write("requirements.txt", "pytest\n")
    source.write("setup.sh", good)
    source.commit()
    source.write("setup.sh", "mkdir node_modules; echo evil > node_modules/i.js\n")
    source.commit("not looked at")
    evil = source.git("rev-parse", "HEAD").strip()
    source.write("setup.sh", good)
    source.write("src/more.py", "more = 1\n")
    source.commit("what is seen of the pull request")
    source.git("branch", "pull", evil)
    workspace = make_workspace(source, uuid="task-0", base="main", start_at="pull")
    assert (workspace.base, workspace.base_commit) == ("main", evil)
    runs = Runs()
    put(workspace, "sh setup.sh", runs=runs, fields={"cache_key_files": named})
    workspace = make_workspace(source, uuid="task-1", base="main")
    assert not put(workspace, "sh setup.sh", runs=runs, fields={"cache_key_files": named}).cached
    assert (workspace.tree / "node_modules/i.js").read_text() == "good\n"


def test_what_git_says_of_a_commit_is_in_the_key(source, make_workspace):
    """A commit without a change has the tree of the one before, and other words."""
    source.git("checkout", "-q", "-b", "evil")
    source.git("commit", "-q", "--allow-empty", "-m", "evil")
    source.git("checkout", "-q", "main")
    command = "mkdir node_modules; git log -1 --format=%s > node_modules/i.js"
    for number, base in enumerate(("evil", "main")):
        workspace = make_workspace(source, uuid=f"task-{number}", base=base)
        assert not put(workspace, command.replace("git ", f"git --git-dir={workspace.git_dir} ")).cached
    assert (workspace.tree / "node_modules/i.js").read_text() != "evil\n"


def test_what_the_set_up_makes_is_not_taken_for_work_of_the_task(source, make_workspace):
    source.write(".gitignore", "/build/\n")
    source.write("lock.json", "1\n")
    source.commit()
    workspace = make_workspace(source)
    command = "mkdir build; touch build/x 'odd [name]*.txt' '#gen' 'end '; echo 2 > lock.json; rm README.md"
    report = put(workspace, command)
    assert report.changed == ("README.md", "lock.json")
    assert "2 tracked file(s), which are not carried over" in report.note
    assert (workspace.tree / "odd [name]*.txt").exists()
    assert (workspace.tree / "README.md").exists()
    assert (workspace.tree / "lock.json").read_text() == "1\n"
    assert workspace.uncommitted() == []
    (workspace.tree / "odd n.txt").write_text("the task's own")
    commit(workspace)
    assert workspace.changed_paths() == ["odd n.txt"]


def test_odd_things_of_a_set_up_are_left_out_and_symlinks_kept(source, make_workspace):
    workspace = make_workspace(source)
    report = put(
        workspace,
        "mkdir -p node_modules/dep/.git node_modules/dep/.GIT src/gen; touch node_modules/dep/.git/config node_modules/ok;"
        "mkfifo node_modules/pipe $HOME/pipe; ln -s ok node_modules/link; ln -s /etc/hostname $HOME/abs; ln -s ../src src/gen/s",
    )
    assert report.ok
    assert sorted(os.listdir(workspace.tree / "node_modules")) == ["dep", "link", "ok"]
    assert os.listdir(workspace.tree / "node_modules/dep") == []
    assert os.readlink(workspace.tree / "node_modules/link") == "ok"
    assert os.listdir(workspace.context_dir / "home") == ["abs"]
    assert sorted(os.listdir(workspace.tree / "src")) == ["app.py", "gen"]
    assert workspace.guard() == []


def test_a_symlink_in_the_tree_is_not_a_way_out_of_it(source, make_workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    workspace = make_workspace(source)
    (workspace.tree / "node_modules").symlink_to(outside)
    put(workspace)
    assert os.listdir(outside) == []


def test_two_tasks_at_once_build_once(source, make_workspace):
    runs = Runs()
    spaces = [make_workspace(source, uuid=f"task-{number}") for number in range(3)]
    threads = [threading.Thread(target=put, args=(space,), kwargs={"runs": runs}) for space in spaces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs.seen) == 1
    assert all((space.tree / "node_modules/x/i.js").exists() for space in spaces)


def test_without_a_sandbox_it_runs_in_the_tasks_own_tree(source, make_workspace):
    runs = Runs()
    workspace = make_workspace(source)
    report = put(workspace, COMMAND + "; echo changed > README.md; touch made.txt", runs=runs, relocatable=False)
    assert report.ok
    assert report.changed == ("README.md",)
    assert runs.seen[0].tree == workspace.tree
    assert (workspace.tree / "README.md").read_text() == "hello\n"
    assert (workspace.tree / "node_modules/x/i.js").exists()
    assert workspace.uncommitted() == []
    assert put(workspace, COMMAND, runs=runs, relocatable=False).cached


def test_without_a_sandbox_it_never_runs_on_other_work(source, make_workspace):
    runs = Runs()
    workspace = make_workspace(source)
    (workspace.tree / "setup.py").write_text("evil")
    report = put(workspace, runs=runs, relocatable=False)
    assert "skipped" in report.note
    assert runs.seen == []


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_as_root_everything_belongs_to_the_uid_of_the_commands(source, make_workspace):
    workspace = make_workspace(source, owner_uid=OTHER_UID)
    owners = []

    def run(command, tree, home, network, env, timeout):
        owners.extend(os.lstat(path).st_uid for path in (tree, home, tree / "README.md"))
        subprocess.run(["/bin/sh", "-c", COMMAND], cwd=tree, env={"HOME": str(home), "PATH": "/bin"}, check=True)
        return Finished(0, b"", 0.1)

    assert put(workspace, runs=run).ok
    assert set(owners) == {OTHER_UID}
    for top in (workspace.tree / "node_modules", workspace.context_dir / "home"):
        for parent, folders, files in os.walk(top):
            for name in (".", *folders, *files):
                assert os.lstat(os.path.join(parent, name)).st_uid == OTHER_UID
