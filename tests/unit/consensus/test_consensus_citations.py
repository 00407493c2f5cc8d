"""Findings count if their place is in the diff."""

import subprocess

from agent.consensus.citations import Citable, check_citations, diff_lines
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
    checked = check_citations(vote, Citable.of(DIFF, ["tests/test_calc.py::test_total"]))
    assert checked.struck == 2
    assert checked.vote.findings == (findings[0], findings[1], findings[4])
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
