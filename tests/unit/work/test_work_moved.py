"""Others work too: on the base, and on our branch.  Nothing of theirs is lost, and ours goes on top, once."""

import os

import pytest
from old_git import old_git  # noqa: F401 - a fixture
from work_repos import OTHER_UID, Receipts, Source, commit

from agent.errors import PolicyViolation, PushRejected, RebaseConflict
from agent.gitcmd import git
from agent.security import secrets
from agent.work import Publisher, rebase
from agent.work.concurrent_changes import catch_up

BRANCH = "makimono/7-11111111"
WHO = ("Makimono", "bot@example.com")


def publisher(workspace, effects=None):
    return Publisher(
        workspace,
        effects or Receipts(),
        scan=secrets.scan,
        guarded=lambda paths, _bare: [f"{path} is guarded" for path in paths if path.startswith(".github/")],
    )


def change(workspace, name="new.txt", text="x\n", message="change"):
    (workspace.tree / name).parent.mkdir(parents=True, exist_ok=True)
    (workspace.tree / name).write_text(text)
    return commit(workspace, message)


def on(source, branch, name, text, message="theirs"):
    """What a person commits on a branch."""
    source.git("checkout", "-q", branch)
    source.write(name, text)
    return source.commit(message)


def history(source, branch=BRANCH):
    return source.git("log", "--format=%s", branch).splitlines()


def test_a_base_that_moved_on_gets_our_commits_on_top_and_the_tree_has_both(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, "new.txt", message="one")
    change(workspace, "src/app.py", "a = 1\nb = 2\nc = 4\n", message="two")
    tip = on(source, "main", "other.txt", "o\n")
    moved = catch_up(workspace, WHO)
    assert moved.conflicts == ()
    assert f"rebased onto {tip[:12]}" in moved.notes[0]
    assert (workspace.base_commit, workspace.start) == (tip, tip)
    assert workspace.changed_paths() == ["new.txt", "src/app.py"]
    assert workspace.uncommitted() == []
    assert (workspace.tree / "other.txt").read_text() == "o\n"
    publisher(workspace).push()
    assert history(source) == ["two", "one", "theirs", "first"]
    assert source.git("log", "--format=%an %ae %cn", "-2", BRANCH).split("\n")[0] == "Makimono bot@example.com Makimono"


def test_both_may_change_the_same_file_and_a_file_that_was_renamed(source, make_workspace):
    source.write("long.txt", "".join(f"line {number}\n" for number in range(50)))
    source.commit("long")
    workspace = make_workspace(source)
    lines = (workspace.tree / "long.txt").read_text().replace("line 40\n", "line forty\n")
    change(workspace, "long.txt", lines)
    source.git("mv", "long.txt", "moved.txt")
    on(source, "main", "moved.txt", (source.path / "moved.txt").read_text().replace("line 2\n", "line two\n"))
    assert catch_up(workspace, WHO).conflicts == ()
    text = (workspace.tree / "moved.txt").read_text()
    assert "line two\n" in text
    assert "line forty\n" in text
    assert not (workspace.tree / "long.txt").exists()


def test_a_conflict_names_the_files_and_changes_nothing(source, make_workspace):
    workspace = make_workspace(source)
    made = change(workspace, "src/app.py", "a = 1\nb = 20\nc = 3\n")
    change(workspace, "README.md", "ours\n")
    before = workspace.head(), workspace.state
    source.write("README.md", "theirs\n")
    on(source, "main", "src/app.py", "a = 1\nb = 30\nc = 3\n")
    moved = catch_up(workspace, WHO)
    assert moved.conflicts == ("src/app.py",)  # the first commit that does not fit
    assert (workspace.head(), workspace.state) == before
    assert (workspace.tree / "src/app.py").read_text() == "a = 1\nb = 20\nc = 3\n"
    publisher(workspace).push()
    assert history(source) == ["change", "change", "first"]
    assert made in source.git("rev-list", BRANCH)


