"""From a changed tree to a pull request, with real git and a real tracker."""

import json
import subprocess

import pytest
from old_git import old_git  # noqa: F401 - a fixture
from run_home import UUID

from agent.context import TaskContextManager
from agent.errors import ConfigError
from agent.values import End, Outcome
from agent.work.publish import is_own
from agent.worker.delivery import Delivery
from agent.worker.notify import compose, notify_finished
from agent.worker.outcome import decide
from agent.worker.preparation import prepare
from agent.worker.task_run import TaskRun

DONE = Outcome(End.FINISHED, summary="It is done.", title="Mend it")


def git(folder, *args):
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def run(place):
    opened = []

    def start(extra="", base="main", **more):
        here = place(extra)
        path = here.issue(1, title="Mend the sum")
        path.write_text(path.read_text().replace("state: open", f"state: open\nbase: {base}"))
        git(here.folder, "init", "-q", "--bare", "-b", "main", "repo.git")
        git(here.folder, "clone", "-q", "repo.git", "seed")
        (here.folder / "seed" / "a.txt").write_text("a\n")
        git(here.folder / "seed", "add", "a.txt")
        git(here.folder / "seed", "commit", "-q", "-m", "First")
        for branch in {"main", base}:
            git(here.folder / "seed", "push", "-q", "origin", f"HEAD:{branch}")
        context = TaskContextManager(here.key(1), UUID % 1, here.settings, user="alice", database=here.wiring.db)
        opened.append(context)
        one = TaskRun(here.wiring, context, **more)
        one.place = here
        prepared = prepare(one)
        prepared.commands.set_up()
        one.commands, one.delivery = prepared.commands, Delivery(one, prepared)
        return one

    yield start
    for context in opened:
        context.close()


