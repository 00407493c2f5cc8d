"""Findings count if their place is in the diff."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.consensus.citations import Citable, check_citations, diff_lines
from agent.consensus.decision import final_vote
from agent.consensus.votes import Finding, Vote, VotePayload

DIFF = """\
diff --git a/calc.py b/calc.py
index 1111111..2222222 100644
--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,4 @@ def total
 def total(prices):
-    return sum(round(p) for p in prices)
+    whole = sum(prices)
+    return round(whole)
 # end
@@ -10 +11 @@
-old
+new
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-was here
diff --git a/docs/how.md b/docs/how.md
new file mode 100644
--- /dev/null
+++ b/docs/how.md
@@ -0,0 +1,3 @@
+--- a/planted.py
++++ b/planted.py
+@@ -1 +900 @@
\\ No newline at end of file
"""


def test_the_lines_that_a_diff_shows_can_be_cited():
    assert set(diff_lines(DIFF)) == {
        *(("calc.py", line) for line in (1, 2, 3, 4, 10, 11)),
        ("gone.txt", 1),
        *(("docs/how.md", line) for line in (1, 2, 3)),
    }


def test_a_header_in_the_content_of_a_file_opens_no_place():
    assert not any(path == "planted.py" for path, _ in diff_lines(DIFF))


def test_findings_without_a_place_are_struck_and_counted():
    findings = [
        Finding("calc.py", 3, "It rounds."),
        Finding("./calc.py", 2, "It sums."),
        Finding("calc.py", 99, "There is no such line."),
        Finding("planted.py", 900, "There is no such file."),
        Finding("tests/test_calc.py::test_total", 0, "It fails."),
    ]
    vote = VotePayload(Vote.DENY, "See the findings.", (), tuple(findings))
    checked = check_citations(vote, Citable.from_diff(DIFF, ["tests/test_calc.py::test_total"]))
    assert checked.struck == 2
    assert checked.vote.findings == (findings[0], Finding("calc.py", 2, "It sums."), findings[4])
    assert checked.cited == {("calc.py", 3), ("calc.py", 2), ("tests/test_calc.py::test_total", 0)}


def test_a_diff_of_git_gives_its_lines(tmp_path):
    def git(*args):
        return subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@localhost", *args],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    git("init", "-q")
    (tmp_path / "a b.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "-- x").write_text("- a\n")
    git("add", "-A")
    git("commit", "-q", "-m", "First")
    (tmp_path / "a b.txt").write_text("one\n2\nthree\n++ c\n")
    (tmp_path / "-- x").unlink()
    found = set(diff_lines(git("diff", "HEAD", "-U0")))
    assert found == {("a b.txt", 2), ("a b.txt", 4), ("-- x", 1)}


STRANGE = """\
diff --git "a/q\\"uo\\tte.txt" "b/q\\"uo\\tte.txt"
new file mode 100644
--- /dev/null
+++ "b/q\\"uo\\tte.txt"
@@ -0,0 +1 @@
+h
diff --git a/zw\u200b.py b/zw\u200b.py
--- a/zw\u200b.py
+++ b/zw\u200b.py
@@ -1 +1 @@
-h
+\u200bh
diff --git a/logo.png b/logo.png
index d5d0b8b..4a27031 100644
Binary files a/logo.png and b/logo.png differ
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/old name b/a/new
similarity index 100%
rename from old name
rename to a/new
"""


@pytest.mark.parametrize(
    ("file", "line", "shown"),
    [
        ('q"uo\tte.txt', 1, 'q\\"uo\\tte.txt'),
        ('q\\"uo\\tte.txt', 1, 'q\\"uo\\tte.txt'),
        ("zw\u200b.py", 1, "zw\\u200b.py"),
        ("zw\\u200b.py", 1, "zw\\u200b.py"),
        ("zw.py", 1, None),
        ("logo.png", 0, "logo.png"),
        ("run.sh", 0, "run.sh"),
        ("a/new", 0, "a/new"),
        ("logo.png", 1, None),
        ("zw\u200b.py", 0, None),
        ("old name", 0, None),
    ],
)
def test_a_strange_name_and_a_file_without_lines_take_no_veto_away(file, line, shown):
    vote = VotePayload(Vote.DENY, "It harms.", (), (Finding(file, line, "It harms."),))
    assert [one.file for one in check_citations(vote, Citable.from_diff(STRANGE)).vote.findings] == (
        [shown] if shown else []
    )


def test_other_names_of_a_place_are_no_new_evidence():
    cited = [
        check_citations(VotePayload(vote, "So.", (), tuple(Finding(*one, "It fails.") for one in places)), citable)
        for citable in [Citable.from_diff(STRANGE, ["t.py::test_x"])]
        for vote, places in [
            (Vote.DENY, [("zw\u200b.py", 1), ("t.py::test_x", 0)]),
            (Vote.APPROVE, [("./zw\\u200b.py", 1), ("t.py::test_x", 10**30)]),
        ]
    ]
    assert cited[0].cited == cited[1].cited
    assert final_vote(*cited) == (cited[0], True)


@given(
    st.lists(st.sampled_from([*STRANGE.split("\n"), "\\ No newline", "-x", " \u2028x", "\ud7a4", "+\r"])).map("\n".join)
)
def test_what_reviewers_see_of_a_diff_has_the_same_places(diff):
    Citable.from_diff(diff)