def test_what_came_with_the_base_is_neither_scanned_nor_guarded_as_ours(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace)
    on(source, "main", ".github/workflows/ci.yml", "on: push\n")
    on(source, "main", "key.txt", "ghp_" + "a1B2c3D4e5" * 4)
    catch_up(workspace, WHO)
    publisher(workspace).push()
    assert history(source) == ["change", "theirs", "theirs", "first"]


def test_our_own_commits_are_scanned_and_guarded_again_after_the_rebase(source, make_workspace):
    workspace = make_workspace(source)
    seen = []
    publishing = publisher(workspace)
    publishing.scan = lambda chunks: seen.append(b"".join(chunks)) or []
    change(workspace)
    publishing.push()
    on(source, "main", "other.txt", "o\n")
    catch_up(workspace, WHO)
    publishing.push()
    assert len(seen) == 2
    assert b"new.txt" in seen[1]
    assert b"other.txt" not in seen[1]
    change(workspace, "key.txt", "ghp_" + "a1B2c3D4e5" * 4)
    on(source, "main", "more.txt", "m\n")
    catch_up(workspace, WHO)
    publishing.scan = secrets.scan
    with pytest.raises(PolicyViolation, match=r"GitHub token in key\.txt"):
        publishing.push()
    assert "key.txt" not in source.git("ls-tree", "-r", "--name-only", BRANCH)


def test_commits_that_were_pushed_already_are_replaced_with_a_lease(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, message="one")
    publisher(workspace, effects).push()
    on(source, "main", "other.txt", "o\n")
    change(workspace, "two.txt", message="two")
    catch_up(workspace, WHO)
    publisher(workspace, effects).push()
    assert history(source) == ["two", "one", "theirs", "first"]


def test_what_was_refused_after_a_rebase_is_put_right_without_undoing_the_base(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, message="one")
    publisher(workspace, effects).push()
    on(source, "main", "other.txt", "o\n")
    change(workspace, "key.txt", "ghp_" + "a1B2c3D4e5" * 4)
    catch_up(workspace, WHO)
    with pytest.raises(PolicyViolation):
        publisher(workspace, effects).push()
    change(workspace, "key.txt", "none\n", message="right")
    publisher(workspace, effects).push()
    assert history(source) == ["right", "theirs", "first"]
    assert workspace.changed_paths() == ["key.txt", "new.txt"]
    assert "ghp_" not in source.git("log", "-p", BRANCH)


def test_commits_of_a_person_on_our_branch_stay_and_ours_go_on_top(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, message="one")
    publisher(workspace, effects).push()
    theirs = on(source, BRANCH, "by-hand.txt", "h\n", "by a person")
    source.git("checkout", "-q", "main")
    change(workspace, "two.txt", message="two")
    moved = catch_up(workspace, WHO)
    assert f"on top of {theirs[:12]}" in moved.notes[0]
    publisher(workspace, effects).push()
    assert history(source) == ["two", "by a person", "one", "first"]
    assert (workspace.tree / "by-hand.txt").read_text() == "h\n"
    assert workspace.changed_paths() == ["by-hand.txt", "new.txt", "two.txt"]


def test_what_a_person_pushed_to_our_branch_is_not_held_against_us(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, message="one")
    publisher(workspace, effects).push()
    on(source, BRANCH, ".github/workflows/ci.yml", "on: push\n", "by a person")
    source.git("checkout", "-q", "main")
    change(workspace, "two.txt", message="two")
    catch_up(workspace, WHO)
    publisher(workspace, effects).push()
    assert history(source) == ["two", "by a person", "one", "first"]


def test_a_conflict_with_a_persons_commit_on_our_branch_names_the_file_and_pushes_nothing(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, text="one\n")
    publisher(workspace, effects).push()
    theirs = on(source, BRANCH, "new.txt", "theirs\n")
    source.git("checkout", "-q", "main")
    ours = change(workspace, text="ours\n")
    with pytest.raises(PushRejected, match=r"conflicts with this change in new\.txt") as caught:
        catch_up(workspace, WHO)
    assert caught.value.code == "conflict"
    assert source.git("rev-parse", BRANCH).strip() == theirs
    assert workspace.head() == ours