def branches(one):
    return git(one.place.folder / "repo.git", "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def pulls(one):
    folder = one.place.folder / "tracker" / "pulls"
    return [path.read_text() for path in sorted(folder.glob("*.md"))] if folder.is_dir() else []


def test_nothing_changed_is_nothing_to_deliver(run):
    one = run()
    report = one.delivery.deliver(DONE)
    assert (report.changed, report.pull, report.problem) == (False, None, ("", ""))
    assert branches(one) == ["main"]
    assert pulls(one) == []


def test_a_checkpoint_is_a_draft_and_the_end_makes_it_ready(run):
    one = run("verify: {command: 'test -e b.txt'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    early = one.delivery.checkpoint("First step")
    assert early.pull.draft
    assert "draft: true" in pulls(one)[0]
    assert "**Check**: not run yet." in pulls(one)[0]
    (one.workspace.tree / "c.txt").write_text("c\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    assert report.pull.id == early.pull.id
    (pull,) = pulls(one)
    assert "draft: false" in pull
    assert "title: Mend it" in pull
    assert "exit code 0." in pull
    subjects = git(one.place.folder / "repo.git", "log", "--format=%s", f"main..{one.workspace.branch}").splitlines()
    assert subjects == ["Mend it", "First step"]


def test_what_a_reader_would_not_see_or_expect_is_shown_in_the_pull_request(run):
    one = run()
    (one.workspace.tree / "Makefile").write_text("all:\n")
    (one.workspace.tree / "AGENTS.md").write_text("Be kind.\n")
    (one.workspace.tree / "b.py").write_text("if access\u202e:\n    pass\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    (pull,) = pulls(one)
    assert "- `PA-05 Makefile is executed at install, build or test`\n" in pull
    assert "- `PA-06 AGENTS.md is read by agents as instructions`\n" in pull
    assert "- `PI-07 b.py, line 1: if access\\u202e:`\n" in pull


def test_what_the_operator_wants_looked_at_is_published_and_named(run):
    one = run("policy: {look: ['.github/', '*.tf']}\n")
    for name in (".github/workflows/ci.yml", "main.tf"):
        (one.workspace.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (one.workspace.tree / name).write_text("x\n")
    assert decide(DONE, one.delivery.deliver(DONE)).ready
    (pull,) = pulls(one)
    assert "PA-12 main.tf fits '*.tf' of `policy.look`" in pull
    assert "PA-12 .github/workflows/ci.yml fits" in pull


def test_what_the_operator_refuses_is_not_pushed(run):
    one = run("policy: {refuse: [infra]}\n")
    (one.workspace.tree / "infra").mkdir()
    (one.workspace.tree / "infra" / "main.tf").write_text("x\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).code == "policy"
    assert report.findings == ("PA-11 infra/main.tf fits 'infra' of `policy.refuse`",)
    assert branches(one) == ["main"]
    assert pulls(one) == []


def test_delivering_twice_is_delivering_once(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    first, second = one.delivery.deliver(DONE), one.delivery.deliver(DONE)
    assert first.commit == second.commit
    assert first.pull == second.pull
    assert len(pulls(one)) == 1


@pytest.mark.parametrize("end", [End.LIMIT, End.REPEATING, End.FAILED])
def test_an_end_that_is_not_done_leaves_a_draft_and_checks_nothing(run, end):
    one = run("verify: {command: 'false'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(Outcome(end, summary="So far."))
    assert report.verdict is None
    assert "draft: true" in pulls(one)[0]


def test_a_red_check_is_a_problem_and_tests_that_were_changed_are_named(run):
    one = run("verify: {command: 'test ! -e test_sum.py || { echo three failed; exit 3; }'}\n")
    (one.workspace.tree / "test_sum.py").write_text("assert True\n")
    report = one.delivery.deliver(DONE)
    assert report.problem[0] == "verify_failed"
    assert not decide(DONE, report).ready
    (pull,) = pulls(one)
    assert "draft: true" in pull
    assert "exit code 3, **not passed**" in pull
    assert "three failed" in pull
    assert "`test_sum.py`" in pull


def test_what_is_checked_is_what_is_published(run):
    one = run("verify: {command: 'python3 -c \"import a\"'}\n")
    tree = one.workspace.tree
    (tree / ".gitignore").write_text("lib/\n")
    (tree / "lib").mkdir()
    (tree / "lib" / "util.py").write_text("x = 1\n")
    (tree / "a.py").write_text("from lib.util import x\n")
    subprocess.run(["python3", "-c", "import a"], cwd=tree, check=True)
    report = one.delivery.deliver(DONE)
    assert (report.problem[0], report.verdict.exit_code) == ("verify_failed", 1)
    assert "No module named 'lib'" in report.verdict.tail
    assert "draft: true" in pulls(one)[0]


def test_a_compiled_file_that_a_command_left_does_not_help_the_check(run):
    one = run("verify: {command: 'python3 -c \"import a\"'}\n")
    tree = one.workspace.tree
    (tree / "a.py").write_text("x = 1\n")
    mode = "py_compile.PycInvalidationMode.UNCHECKED_HASH"
    compiled = f"import py_compile; py_compile.compile('a.py', invalidation_mode={mode})"
    subprocess.run(["python3", "-c", compiled], cwd=tree, check=True)
    (tree / "a.py").write_text("raise SystemExit(7)\n")
    subprocess.run(["python3", "-c", "import a"], cwd=tree, check=True)
    report = one.delivery.deliver(DONE)
    assert report.verdict.exit_code == 7
    assert not decide(DONE, report).ready


def test_what_may_not_go_out_is_held_back_until_it_is_put_right(run):
    one = run()
    leak = one.workspace.tree / "leak.txt"
    leak.write_text("key-of-the-test\n")
    report = one.delivery.checkpoint("Step")
    assert report.problem[0] == "policy"
    assert "leak.txt" in report.findings[0]
    assert "key-of-the-test" not in str(report)
    assert branches(one) == ["main"]
    leak.write_text("nothing\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    history = git(one.place.folder / "repo.git", "log", "-p", one.workspace.branch)
    assert "key-of-the-test" not in history


def test_a_secret_in_the_words_of_the_model_is_masked(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.deliver(Outcome(End.FINISHED, title="Use key-of-the-test", summary="It is key-of-the-test."))
    assert "key-of-the-test" not in pulls(one)[0]


def test_a_secret_in_the_title_does_not_reach_the_history(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.deliver(Outcome(End.FINISHED, title="Use key-of-the-test", summary="x"))
    assert "key-of-the-test" not in git(one.place.folder / "repo.git", "log", "--all", "--format=%B")


def test_a_pull_request_that_a_person_removed_is_not_made_again(run):
    one = with_a_draft(run)
    (one.place.folder / "tracker" / "pulls" / "1.md").unlink()
    report = one.delivery.deliver(DONE)
    assert report.code == "pull_closed"
    assert "was removed while the task ran" in report.rejected
    assert not decide(DONE, report).ready
    assert pulls(one) == []


def test_without_publishing_it_commits_and_checks_and_nothing_leaves(run):
    one = run("verify: {command: 'true'}\n", publishing=False)
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(DONE)
    assert report.changed
    assert report.verdict.ok
    assert report.pull is None
    assert branches(one) == ["main"]
    assert pulls(one) == []


def on_main(one, name, text):
    """What a person pushes to main meanwhile."""
    seed = one.place.folder / "seed"
    git(seed, "pull", "-q", "origin", "main")
    (seed / name).write_text(text)
    git(seed, "add", name)
    git(seed, "commit", "-q", "-m", f"Their {name}")
    git(seed, "push", "-q", "origin", "HEAD:main")


def test_a_base_that_moved_on_is_rebased_onto_and_the_check_runs_on_both(run):
    one = run("verify: {command: 'test -e b.txt && test -e theirs.txt'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.checkpoint("First step")
    on_main(one, "theirs.txt", "t\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    assert report.verdict.ok
    subjects = git(one.place.folder / "repo.git", "log", "--format=%s", one.workspace.branch).splitlines()
    assert subjects == ["First step", "Their theirs.txt", "First"]
    assert (str(report.stat), len(pulls(one))) == ("1 file changed, +1 -0", 1)
    assert "rebased onto" in one.facts()["reports"][0]


@pytest.mark.usefixtures("old_git")
def test_with_an_old_git_a_base_that_moved_on_is_a_note_and_no_failure(run):
    one = run("verify: {command: 'test -e b.txt'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    on_main(one, "theirs.txt", "t\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    assert "draft: false" in pulls(one)[0]
    assert "was not rebased onto it: git here is 2.35.1" in one.facts()["reports"][0]


def test_a_check_that_the_moved_base_turns_red_leaves_a_draft(run):
    one = run("verify: {command: 'test ! -e theirs.txt || test ! -e b.txt'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    on_main(one, "theirs.txt", "t\n")
    report = one.delivery.deliver(DONE)
    assert report.problem[0] == "verify_failed"
    assert "draft: true" in pulls(one)[0]


def test_a_conflict_with_the_base_is_a_draft_that_names_the_files(run):
    one = run()
    (one.workspace.tree / "a.txt").write_text("ours\n")
    on_main(one, "a.txt", "theirs\n")
    report = one.delivery.deliver(DONE)
    assert report.problem == ("conflict", "main has moved on, and the change conflicts with it in a.txt")
    assert not decide(DONE, report).ready
    assert "draft: true" in pulls(one)[0]
    assert git(one.place.folder / "repo.git", "show", f"{one.workspace.branch}:a.txt") == "ours\n"


def test_a_conflict_is_said_in_the_last_comment_and_in_the_row(run):
    one = run()
    (one.workspace.tree / "a.txt").write_text("ours\n")
    on_main(one, "a.txt", "theirs\n")
    report = one.delivery.deliver(DONE)
    notify_finished(one, compose(one, DONE, report, decide(DONE, report)))
    (said,) = [text for text in comments(one) if ":final -->" in text]
    assert "`main` has moved on, and the change conflicts with it** in `a.txt`" in said
    assert "Merge `main` into it" in said
    assert decide(DONE, report).code == "conflict"


def test_a_base_branch_that_is_gone_at_the_end_is_said_and_the_branch_is_there(run):
    one = run(base="release")
    (one.workspace.tree / "b.txt").write_text("b\n")
    git(one.place.folder / "repo.git", "branch", "-D", "release")
    report = one.delivery.deliver(DONE)
    assert report.problem[0] == "base_missing"
    assert "'release', onto which it was to go, is gone" in report.rejected
    assert one.workspace.branch in branches(one)
    assert pulls(one) == []


def test_commits_of_a_person_on_our_branch_are_kept(run):
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.checkpoint("First step")
    seed = one.place.folder / "seed"
    git(seed, "fetch", "-q", "origin")
    git(seed, "checkout", "-q", "-b", "by-hand", f"origin/{one.workspace.branch}")
    (seed / "hand.txt").write_text("h\n")
    git(seed, "add", "hand.txt")
    git(seed, "commit", "-q", "-m", "By hand")
    git(seed, "push", "-q", "origin", f"HEAD:{one.workspace.branch}")
    (one.workspace.tree / "c.txt").write_text("c\n")
    assert decide(DONE, one.delivery.deliver(DONE)).ready
    subjects = git(one.place.folder / "repo.git", "log", "--format=%s", one.workspace.branch).splitlines()
    assert subjects == ["Mend it", "By hand", "First step", "First"]


def comments(one):
    path = one.place.folder / "tracker" / "issues" / "1.comments.jsonl"
    return [json.loads(line)["body"] for line in path.read_text().splitlines()] if path.exists() else []


def person_sets(one, number, state):
    path = one.place.folder / "tracker" / "pulls" / f"{number}.md"
    path.write_text(path.read_text().replace("state: open", f"state: {state}"))


def with_a_draft(run):
    """A run that has shown its first step, the new file b.txt."""
    one = run()
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.checkpoint("Step")
    return one


def merge(one, *how):
    """What a person does with the pull request at the host, which closes it as merged."""
    seed = one.place.folder / "seed"
    git(seed, "pull", "-q", "origin", "main")
    git(seed, "fetch", "-q", "origin", one.workspace.branch)
    git(seed, "merge", "-q", *how, "FETCH_HEAD")
    if "--squash" in how:
        git(seed, "commit", "-q", "-m", "Squashed")
    git(seed, "push", "-q", "origin", "HEAD:main")
    person_sets(one, 1, "merged")


def test_a_branch_that_somebody_removed_is_pushed_again_though_nothing_new_was_done(run):
    one = with_a_draft(run)
    git(one.place.folder / "repo.git", "branch", "-D", one.workspace.branch)
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    assert one.workspace.branch in branches(one)
    assert one.reports == [f"somebody had removed the branch {one.workspace.branch}"]
    assert len(pulls(one)) == 1


@pytest.mark.parametrize("how", ["--no-ff", "--squash"])
def test_what_was_done_after_a_person_merged_the_draft_goes_into_another_pull_request(run, how):
    one = with_a_draft(run)
    merge(one, how)
    (one.workspace.tree / "c.txt").write_text("c\n")
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    first, second = pulls(one)
    assert "state: merged" in first
    assert "draft: true" in first
    assert "state: open" in second
    assert "draft: false" in second
    assert "merged while the task ran" in " ".join(one.reports)
    assert one.workspace.changed_paths() == ["c.txt"]
    one.delivery.deliver(DONE)
    assert len(pulls(one)) == 2


@pytest.mark.parametrize("how", ["--no-ff", "--squash"])
def test_a_draft_that_was_merged_with_all_that_was_done_is_said(run, how):
    one = with_a_draft(run)
    merge(one, how)
    report = one.delivery.deliver(DONE)
    assert (report.changed, report.landed, report.problem) == (False, True, ("", ""))
    ending = compose(one, DONE, report, decide(DONE, report))
    assert "All of it is on `main` already" in ending.final
    assert "No file was changed" not in ending.final
    assert len(pulls(one)) == 1


def test_a_draft_that_is_merged_while_the_check_runs_is_not_opened_again(run):
    one = run("verify: {command: 'true'}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    check = one.commands.check

    def meanwhile(command, commit, timeout):
        merge(one, "--no-ff")
        return check(command, commit, timeout)

    one.commands.check = meanwhile
    report = one.delivery.deliver(DONE)
    assert decide(DONE, report).ready
    assert len(pulls(one)) == 1
    assert "Merged already: " in compose(one, DONE, report, decide(DONE, report)).final


def test_a_draft_that_a_person_closed_stays_closed_and_that_is_said(run):
    one = with_a_draft(run)
    person_sets(one, 1, "closed")
    report = one.delivery.deliver(DONE)
    assert report.problem[0] == "pull_closed"
    assert "was closed while the task ran" in report.rejected
    assert "state: closed" in pulls(one)[0]
    assert len(pulls(one)) == 1


# --- rules of a host about commits -----------------------------------------------------------------------------

RULES = """\
#!/bin/sh
while read old new ref; do
  for commit in $(git rev-list "$new" --not --all); do
    body=$(git log -1 --format=%B "$commit")
    mail=$(git log -1 --format=%ae "$commit")
    case "$WANTED" in
    dco) echo "$body" | grep -q "^Signed-off-by: .* <$mail>$" || { echo "Commit $commit is not signed off (DCO)" >&2; exit 1; } ;;
    pattern) echo "$body" | head -1 | grep -Eq '^[A-Z]+-[0-9]+: ' || { echo "Commit message does not follow the pattern '^[A-Z]+-[0-9]+: '" >&2; exit 1; } ;;
    signature) git -c gpg.ssh.allowedSignersFile="$SIGNERS" verify-commit "$commit" 2>/dev/null || { echo "GH013: Commits must have verified signatures." >&2; exit 1; } ;;
    author) test "$mail" = bot@example.com || { echo "Committer's email '$mail' does not follow the pattern '@example.com$'" >&2; exit 1; } ;;
    name) case "$ref" in refs/heads/bots/*) ;; *) echo "Branch name '$ref' does not follow the pattern '^bots/'" >&2; exit 1 ;; esac ;;
    esac
  done
done
"""


def ruled(one, wanted, **more):
    """The repository refuses what a host with this rule refuses."""
    hook = one.place.folder / "repo.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    values = "".join(f"{name}='{value}'\n" for name, value in {"WANTED": wanted, **more}.items())
    hook.write_text(RULES.replace("#!/bin/sh\n", f"#!/bin/sh\n{values}", 1))
    hook.chmod(0o755)


@pytest.fixture
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "signing"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    signers = path.with_name("signers")
    signers.write_text(f"* {path.with_suffix('.pub').read_text()}")
    return path, signers


BOT = "author: Bot of Us <bot@example.com>"


@pytest.mark.parametrize(
    ("rule", "setting", "named"),
    [
        ("dco", "commit: {sign_off: true}", "commit.sign_off"),
        ("pattern", "commit: {template: 'PROJ-{{ number }}: {{ title }}'}", "commit.template"),
        ("signature", "commit: {signing_key: KEY}", "commit.signing_key"),
        ("author", f"commit: {{{BOT}}}", "commit.author"),
        ("name", "branch: {prefix: bots/ai/}", "branch.prefix"),
    ],
)
def test_a_rule_that_is_not_met_names_the_key_that_mends_it_and_the_key_does(run, key, rule, setting, named):
    _, signers = key
    one = run()
    ruled(one, rule, SIGNERS=signers)
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(DONE)
    assert report.code == "push_rejected"
    assert f"`{named}" in report.rejected
    assert "It says: " in report.rejected
    assert report.commit == one.workspace.head(), "the commit is kept"
    one.context.close()


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        ("dco", "commit: {sign_off: true}"),
        ("pattern", "commit: {template: 'PROJ-{{ number }}: {{ title }}'}"),
        ("signature", "commit: {signing_key: KEY}"),
        ("author", f"commit: {{{BOT}}}"),
        ("name", "branch: {prefix: bots/ai/}"),
    ],
)
def test_the_key_meets_the_rule(run, key, rule, setting):
    path, signers = key
    one = run(f"{setting.replace('KEY', str(path))}\n")
    ruled(one, rule, SIGNERS=signers)
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(DONE)
    assert report.rejected == ""
    assert decide(DONE, report).ready
    assert any(branch.startswith("bots/ai/1-" if rule == "name" else "makimono/1-") for branch in branches(one))


def test_all_of_it_together_also_when_the_base_has_moved(run, key):
    path, signers = key
    one = run(f"commit: {{sign_off: true, {BOT}, signing_key: {path}, template: '{{{{ title }}}}'}}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    one.delivery.checkpoint("First step")
    (one.place.folder / "seed" / "c.txt").write_text("c\n")
    git(one.place.folder / "seed", "add", "c.txt")
    git(one.place.folder / "seed", "commit", "-q", "-m", "Meanwhile")
    git(one.place.folder / "seed", "push", "-q", "origin", "HEAD:main")
    ruled(one, "signature", SIGNERS=signers)
    (one.workspace.tree / "d.txt").write_text("d\n")
    assert one.delivery.deliver(Outcome(End.FINISHED, summary="Done.", title="Fixes #7 @octocat")).rejected == ""
    said = git(one.place.folder / "repo.git", "log", "-1", "--format=%an <%ae>%n%B", one.workspace.branch)
    assert said.splitlines()[0] == "Bot of Us <bot@example.com>"
    assert said.strip().endswith("Signed-off-by: Bot of Us <bot@example.com>")
    assert "#7" not in said
    folder = one.context.context_dir
    assert not any(path.name in ("signing", "signers") for path in folder.rglob("*")), (
        "the key lies in no task's folder"
    )


def test_a_pgp_key_signs_too_and_its_keyring_is_gone(run, tmp_path_factory):
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    env = {"GNUPGHOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    made = [
        "gpg",
        "--batch",
        "--quiet",
        "--passphrase",
        "",
        "--quick-gen-key",
        "Bot <bot@example.com>",
        "ed25519",
        "sign",
    ]
    subprocess.run(made, env=env, check=True, capture_output=True)
    path = home / "key.asc"
    armoured = ["gpg", "--batch", "--armor", "--export-secret-keys"]
    path.write_bytes(subprocess.run(armoured, env=env, check=True, capture_output=True).stdout)
    one = run(f"commit: {{signing_key: {path}}}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    report = one.delivery.deliver(DONE)
    done = subprocess.run(
        ["git", "verify-commit", report.commit],
        cwd=one.place.folder / "repo.git",
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    subprocess.run(["gpgconf", "--kill", "all"], env=env, check=True)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [(None, 0, "cannot be read"), ("words", 0o600, "no private key"), ("ssh", 0o644, "chmod 600")],
)
def test_a_key_that_cannot_sign_is_named(run, key, text, mode, said):
    path, _ = key
    if text is None:
        path.unlink()
    else:
        path.write_text(path.read_text() if text == "ssh" else text)
        path.chmod(mode)
    one = run(f"commit: {{signing_key: {path}}}\n")
    (one.workspace.tree / "b.txt").write_text("b\n")
    with pytest.raises(ConfigError, match=said):
        one.delivery.deliver(DONE)


def test_a_branch_of_the_default_name_stays_ours_when_the_prefix_is_another(run):
    one = run("branch: {prefix: bots-}\n")
    assert one.workspace.branch.startswith("bots-1-")
    assert is_own("makimono/1-x", "bots-")
    assert not is_own("main", "bots-")
