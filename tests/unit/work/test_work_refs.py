"""A `git update-ref` that is killed, before it moved the ref and after: the ref is where it should be, no lock stays."""

import pytest

from agent import clock, gitcmd
from agent.errors import GitError
from agent.work import refs

REF = "refs/heads/x"
# Killed at the first `update-ref`: before git's own work (with the locks that git has by then), or behind it.
KILLED = """#!/bin/sh
case " $* " in
  *" update-ref "*)
    if [ ! -e DONE ]; then
      touch DONE
      [ WHEN = before ] && touch DIR/REF.lock DIR/HEAD.lock || REAL "$@" || exit
      kill -9 $$
    fi ;;
esac
exec REAL "$@"
"""


@pytest.fixture
def repository(tmp_path):
    """(bare repository whose HEAD is REF, three commits in it that follow each other)."""
    folder = tmp_path / "repository"
    gitcmd.git("init", "-q", "--bare", str(folder))
    gitcmd.git("symbolic-ref", "HEAD", REF, git_dir=folder)
    top = gitcmd.git("hash-object", "-w", "-t", "tree", "--stdin", git_dir=folder, stdin=b"").output.decode().strip()
    env = gitcmd.Identity("a", "a@b").environment(1)
    made = []
    for number in range(3):
        parent = ("-p", made[-1]) if made else ()
        done = gitcmd.git("commit-tree", *parent, top, "-m", str(number), git_dir=folder, env=env)
        made.append(done.output.decode().strip())
    return folder, made


@pytest.fixture
def killed(tmp_path, monkeypatch, repository):
    """`killed(when)`: the next update-ref is; the file that says that it was.  The pauses before the next try take no
    time."""

    def prepare(when):
        done, script = tmp_path / "killed", tmp_path / "git"
        text = KILLED.replace("DONE", str(done)).replace("DIR", str(repository[0])).replace("REF", REF)
        script.write_text(text.replace("WHEN", when).replace("REAL", gitcmd.program()))
        script.chmod(0o755)
        monkeypatch.setattr(gitcmd, "program", lambda: str(script))
        return done

    with clock.use(clock.FakeClock(clock.now())):
        yield prepare


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", ["born", "moved", "moved from where it must be", "removed"])
def test_a_killed_update_ref_is_done_once(repository, killed, when, change):
    folder, (first, second, _) = repository
    to, expected = {
        "born": (first, "0" * 40),
        "moved": (second, None),
        "moved from where it must be": (second, first),
        "removed": (None, None),
    }[change]
    if change != "born":
        refs.set_ref(folder, REF, first)
    done = killed(when)
    refs.set_ref(folder, REF, to, why="commit", expected=expected)
    assert done.exists()
    assert refs.read_ref(folder, REF) == to
    assert not list(folder.rglob("*.lock"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_ref_that_is_not_where_it_must_be_stays(repository, killed, when):
    """What somebody else has moved is not taken for our own change that had happened."""
    folder, (first, second, third) = repository
    refs.set_ref(folder, REF, third)
    killed(when)
    with pytest.raises(GitError, match="update-ref"):
        refs.set_ref(folder, REF, second, expected=first)
    assert refs.read_ref(folder, REF) == third


def test_a_ref_that_is_not_there(repository):
    folder, _ = repository
    assert refs.read_ref(folder, REF) is None
    refs.set_ref(folder, REF, None)
    assert refs.read_ref(folder, REF) is None


@pytest.mark.parametrize("packed", [False, True])
def test_a_ref_is_read_as_git_reads_it(repository, packed):
    folder, (first, second, _) = repository
    assert refs.read_ref(folder, "HEAD") is None, "the branch has no commit yet"
    assert refs.read_ref(folder, REF) is None
    for commit in (first, second):
        refs.set_ref(folder, REF, commit)
        if packed:
            gitcmd.git("-c", "core.logAllRefUpdates=false", "pack-refs", "--all", git_dir=folder)
        assert refs.read_ref(folder, "HEAD") == refs.read_ref(folder, REF) == commit
        assert refs.loose(folder, "HEAD") == refs.loose(folder, REF) == (None if packed else commit)
    refs.set_ref(folder, "refs/heads/ä/b", first)
    gitcmd.git("symbolic-ref", "HEAD", "refs/heads/ä/b", git_dir=folder)
    assert refs.loose(folder, "HEAD") == first
    (folder / "HEAD").write_text(f"{second}\n")
    assert refs.read_ref(folder, "HEAD") == second, "a detached HEAD"


def test_a_file_that_is_no_ref_is_left_to_git(repository):
    folder, (first, _, _) = repository
    refs.set_ref(folder, REF, first)
    (folder / "refs/heads/of").write_text(f"ref: {REF}\n")
    (folder / "refs/heads/cut").write_text(first[:20])
    assert refs.read_ref(folder, "refs/heads/of") == first
    assert refs.loose(folder, "refs/heads/cut") is None
    assert refs.loose(folder, "refs/heads/../../HEAD") is None
    assert refs.loose(folder, "config") is None