def test_a_branch_with_a_persons_commits_is_not_rebased_under_them(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, message="one")
    publisher(workspace, effects).push()
    on(source, BRANCH, "by-hand.txt", "h\n", "by a person")
    on(source, "main", "other.txt", "o\n")
    change(workspace, "two.txt", message="two")
    assert "commits of others and was not rebased" in catch_up(workspace, WHO).notes[1]
    publisher(workspace, effects).push()
    assert history(source) == ["two", "by a person", "one", "first"]


def test_a_person_who_only_added_to_what_we_pushed_is_left_alone(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    made = change(workspace, message="one")
    publisher(workspace, effects).push()
    on(source, BRANCH, "by-hand.txt", "h\n", "by a person")
    on(source, "main", "other.txt", "o\n")
    catch_up(workspace, WHO)
    assert workspace.head() == made
    publisher(workspace, Receipts()).push()  # the receipt was lost
    assert history(source) == ["by a person", "one", "first"]


def test_a_branch_that_somebody_moved_elsewhere_is_not_overwritten(source, make_workspace):
    workspace = make_workspace(source)
    effects = Receipts()
    change(workspace, message="one")
    publisher(workspace, effects).push()
    on(source, "main", "other.txt", "o\n")
    source.git("branch", "-f", BRANCH, "main")
    change(workspace, "two.txt", message="two")
    with pytest.raises(PushRejected, match="was moved by somebody") as caught:
        catch_up(workspace, WHO)
    assert caught.value.code == "branch_moved"
    assert history(source) == ["theirs", "first"]


def test_a_branch_of_our_name_that_was_there_before_is_taken(source, make_workspace):
    workspace = make_workspace(source)
    source.git("checkout", "-q", "--orphan", BRANCH)
    theirs = source.commit("not ours")
    source.git("checkout", "-q", "main")
    change(workspace)
    with pytest.raises(PushRejected, match="is taken") as caught:
        catch_up(workspace, WHO)
    assert caught.value.code == "branch_taken"
    assert source.git("rev-parse", BRANCH).strip() == theirs


def test_an_earlier_tasks_branch_is_rebased_with_all_that_is_ours(source, make_workspace, make_mirror):
    first = make_workspace(source)
    change(first, message="one")
    publisher(first).push()
    later = make_workspace(source, uuid="later", mirror=make_mirror(source.path), start_at=BRANCH)
    on(source, "main", "other.txt", "o\n")
    change(later, "two.txt", message="two")
    catch_up(later, WHO)
    assert later.has_commits()
    publisher(later).push()
    assert history(source) == ["two", "one", "theirs", "first"]


def test_what_came_onto_the_base_by_another_way_leaves_nothing_to_hand_in(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, "new.txt", "same\n")
    on(source, "main", "new.txt", "same\n")
    catch_up(workspace, WHO)
    assert not workspace.has_commits()


def test_a_base_branch_that_is_gone_is_said(source, make_workspace):
    source.git("branch", "release")
    workspace = make_workspace(source, base="release")
    change(workspace)
    source.git("branch", "-D", "-q", "release")
    assert catch_up(workspace, WHO).base_gone


def test_in_an_empty_repository_there_is_no_base_to_be_gone(tmp_path, make_workspace):
    workspace = make_workspace(Source(tmp_path / "s"))
    change(workspace)
    assert not catch_up(workspace, WHO).base_gone


@pytest.mark.parametrize("came_to", ["the word that it moves", "the tree"])
def test_a_move_that_is_cut_off_is_finished_by_the_next_open(source, make_workspace, came_to):
    workspace = make_workspace(source)
    head = change(workspace, message="one")
    (workspace.tree / "scratch.log").write_text("ignored, stays\n")
    tip = on(source, "main", "README.md", "new\n")
    workspace.mirror.fetch()
    made = rebase.replay(workspace.git_dir, [head], tip, WHO, {})
    workspace.update_state(moving=made[head], start=tip, base_commit=tip)
    if came_to == "the tree":
        options = {"git_dir": workspace.git_dir, "work_tree": workspace.tree}
        git("read-tree", "--reset", "-u", made[head], **options)
    again = make_workspace(source)
    assert (again.head(), again.uncommitted()) == (made[head], [])
    assert (again.tree / "README.md").read_text() == "new\n"
    assert (again.tree / "scratch.log").read_text() == "ignored, stays\n"
    publisher(again).push()
    assert history(source) == ["one", "theirs", "first"]


def test_a_symlink_in_the_tree_is_not_written_through(source, make_workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    source.write("docs/a.md", "a\n")
    source.commit("docs")
    workspace = make_workspace(source)
    (workspace.tree / "docs/a.md").unlink()
    (workspace.tree / "docs").rmdir()
    (workspace.tree / "docs").symlink_to(outside)  # hostile: and what is committed has it as a symlink
    commit(workspace)
    on(source, "main", "docs/b.md", "b\n")
    conflicts = catch_up(workspace, WHO).conflicts
    assert conflicts
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the tree to another user")
def test_what_the_rebase_writes_belongs_to_who_runs_the_commands(source, make_workspace):
    workspace = make_workspace(source, owner_uid=OTHER_UID)
    change(workspace)
    on(source, "main", "deep/er/other.txt", "o\n")
    catch_up(workspace, WHO)
    for path in (workspace.tree / "deep", workspace.tree / "deep/er/other.txt"):
        assert path.lstat().st_uid == OTHER_UID
    assert workspace.uncommitted() == []


def test_two_commits_of_which_the_second_conflicts_leave_everything(source, make_workspace):
    workspace = make_workspace(source)
    start = workspace.start
    change(workspace, "new.txt")
    change(workspace, "README.md", "ours\n")
    tip = on(source, "main", "README.md", "theirs\n")
    workspace.mirror.fetch()
    with pytest.raises(RebaseConflict) as caught:
        workspace.move_onto(tip, since=start, who=WHO)
    assert caught.value.paths == ("README.md",)
    assert workspace.start == start
    assert git("rev-parse", "HEAD", git_dir=workspace.git_dir).output.decode().strip() == workspace.head()


@pytest.mark.usefixtures("old_git")
def test_an_old_git_leaves_the_branch_as_it_is_and_says_why(source, make_workspace):
    workspace = make_workspace(source)
    head = change(workspace, message="one")
    on(source, "main", "other.txt", "o\n")
    moved = catch_up(workspace, WHO)
    assert moved.conflicts == ()
    assert moved.notes == (
        "main has moved on; the branch was not rebased onto it: git here is 2.35.1, and 2.38 or newer is needed for it",
    )
    assert workspace.head() == head
    publisher(workspace).push()
    assert history(source) == ["one", "first"]


@pytest.mark.usefixtures("old_git")
def test_an_old_git_overwrites_nothing_that_somebody_pushed_to_the_branch(source, make_workspace):
    workspace = make_workspace(source)
    change(workspace, message="one")
    publisher(workspace).push()
    on(source, BRANCH, "theirs.txt", "t\n")
    change(workspace, "two.txt", message="two")
    with pytest.raises(PushRejected, match=r"2\.38 or newer is needed") as caught:
        catch_up(workspace, WHO)
    assert caught.value.code == "branch_moved"
    assert history(source) == ["theirs", "one", "first"]


def test_what_a_dead_attempt_pushed_from_another_folder_is_still_the_work_of_this_task(source, make_workspace):
    """It was killed before its pull request; the next attempt, which has not its folder, commits the same again."""
    dead = make_workspace(source)
    change(dead)
    publisher(dead).push()
    workspace = make_workspace(source, uuid="11111111-3333")
    change(workspace, message="the same again")
    catch_up(workspace, WHO)
    assert workspace.has_commits()
    assert workspace.changed_paths() == ["new.txt"]
    publisher(workspace).push()
    assert history(source) == ["change", "first"]
